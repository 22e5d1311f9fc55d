//! Lookups over memory looked at in place: the short way first, and the engine for what it leaves.

use fpcache_fabric::InPlace;

use super::attempt::{Attempts, TOGETHER};
use crate::fingerprint::FingerprintWidth;
use crate::key_space::KeySpace;
use crate::matching::{Kernels, WithKernels};
use crate::plan::Plan;
use crate::read::engine::{Engine, Lists, Mapped, Unconfirmed};
use crate::read::outcome::{Outcome, Outcomes};
use crate::read::scratch::{GroupScratch, LookupScratch, fail};
use crate::read::{ReadError, Wanted};
use crate::table::Table;

/// One key over memory looked at in place.
pub(super) struct Single<'a, K: KeySpace, L, F> {
    pub(super) look: L,
    pub(super) table: &'a Table<K>,
    pub(super) scratch: &'a mut LookupScratch<K>,
    pub(super) key: &'a K::Key,
    pub(super) wanted: Wanted,
    pub(super) take: F,
}

impl<K: KeySpace, L: InPlace, R, F: FnOnce(&Outcome, Option<&[u8]>) -> R> WithKernels
    for Single<'_, K, L, F>
{
    type Output = Result<R, ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { mut look, table, scratch, key, wanted, take } = self;
        let LookupScratch { lists, record, handle, .. } = scratch;
        record.clear();
        let rule = table.planner().single();
        let (look_at, copy) = (&mut look, &mut lists.copy);
        let records = &mut *record;
        let mut attempts = Attempts::<_, _, _, 0> { look: look_at, table, kernels, records, copy };
        // Of its own, not the engine's: it can stay in registers.
        let mut outcome = Outcome::begun(Plan::TwoStage);
        // Groups are the engine's.
        if !rule.uses_groups() && attempts.single(key, rule, handle, &mut outcome)? {
            look.count(outcome.cost.round_trips, outcome.cost.reads, outcome.cost.bytes)?;
            let value = outcome.version.map(|_| record.bytes(outcome.value.clone()));
            return Ok(take(&outcome, value));
        }
        lists.clear();
        let mut outcome = Outcome::begun(Plan::TwoStage);
        let mut engine = Engine {
            table,
            rule: *rule,
            wanted,
            kernels,
            source: Mapped::new(look, table.view().guards_slots()),
            handle,
            lists,
            records: record,
            unconfirmed: Unconfirmed::default(),
            value_bytes: 0,
        };
        let mut probe = engine.begin(key, &mut outcome);
        let mut torn = 0;
        while !probe.is_done() {
            engine.end_trip(&mut torn)?;
            engine.take_in_place(key, &mut probe, &mut outcome)?;
        }
        engine.check_all_seen()?;
        let value = outcome.version.map(|_| engine.records.bytes(outcome.value.clone()));
        Ok(take(&outcome, value))
    }
}

/// A group of keys over memory looked at in place.
pub(super) struct Group<'a, K: KeySpace, L, I> {
    pub(super) look: L,
    pub(super) table: &'a Table<K>,
    pub(super) scratch: &'a mut LookupScratch<K>,
    pub(super) keys: I,
    pub(super) wanted: Wanted,
}

impl<'k, K: KeySpace, L: InPlace, I: Iterator<Item = &'k K::Key>> WithKernels for Group<'_, K, L, I> {
    type Output = Result<(), ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { mut look, table, scratch, mut keys, wanted } = self;
        let LookupScratch { lists, handle, group, .. } = scratch;
        let GroupScratch { first: begins, probes, answers: Outcomes { outcomes: all, records }, .. } = group;
        let mut is_stale = false;
        let rule = table.planner().group(TOGETHER.min(keys.size_hint().0));
        let word_width = table.word_width().filter(|_| rule.is_two_stage());
        let (mut some, mut count) = ([K::lowest(); TOGETHER], TOGETHER);
        while count == TOGETHER {
            count = 0;
            for (place, key) in some.iter_mut().zip(keys.by_ref()) {
                *place = key;
                count += 1;
            }
            if count == 0 {
                break;
            }
            let (some, first) = (&some[..count], all.len());
            all.resize(first + count, Outcome::begun(Plan::TwoStage));
            let outcomes = &mut all[first..];
            let (look_at, kept) = (&mut look, &mut *records);
            let Lists { copy, line_first, .. } = &mut *lists;
            // What is called is one width's code.
            macro_rules! group {
                ($width:literal) => {
                    Attempts::<_, _, _, $width> { look: look_at, table, kernels, records: kept, copy }
                        .group(some, &rule, outcomes, line_first)
                };
            }
            let are_all = match word_width {
                Some(FingerprintWidth::Bits16) => group!(2),
                Some(FingerprintWidth::Bits32) => group!(4),
                Some(FingerprintWidth::Bits64) => group!(8),
                _ if rule.uses_groups() => Ok(false),
                _ => group!(0),
            };
            if !matches!(are_all, Ok(true)) {
                let mut engine = Engine {
                    table,
                    rule,
                    wanted,
                    kernels,
                    source: Mapped::new(&mut look, table.view().guards_slots()),
                    handle: &mut *handle,
                    lists: &mut *lists,
                    records: &mut *records,
                    unconfirmed: Unconfirmed::default(),
                    value_bytes: 0,
                };
                let fail_at = |at| {
                    is_stale = true;
                    fail(probes, first - *begins + at);
                };
                match are_all.and_then(|_| engine.look_up_rest(some, outcomes, fail_at)) {
                    Ok(()) => {}
                    Err(ReadError::Stale) => {
                        engine.look_up_each(some, outcomes, |at| {
                            is_stale = true;
                            fail(probes, first - *begins + at);
                        });
                    }
                    Err(error) => {
                        all.truncate(first);
                        return Err(if is_stale { ReadError::Stale } else { error });
                    }
                }
            }
        }
        if is_stale { Err(ReadError::Stale) } else { Ok(()) }
    }
}
