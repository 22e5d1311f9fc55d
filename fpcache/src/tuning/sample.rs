//! The sample of keys that a table's parameters are chosen by: cut, grouped and inserted as a
//! memory node does it.

use std::borrow::Borrow;

use fpcache_index::groups::GroupedSegment;
use fpcache_index::{PlacedSegment, SegmentModel, SegmentOptions};

use super::counts::{Counts, Marks};
use crate::key_space::{BuildKeys, CutSegment, OrderError};
use crate::layout::{Descriptor, DirectoryPage, SegmentAddress, TableParameters};
use crate::models::Models;

/// Runs of neighbouring keys, and how many a table is to have.
///
/// Runs, because what a line and a group cost depends on how neighbours lie; and some from all over
/// the keys, because these differ.
#[derive(Clone, Debug)]
pub struct KeySample<K: BuildKeys> {
    pub(super) runs: Vec<Vec<K::Owned>>,
    pub(super) keys: u64,
}

impl<K: BuildKeys> KeySample<K> {
    /// Runs that are taken of keys of which there are more.
    const RUNS: usize = 8;
    /// Keys of a run: several segments, so that those at its ends count for little.
    const RUN: usize = 1 << 14;

    /// A sample of `count` ascending keys, the `i`-th of which is `key(i)`: all, or 131,072 of
    /// them.
    pub fn of(count: usize, mut key: impl FnMut(usize) -> K::Owned) -> Self {
        let runs = if count <= Self::RUNS * Self::RUN {
            vec![(0..count).map(key).collect()]
        } else {
            let step = (count - Self::RUN) / (Self::RUNS - 1);
            let mut run = |first: usize| (first..first + Self::RUN).map(&mut key).collect();
            (0..Self::RUNS).map(|at| run(at * step)).collect()
        };
        Self { runs, keys: count as u64 }
    }

    /// The encoders that suit the keys.
    pub(super) fn encoders(&self) -> K::Encoders {
        K::train(self.runs.iter().flatten().map(Borrow::borrow), self.keys)
    }

    /// The counts of a table with these parameters, over all its keys, of which `growth` for each
    /// of the others have been inserted in random order after these were loaded. Segments are not
    /// rebuilt, so `growth` must be small.
    ///
    /// # Errors
    /// The keys do not ascend.
    pub(super) fn count(
        &self,
        parameters: &TableParameters,
        encoders: &K::Encoders,
        growth: f64,
    ) -> Result<Counts, OrderError> {
        let (mut counts, mut descriptors) = (Counts::default(), Vec::new());
        let options = SegmentOptions {
            epsilon: parameters.epsilon,
            fill: parameters.fill,
            max_slots: parameters.max_slots,
            ..SegmentOptions::default()
        };
        // A key's hash says whether it comes late.
        let late = (growth / (1.0 + growth) * 2f64.powi(32)) as u64;
        let is_late = |key: &K::Owned| K::hash(key.borrow()) >> 32 < late;
        for run in &self.runs {
            let Ok(mut cutter) = K::cutter(options, encoders) else { return Ok(counts) };
            let mut cut = Vec::new();
            let mut loaded: Vec<usize> = (0..run.len()).filter(|at| !is_late(&run[*at])).collect();
            // Of few keys all may come late, but a table is loaded with something.
            let all_late = loaded.is_empty();
            if all_late {
                loaded = (0..run.len()).collect();
            }
            let is_late = |key: &K::Owned| !all_late && is_late(key);
            for at in &loaded {
                K::push(&mut cutter, run[*at].borrow(), &mut cut)?;
            }
            K::finish(&mut cutter, &mut cut);
            let mut first = 0;
            for segment in &cut {
                let end = first + segment.placed.keys;
                let from = if first == 0 { 0 } else { loaded[first] };
                let keys = &run[from..loaded.get(end).copied().unwrap_or(run.len())];
                let (there, later) = keys.iter().partition(|key| !is_late(key));
                add::<K>(&mut counts, parameters, encoders, segment, (there, later));
                descriptors.push(descriptor(segment));
                first = end;
            }
        }
        let sampled = counts.keys.max(1) as f64;
        let factor = self.keys as f64 / sampled;
        let pages = pages(&descriptors) as f64 * factor;
        let counts = counts.times(factor);
        let directory = Models::<K>::resident_bytes_at_most(counts.segments.max(1), pages.ceil() as u64);
        let shared = K::encoders_bytes(encoders) as u64;
        Ok(Counts { directory_bytes: directory.saturating_add(shared), ..counts })
    }
}

fn descriptor<K: BuildKeys>(segment: &CutSegment<K>) -> Descriptor<K> {
    Descriptor {
        start: segment.start.clone(),
        tail: segment.tail,
        model: segment.placed.model,
        address: SegmentAddress::from_bits(0),
        generation: 0,
    }
}

