//! Cutting, grouping and looking for every key.

use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache::layout::{GroupForm, Grouping};
use fpcache_index::groups::{Form, GroupTable, GroupedSegment};
use fpcache_index::{Directory, PlacedSegment, SegmentModel, SegmentOptions, Segmenter};

use super::FormName;
use crate::machine::split_mix;

/// What a compute node keeps of a segment beside its first key, in words: as `fpcache::models::Segment` of integers.
type Descriptor = [u64; 4];
/// Bytes that say where a segment's table lies.
const TABLE_PLACE_BYTES: usize = 8;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The tables.
    pub form: FormName,
    /// Of the models.
    pub epsilon: u32,
    /// Of new segments.
    pub fill: f64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Of the absent keys.
    pub seed: u64,
}

impl Setting {
    /// Of the tables, if there are any: groups are as long as memory nodes make them.
    fn form(&self) -> Option<Form> {
        let grouping = || Grouping::for_slots(GroupForm::Plain, usize::try_from(self.slot_bytes).ok()?);
        match self.form {
            FormName::Groups => grouping().map(Grouping::form).or(Some(Form::PLAIN)),
            other => other.form(),
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Keys, which were all looked for.
    pub keys: u64,
    /// Those that the first READ has.
    pub present_one_read: u64,
    /// Absent keys that were looked for.
    pub absent: u64,
    /// Those of which the first READ tells that they are absent.
    pub absent_one_read: u64,
    /// Slots that first READs of present keys had.
    pub slots_read: u64,
    /// Keys that are neither where their table leads nor in the window of their model.
    pub misplaced: u64,
    /// Slots of all segments.
    pub slots: u64,
    /// Half of the slots of the mean key's window, where the table is not at hand.
    pub window: f64,
    /// Segments.
    pub segments: u64,
    /// Bytes of the directory with its models.
    pub directory_bytes: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// What putting the keys into groups took, without cutting.
    pub grouping: Duration,
}

/// Measures a setting over ascending keys.
///
/// # Errors
/// If the options are none, or keys do not ascend.
pub fn measure(keys: &[u64], setting: &Setting) -> anyhow::Result<Figures> {
    let options =
        SegmentOptions { epsilon: setting.epsilon, fill: setting.fill, ..SegmentOptions::default() };
    let mut measured = Measured { figures: Figures::default(), entries: Vec::new(), state: setting.seed };
    let mut segmenter = Segmenter::new(options)?;
    let mut rest = keys;
    let mut take = |piece: fpcache_index::Piece| {
        let (mut own, others) = rest.split_at(piece.keys);
        rest = others;
        for segment in piece.place(own, &options) {
            let (xs, left) = own.split_at(segment.keys);
            own = left;
            measured.add(&segment, xs, left.first().or(others.first()).copied(), setting)?;
        }
        anyhow::Ok(())
    };
    for key in keys {
        segmenter.push(*key)?.map_or(Ok(()), &mut take)?;
    }
    segmenter.finish().map_or(Ok(()), &mut take)?;
    let Measured { mut figures, entries, .. } = measured;
    figures.segments = entries.len() as u64;
    figures.window /= figures.keys.max(1) as f64;
    let directory = Directory::<u64, Descriptor>::from_sorted(entries).context("making the directory")?;
    figures.directory_bytes = directory.size_in_bytes() as u64;
    Ok(figures)
}

struct Measured {
    figures: Figures,
    entries: Vec<(u64, Descriptor)>,
    state: u64,
}

impl Measured {
    /// Looks for the keys of a segment, which are `xs`, and for as many before the key `after` that are absent.
    fn add(
        &mut self,
        segment: &PlacedSegment,
        xs: &[u64],
        after: Option<u64>,
        setting: &Setting,
    ) -> anyhow::Result<()> {
        let first = if self.entries.is_empty() { 0 } else { xs[0] };
        self.entries.push((first, [0; 4]));
        self.figures.keys += xs.len() as u64;
        match setting.form() {
            None => self.by_line(segment, xs),
            Some(form) => self.by_table(segment, xs, after, form)?,
        }
        Ok(())
    }

    /// As many slots as a plain group has, about the prediction.
    fn by_line(&mut self, segment: &PlacedSegment, xs: &[u64]) {
        let PlacedSegment { model, slots, .. } = segment;
        let Form::Plain { reach, .. } = Form::PLAIN else { return };
        let figures = &mut self.figures;
        for (x, slot) in xs.iter().zip(slots) {
            let last = u32::from(model.cap.saturating_sub(reach));
            let from = model.predict(*x).saturating_sub(u32::from(reach / 2 - 1)).min(last);
            let reads = u32::from(reach.min(model.cap));
            figures.present_one_read += u64::from((from..from + reads).contains(&u32::from(*slot)));
            figures.slots_read += u64::from(reads);
            // A window that one READ has tells absent keys as well.
            figures.absent_one_read += u64::from(model.window(*x).len() <= reads);
        }
        figures.absent += xs.len() as u64;
        figures.slots += u64::from(model.cap);
        figures.window += f64::from(model.epsilon) * xs.len() as f64;
    }

    /// Where the segment's table leads.
    fn by_table(
        &mut self,
        segment: &PlacedSegment,
        xs: &[u64],
        after: Option<u64>,
        form: Form,
    ) -> anyhow::Result<()> {
        let hashes: Vec<u64> = xs.iter().map(|x| hash(*x)).collect();
        let began = Instant::now();
        let grouped = segment.grouped(xs, &hashes, form).context("a segment too long for groups")?;
        self.figures.grouping += began.elapsed();
        let GroupedSegment { model, slots, table, strays } = &grouped;
        let figures = &mut self.figures;
        for (rank, (x, slot)) in xs.iter().zip(slots).enumerate() {
            let run = table.slots_of(model, *x, hashes[rank]);
            let leads = run.is_some_and(|run| run.contains(*slot));
            figures.present_one_read += u64::from(leads);
            figures.slots_read += run.map_or(0, |run| u64::from(run.len));
            figures.misplaced += u64::from(!leads && !model.window(*x).contains(u32::from(*slot)));
        }
        figures.slots += u64::from(model.cap);
        figures.window += f64::from(model.epsilon) * xs.len() as f64;
        figures.table_bytes += (table.bytes() + TABLE_PLACE_BYTES) as u64;
        let flags =
            Flags::of(table, model, strays.iter().map(|rank| (xs[*rank as usize], hashes[*rank as usize])));
        for rank in 0..xs.len() {
            let end = xs.get(rank + 1).copied().or(after).unwrap_or(u64::MAX);
            let gap = end.saturating_sub(xs[rank]).saturating_sub(1);
            if gap > 0 {
                let absent = xs[rank] + 1 + split_mix(&mut self.state) % gap;
                figures.absent += 1;
                figures.absent_one_read += u64::from(flags.tell_absent(table, model, absent));
            }
        }
        Ok(())
    }
}

/// Which groups say that a key of theirs lies elsewhere.
struct Flags {
    groups: Vec<bool>,
}

impl Flags {
    fn of(table: &GroupTable, model: &SegmentModel, strays: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut groups = vec![false; usize::from(model.cap) + 1];
        for (x, hash) in strays {
            if let Some(group) = table.slots_of(model, x, hash).and_then(|run| table.group_of(run)) {
                groups[usize::from(group)] = true;
            }
        }
        Self { groups }
    }

    /// Whether the READ that the table leads to settles that the key is absent: the group has all keys of its own. With pilots
    /// there is no group, and all keys of a bucket are where its pilot leads.
    fn tell_absent(&self, table: &GroupTable, model: &SegmentModel, x: u64) -> bool {
        let run = table.slots_of(model, x, hash(x));
        run.is_some_and(|run| table.group_of(run).is_none_or(|group| !self.groups[usize::from(group)]))
    }
}

/// A hash of the key, for forms that choose by one.
fn hash(key: u64) -> u64 {
    let mut state = key;
    split_mix(&mut state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_has_as_many_bytes_as_that_of_tables() {
        let own = size_of::<fpcache::models::Segment<fpcache::key_space::U64Keys>>();
        assert_eq!(size_of::<Descriptor>(), own);
    }

    #[test]
    fn every_key_is_found_and_groups_need_few_bytes() {
        let mut state = 7;
        let mut keys: Vec<u64> = (0..100_000).map(|_| split_mix(&mut state)).collect();
        keys.sort_unstable();
        keys.dedup();
        let figures = |form| {
            let setting = Setting { form, epsilon: 64, fill: 0.85, slot_bytes: 24, seed: 1 };
            measure(&keys, &setting).expect("ascending keys")
        };
        for form in [FormName::Line, FormName::Plain, FormName::Seeded, FormName::Pilots] {
            let found = figures(form);
            assert_eq!((found.keys, found.misplaced), (keys.len() as u64, 0), "{form:?}");
        }
        let (line, plain, seeded) =
            (figures(FormName::Line), figures(FormName::Plain), figures(FormName::Seeded));
        assert!(plain.present_one_read > 99_900 && seeded.present_one_read > 99_900);
        assert!(line.present_one_read < 99_000 && line.table_bytes == 0);
        assert!(seeded.table_bytes < plain.table_bytes / 2);
        assert!(plain.slots_read == 10 * plain.keys);
    }
}
