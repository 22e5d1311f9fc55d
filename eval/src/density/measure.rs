//! Cutting, grouping and looking for every key.

use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache::layout::Grouping;
use fpcache::tuning::{Counts, Marks};
use fpcache_index::groups::BlockForm;
use fpcache_index::{Directory, PlacedSegment, SegmentOptions, Segmenter};

use super::form::FormName;
use crate::machine::split_mix;

/// What a compute node keeps of a segment beside its first key, in words: as
/// `fpcache::models::Segment` of integers.
type Descriptor = [u64; 4];
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
    fn form(&self) -> Option<BlockForm> {
        let grouping = |form| Grouping::for_slots(form, usize::try_from(self.slot_bytes).ok()?);
        self.form
            .built()
            .and_then(grouping)
            .map_or_else(|| self.form.form(), |grouping| Some(grouping.form()))
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Keys, READs, bytes.
    pub counts: Counts,
    /// What putting the keys into groups took, without cutting.
    pub grouping: Duration,
}

impl Figures {
    /// Half of the slots of the mean key's window, where the table is not at hand.
    pub fn window(&self) -> f64 {
        self.counts.half_windows as f64 / self.counts.keys.max(1) as f64
    }
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
    let directory = Directory::<u64, Descriptor>::from_sorted(entries).context("making the directory")?;
    figures.counts.directory_bytes = directory.size_in_bytes() as u64;
    Ok(figures)
}

struct Measured {
    figures: Figures,
    entries: Vec<(u64, Descriptor)>,
    state: u64,
}

impl Measured {
    /// Looks for the keys of a segment, which are `xs`, and for as many before the key `after` that
    /// are absent.
    fn add(
        &mut self,
        segment: &PlacedSegment,
        xs: &[u64],
        after: Option<u64>,
        setting: &Setting,
    ) -> anyhow::Result<()> {
        let first = if self.entries.is_empty() { 0 } else { xs[0] };
        self.entries.push((first, [0; 4]));
        match setting.form() {
            None => self.figures.counts.add_placed(segment, xs),
            Some(form) => self.by_table(segment, xs, after, form)?,
        }
        Ok(())
    }

    /// Where the segment's table leads.
    fn by_table(
        &mut self,
        segment: &PlacedSegment,
        xs: &[u64],
        after: Option<u64>,
        form: BlockForm,
    ) -> anyhow::Result<()> {
        let hashes: Vec<u64> = xs.iter().map(|x| hash(*x)).collect();
        let began = Instant::now();
        let grouped = segment.grouped(xs, &hashes, form).context("a segment too long for groups")?;
        self.figures.grouping += began.elapsed();
        let counts = &mut self.figures.counts;
        counts.add_grouped(&grouped, xs, &hashes);
        let marks = Marks::of(&grouped, xs, &hashes);
        for rank in 0..xs.len() {
            let end = xs.get(rank + 1).copied().or(after).unwrap_or(u64::MAX);
            let gap = end.saturating_sub(xs[rank]).saturating_sub(1);
            if gap > 0 {
                let absent = xs[rank] + 1 + split_mix(&mut self.state) % gap;
                counts.absent += 1;
                counts.absent_one_read += u64::from(marks.settles_absence(absent, hash(absent)));
            }
        }
        Ok(())
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
            measure(&keys, &setting).expect("ascending keys").counts
        };
        for form in [FormName::Line, FormName::Cut, FormName::Seeded, FormName::Pilots] {
            let found = figures(form);
            assert_eq!((found.keys, found.misplaced), (keys.len() as u64, 0), "{form:?}");
        }
        let (line, plain, seeded) =
            (figures(FormName::Line), figures(FormName::Cut), figures(FormName::Seeded));
        assert!(plain.present_one_read > 99_900 && seeded.present_one_read > 99_900);
        assert!(line.present_one_read < 99_000 && line.table_bytes == 0);
        assert!(seeded.table_bytes < plain.table_bytes / 2);
        assert!(plain.slots_read == 10 * plain.keys);
    }
}