/// Pages of a directory of these segments.
fn pages<K: BuildKeys>(descriptors: &[Descriptor<K>]) -> usize {
    let (mut rest, mut count) = (descriptors, 0);
    while !rest.is_empty() {
        let (_, held) = DirectoryPage::encode(rest, 0);
        rest = &rest[held.max(1)..];
        count += 1;
    }
    count
}

/// Counts a segment that is loaded with some keys and gets others later.
fn add<K: BuildKeys>(
    counts: &mut Counts,
    parameters: &TableParameters,
    encoders: &K::Encoders,
    segment: &CutSegment<K>,
    (there, later): (Vec<&K::Owned>, Vec<&K::Owned>),
) {
    let of = |keys: &[&K::Owned]| -> (Vec<u64>, Vec<u64>) {
        let coordinate =
            |key: &K::Key| K::coordinate(key, K::shared(key, segment.start.borrow()), segment.tail, encoders);
        keys.iter().map(|key| (coordinate((*key).borrow()), K::hash((*key).borrow()))).unzip()
    };
    let ((xs, hashes), late) = (of(&there), of(&later));
    let grouped = parameters.groups.and_then(|grouping| {
        let least = u16::try_from(parameters.epsilon).unwrap_or(u16::MAX);
        let PlacedSegment { model, keys, .. } = segment.placed;
        let model = SegmentModel { epsilon: model.epsilon.max(least), ..model };
        let placed = PlacedSegment { model, keys, slots: Vec::new() };
        let grouped = placed.grouped(&xs, &hashes, grouping.form())?;
        let fits = u32::from(grouped.model.epsilon) <= grouping.most_epsilon(parameters.epsilon);
        fits.then_some(grouped)
    });
    match grouped {
        Some(grouped) => {
            counts.add_grouped(&grouped, &xs, &hashes);
            insert(counts, &grouped, (&xs, &hashes), (&late.0, &late.1));
        }
        None => {
            let PlacedSegment { model, slots, .. } = &segment.placed;
            counts.add_without_table(model, there.len() + later.len());
            counts.at_home += at_home(model, (&xs, slots), &late.0);
        }
    }
}

/// How many keys lie in the slot their prediction names, of some that are loaded into these slots,
/// and of others that come later and find it free or not.
fn at_home(model: &SegmentModel, (xs, slots): (&[u64], &[u16]), late: &[u64]) -> u64 {
    let mut free = vec![true; usize::from(model.cap).max(1)];
    let mut count = 0;
    for (x, slot) in xs.iter().zip(slots) {
        free[usize::from(*slot)] = false;
        count += u64::from(model.predict(*x) == u32::from(*slot));
    }
    let found = late.iter().filter(|x| std::mem::take(&mut free[model.predict(**x) as usize]));
    count + found.count() as u64
}

/// Puts keys into a segment, each into its group if that has a free slot, and counts them; and of
/// how many keys the group would tell then that they are absent.
fn insert(
    counts: &mut Counts,
    segment: &GroupedSegment,
    (xs, hashes): (&[u64], &[u64]),
    (late_xs, late_hashes): (&[u64], &[u64]),
) {
    let mut marks = Marks::of(segment, xs, hashes);
    let mut free = vec![true; usize::from(segment.model.cap)];
    segment.slots.iter().for_each(|slot| free[usize::from(*slot)] = false);
    for (x, hash) in late_xs.iter().zip(late_hashes) {
        let run = segment.table.slots_of(&segment.model, *x, *hash);
        let own = usize::from(run.first)..usize::from(run.first + run.len);
        // The first slot may be the group's before, and the last the next one's: they go last.
        let inner = own.start + 1..own.end.saturating_sub(1);
        let outer = own.clone().last().into_iter().chain(own.clone().next());
        let home = inner.chain(outer).find(|slot| free[*slot]);
        let window = segment.model.window(*x);
        let slot =
            home.or_else(|| (window.first..=window.last).map(|slot| slot as usize).find(|at| free[*at]));
        slot.into_iter().for_each(|slot| free[slot] = false);
        counts.present_one_read += u64::from(home.is_some());
        counts.slots_read += u64::from(run.len);
        counts.at_home += u64::from(home == Some(segment.model.predict(*x) as usize));
        if home.is_none() {
            marks.mark(*x, *hash);
        }
    }
    counts.keys += late_xs.len() as u64;
    counts.half_windows += u64::from(segment.model.epsilon) * late_xs.len() as u64;
    // Absent keys are as near to one another as those that are there.
    let all = xs.iter().zip(hashes).chain(late_xs.iter().zip(late_hashes));
    for (x, hash) in all {
        counts.absent += 1;
        counts.absent_one_read += u64::from(marks.settles_absence(*x, *hash));
    }
}
