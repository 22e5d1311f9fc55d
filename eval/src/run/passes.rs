//! The order of the passes, and the lookups of each.
//!
//! Without a budget, all passes of a system look up the same keys: verification, whose answers are
//! compared and whose costs are reported; throughput passes, which take turns with those of other
//! systems, each after a warm-up; latency; and the timeline, if asked for.
//!
//! A hot cache changes with use. Passes over the same keys would hit each other's entries,
//! including those of keys that are requested once in the whole stream, and show a hit rate that no
//! service would see. So the stream is [several passes](parts) long, and each pass takes the next
//! part:
//!
//! 1. a first verified pass, which warms the cache,
//! 2. a second verified pass: its costs are the steady state's, and those reported,
//! 3. the throughput passes: `hit_rate` is of these alone; a warm-up before each, with the last
//!    lookups of the part before, refills the processor's caches, and its hits do not count,
//! 4. the reported bytes, entries and room, which are read here,
//! 5. latency;
//! 6. the timeline, which begins with an empty hot cache, so that keys that become popular are new
//!    to it.
//!
//! With `--cold` every pass begins with an empty hot cache: it is cleared before the one verified
//! pass, and before each throughput, latency and timeline pass, none of which is warmed up. Models
//! stay.

use anyhow::Context;
use fpcache_datasets::Bar;

use crate::data::{DataKeys, Stream};
use crate::run::measure::{Measurable, Measured, rounds};
use crate::run::row::Row;
use crate::run::setting::Setting;
use crate::run::threads::WARM_UP;
use crate::run::verify::Verified;
use crate::run::workload::{Lookups, Workload};

/// Most parts of a stream: further passes begin again with the first, whose keys have had time to
/// go.
const MAX_PARTS: usize = 5;

/// Lookups of a stream, of 16 bytes each, beyond which it is not made longer. Passes that long meet
/// few keys of an earlier one that they would not have met otherwise.
const LONG: usize = 1 << 26;

/// How many parts of one pass each the stream has: one without a budget, else one per pass that
/// verifies or measures throughput, but at most five, and two of very long passes.
pub fn parts(has_budget: bool, rounds: usize, lookups: usize) -> usize {
    if !has_budget {
        return 1;
    }
    (2 + rounds).min(MAX_PARTS).min(LONG / lookups.max(1)).max(2)
}

/// The passes of one experiment.
#[derive(Clone, Copy, Debug)]
pub struct Passes<'a, 'k, K: DataKeys> {
    /// What all passes share; its lookups are replaced by those of the pass.
    pub workload: Workload<'a, 'k, K>,
    /// The stream of all parts.
    pub requests: &'a Stream<'k, K>,
    /// Parts of the stream.
    pub parts: usize,
    /// Throughput passes.
    pub rounds: usize,
    /// Lookups per point of the timeline, if there is to be one.
    pub timeline: Option<usize>,
}

impl<'a, 'k, K: DataKeys> Passes<'a, 'k, K> {
    /// The workload of the `index`-th pass.
    fn pass(&self, index: usize) -> Workload<'a, 'k, K> {
        let parts = self.parts.max(1);
        let part = |index: usize| Lookups::part(self.requests, index % parts, parts);
        let before = part(index + parts - 1).keys;
        let warm_up = (parts > 1).then(|| &before[before.len().saturating_sub(WARM_UP)..]);
        Workload { lookups: part(index), warm_up, ..self.workload }
    }

    /// Runs all of them over all systems.
    pub fn measure(
        &self,
        systems: &[&dyn Measurable<K>],
        setting: &Setting,
        bar: &Bar,
    ) -> anyhow::Result<Vec<Row>> {
        let mut verified = Vec::with_capacity(systems.len());
        for system in systems {
            verified.push(self.verify(*system, bar)?);
        }
        let passes = rounds(systems, |round| self.pass(2 + round), self.rounds, (setting.pages, bar))?;
        let mut rows = Vec::with_capacity(systems.len());
        for ((system, verified), passes) in systems.iter().zip(verified).zip(passes) {
            let cache = system.cache_stats()?;
            let last = self.pass(2 + self.rounds);
            let latency = bar.during("measuring latency", 1, || system.latency(&last))?;
            let timeline = self.timeline.map(|every| {
                let cold = system.facts().cache.is_some();
                let workload = Workload { stretch: Some(every), cold, ..self.pass(0) };
                bar.during("measuring the timeline", 1, || system.timeline(&workload))
            });
            let timeline = timeline.transpose().context("measuring the timeline")?;
            let measured = Measured { verified, passes, cache, latency, timeline };
            rows.push(Row::new(setting, &last, system.name(), &system.facts(), &measured));
        }
        Ok(rows)
    }

    fn verify(&self, system: &dyn Measurable<K>, bar: &Bar) -> anyhow::Result<Verified> {
        let mut verified = system.verify(&self.pass(0), bar)?;
        if system.facts().cache.is_some() && !self.workload.cold {
            verified = system.verify(&self.pass(1), bar)?.after(verified);
        }
        if let Some(mismatch) = &verified.first_mismatch {
            eprintln!(
                "WRONG: {} of {} answers of {}; the first: {mismatch}",
                verified.mismatches,
                verified.lookups,
                system.name()
            );
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    use crate::run::values::ValueBytes;
    use fpcache_client::U64Keys;
    use fpcache_datasets::OpenOptions;

    #[test]
    fn every_pass_has_its_part_and_warms_up_with_the_end_of_the_one_before() {
        let dataset = U64Keys::open(&"sequential:10".parse().unwrap(), &OpenOptions::default()).unwrap();
        let numbers: Vec<u64> = (0..9).collect();
        let requests: Stream<'_, U64Keys> = Stream { keys: Cow::Borrowed(&numbers), expected: &numbers };
        let workload = Workload {
            dataset: &dataset,
            lookups: Lookups::all(&requests),
            values: ValueBytes::Fixed(8),
            batch: 1,
            threads: 1,
            stretch: None,
            warm_up: None,
            cold: false,
        };
        let passes = Passes { workload, requests: &requests, parts: 3, rounds: 1, timeline: None };
        for (index, keys, before) in
            [(0, [0, 1, 2], [6, 7, 8]), (2, [6, 7, 8], [3, 4, 5]), (4, [3, 4, 5], [0, 1, 2])]
        {
            let pass = passes.pass(index);
            assert_eq!((pass.lookups.keys, pass.warm_up), (&keys[..], Some(&before[..])));
        }
        let same = Passes { parts: 1, ..passes };
        assert_eq!((same.pass(3).lookups.len(), same.pass(3).warm_up), (9, None));
    }

    #[test]
    fn passes_of_a_cache_have_lookups_of_their_own_until_there_are_too_many() {
        assert_eq!((parts(false, 3, 10), parts(true, 1, 10), parts(true, 1000, 10)), (1, 3, 5));
        assert_eq!((parts(true, 3, 20_000_000), parts(true, 3, usize::MAX)), (3, 2));
    }
}
