//! Lookups and scans.

use std::time::{Duration, Instant};

use fpcache::key_space::{BuildKeys, U64Keys};
use fpcache::layout::RecordShape;
use fpcache::read::{Cost, InFlight, Lookup, LookupScratch, Outcome, Outcomes, Wanted};
use fpcache_fabric::FabricError;

use super::map_retries::Tries;
use super::range::Ranges;
use super::{Pool, PoolHeld};
use crate::core::{EndpointOf, Section, presence, words};
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::one_node::{ReaderCore, with_direct};
use crate::remote::RemoteNode;
use crate::session::{Buffers, ReaderContext};
use crate::span::Span;

/// Looks for replies before other threads are let on.
const LOOKS: u32 = 64;
/// After this long without a reply it is slept between looks.
const AWAKE: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_micros(50);

/// Answers that a reader keeps room for from one group to the next.
const KEPT_ANSWERS: usize = 1 << 14;

/// A range's part of a group, on its way.
type RangeLookup<'h, K> = InFlight<'h, EndpointOf<RemoteNode>, Lookup<'h, K>>;

impl<K: BuildKeys> Pool<K> {
    /// Looks up one key and passes the answer to `take`.
    #[inline]
    pub(crate) fn look_up<R>(
        &self,
        held: &mut PoolHeld<K>,
        key: &K::Key,
        within: Duration,
        mut take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        self.at_key(
            held,
            key,
            within,
            |_, _, place, left| with_direct!(place, (core, own) => core.look_up(own, key, left, &mut take)),
        )
    }

    /// Whether a key is there.
    pub(crate) fn contains(
        &self,
        held: &mut PoolHeld<K>,
        key: &K::Key,
        within: Duration,
    ) -> Result<bool, ClientError> {
        self.at_key(
            held,
            key,
            within,
            |_, _, place, left| with_direct!(place, (core, own) => core.contains(own, key, left)),
        )
    }

    /// How the record of a key lies in its slot.
    pub(crate) fn shape_by(
        &self,
        held: &mut PoolHeld<K>,
        key: &K::Key,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        self.at_key(
            held,
            key,
            within,
            |_, _, place, left| with_direct!(place, (core, own) => core.shape_by(own, left)),
        )
    }

    /// Reads at the range of a key, and goes on with a newer map if it is not there.
    #[inline]
    pub(super) fn at_key<R>(
        &self,
        held: &mut PoolHeld<K>,
        key: &K::Key,
        within: Duration,
        read: impl FnMut(&Ranges<K>, usize, &mut ReaderCore<K>, Duration) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        self.at_range_by(held, |ranges| ranges.index_of(key), within, read)
    }

    /// As [`at_key`](Self::at_key), at the range that `index_of` finds in a map.
    #[inline]
    fn at_range_by<R>(
        &self,
        held: &mut PoolHeld<K>,
        index_of: impl Fn(&Ranges<K>) -> usize,
        within: Duration,
        mut read: impl FnMut(&Ranges<K>, usize, &mut ReaderCore<K>, Duration) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let mut tries = Tries::new(within);
        loop {
            let ranges = self.follow(held);
            let index = index_of(&ranges);
            // What is mapped answers sooner than the clock is looked at twice.
            if !matches!(held.held[index], Some(ReaderCore::Mapped(..))) {
                tries.begin();
            }
            let place = ranges.place(&mut held.held[index], index, &self.config, &tries);
            match place.and_then(|place| read(&ranges, index, place, tries.left())) {
                Err(error) => self.recover_range(&ranges, index, error, &mut tries)?,
                answered => return answered,
            }
        }
    }

    /// Looks up a group of keys and passes the buffers with the answers to `take`. The batches of
    /// all memory nodes are on their way together, so that the group takes as many round trips as
    /// its slowest part.
    pub(crate) fn lookup<'k, R>(
        &self,
        held: &mut PoolHeld<K>,
        (keys, wanted): (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        mut take: impl FnMut(&mut LookupScratch<K>) -> R,
    ) -> Result<R, ClientError> {
        let mut tries = Tries::begun(within);
        let mut scratch = LookupScratch::new(self.matcher);
        'with_map: loop {
            let ranges = self.follow(held);
            let mut assigned = std::mem::take(&mut held.assigned);
            assigned.clear();
            // A map has far fewer ranges than a u16 counts.
            assigned.extend(keys.clone().map(|key| ranges.index_of(key) as u16));
            let of = |index: usize| {
                let assigned = assigned.iter().zip(keys.clone());
                assigned.filter(move |(at, _)| usize::from(**at) == index).map(|(_, key)| key)
            };
            let others = self.look_up_over_sockets(&ranges, held, of, wanted, &tries);
            for (nth, index) in others.into_iter().enumerate() {
                if nth > 0 && tries.left().is_zero() {
                    // It is not for this memory node that the time was too short.
                    held.assigned = assigned;
                    held.parts.iter_mut().for_each(clear_answers);
                    let waiting_for = "the other keys of the group";
                    return Err(FabricError::DeadlinePassed { waiting_for }.into());
                }
                let (group, part) = ((of(index), wanted), &mut held.parts[index]);
                let place = ranges.place(&mut held.held[index], index, &self.config, &tries);
                let found = place.and_then(
                    |place| with_direct!(place, (core, own) => core.lookup_into(own, group, tries.left(), part)),
                );
                if let Err(error) = found {
                    held.assigned = assigned;
                    held.parts.iter_mut().for_each(clear_answers);
                    self.recover_range(&ranges, index, error, &mut tries)?;
                    continue 'with_map;
                }
            }
            let PoolHeld { parts, answers, assigned: kept, .. } = &mut *held;
            answers.clear();
            merge(parts, &assigned, answers);
            parts.iter_mut().for_each(clear_answers);
            scratch.swap_outcomes(answers);
            let taken = take(&mut scratch);
            scratch.swap_outcomes(answers);
            clear_answers(answers);
            assigned.clear();
            assigned.shrink_to(KEPT_ANSWERS);
            *kept = assigned;
            return Ok(taken);
        }
    }

    /// As [`lookup`](Self::lookup), with the answers in buffers that are given.
    pub(crate) fn lookup_into<'k>(
        &self,
        held: &mut PoolHeld<K>,
        group: (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        answers: &mut Outcomes,
    ) -> Result<(), ClientError> {
        self.lookup(held, group, within, |scratch| scratch.swap_outcomes(answers))
    }

    /// Has all memory nodes that are reached over sockets look at their parts of a group at once;
    /// which parts have to be looked up otherwise, beginning with those that took the time.
    fn look_up_over_sockets<'k, I: Iterator<Item = &'k K::Key> + Clone>(
        &self,
        ranges: &Ranges<K>,
        held: &mut PoolHeld<K>,
        of: impl Fn(usize) -> I,
        wanted: Wanted,
        tries: &Tries,
    ) -> Vec<usize> {
        let (mut slow, mut others) = (Vec::new(), Vec::new());
        let mut parts: Vec<(usize, RangeLookup<'_, K>)> = Vec::new();
        for (index, own) in held.held.iter_mut().enumerate() {
            if of(index).next().is_none() {
                continue;
            }
            let begun = match ranges.place(own, index, &self.config, tries) {
                Ok(ReaderCore::Remote((core, own))) => {
                    core.ready(own, tries.left()).map(|ReaderContext { table, buffers, .. }| {
                        let Buffers { endpoint, lookup, .. } = buffers;
                        InFlight::begin(endpoint, Lookup::new(table, lookup, of(index)).of(wanted))
                    })
                }
                // What is mapped takes no round trip to wait for.
                Ok(_) => None,
                Err(_) => {
                    slow.push(index);
                    continue;
                }
            };
            match begun {
                Some(Ok(part)) => parts.push((index, part)),
                _ => others.push(index),
            }
        }
        let unfinished = land(&mut parts, tries.left());
        let begun: Vec<usize> = parts.into_iter().map(|(index, _)| index).collect();
        for index in begun {
            match &mut held.held[index] {
                Some(ReaderCore::Remote((_, Some(context)))) if !unfinished.contains(&index) => {
                    context.buffers.lookup.swap_outcomes(&mut held.parts[index]);
                }
                // A batch may still be on its way: its endpoint is not used any more.
                place => {
                    *place = None;
                    slow.push(index);
                }
            }
        }
        slow.append(&mut others);
        slow
    }

    /// Scans the section that is the `rest` of a scan, range by range, and passes each record to
    /// `take` in its order. With a newer map it continues after the last key that it has covered,
    /// wherever the bounds of ranges lie then.
    pub(crate) fn scan<F: ScanFlow>(
        &self,
        held: &mut PoolHeld<K>,
        rest: &mut Option<Section<K>>,
        wanted: Wanted,
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        let (mut cost, mut tries) = (Cost::default(), Tries::new(within));
        while let Some(Section { span, limit, is_down }) = rest.take_if(|rest| !rest.is_over()) {
            let ranges = self.follow(held);
            let (index, own, beyond) = ranges.part_of(&span, is_down);
            let (mut part, mut limit) = (Some(Section { span: own, limit, is_down }), limit);
            let mut take = |key: K::View<'_>, value: &[u8]| {
                let flow = take(key, value).flow();
                limit = if flow.is_break() { 0 } else { limit - 1 };
                flow
            };
            let place = ranges.place(&mut held.held[index], index, &self.config, &tries);
            let scanned = place.and_then(
                |place| with_direct!(place, (core, own) => core.scan(own, &mut part, wanted, within, &mut take)),
            );
            let left = match (part, is_down) {
                (Some(part), false) if scanned.is_err() => Some(Span { end: span.end, ..part.span }),
                (Some(part), true) if scanned.is_err() => Some(Span { start: span.start, ..part.span }),
                _ => beyond,
            };
            *rest = left.map(|span| Section { span, limit, is_down });
            match scanned {
                Ok(more) => {
                    cost += more;
                    tries = Tries::new(within);
                }
                Err(error) => self.recover_range(&ranges, index, error, &mut tries)?,
            }
        }
        Ok(cost)
    }

    /// As [`Core::scan_part`](crate::core::Core::scan_part), of the range that the section begins
    /// in, after which the next one follows.
    #[cfg(feature = "tokio")]
    pub(crate) fn scan_part(
        &self,
        held: &mut PoolHeld<K>,
        (section, wanted): (&Section<K>, Wanted),
        within: Duration,
        mut take: impl FnMut(&K::Key, &[u8]),
    ) -> Result<Option<Span<K>>, ClientError> {
        let part = |ranges: &Ranges<K>| ranges.part_of(&section.span, section.is_down);
        self.at_range_by(
            held,
            |ranges| part(ranges).0,
            within,
            |ranges, _, place, left| {
                let (_, span, beyond) = part(ranges);
                let own = Section { span, ..*section };
                let part = (&own, wanted);
                let rest = with_direct!(place, (core, held) => core.scan_part(held, part, left, &mut take))?;
                Ok(rest.map(|rest| section.after_part(rest)).or(beyond))
            },
        )
    }

    /// Puts whether each key is there into an array of as many; how many are there.
    pub(crate) fn multi_contains<'k>(
        &self,
        held: &mut PoolHeld<K>,
        keys: impl ExactSizeIterator<Item = &'k K::Key> + Clone,
        found: &mut [bool],
        within: Duration,
    ) -> Result<usize, ClientError> {
        presence(keys, found, usize::MAX, |keys, take| {
            self.lookup(held, (keys, Wanted::Presence), within, take)
        })
    }
}

impl Pool<U64Keys> {
    /// Puts the values of `keys`, which have eight bytes, and whether they are there into arrays of
    /// the same length; how many are there.
    pub(crate) fn multi_get_u64(
        &self,
        held: &mut PoolHeld<U64Keys>,
        keys: &[u64],
        answers: (&mut [u64], &mut [bool]),
        within: Duration,
    ) -> Result<usize, ClientError> {
        words(keys, answers, usize::MAX, |keys, take| {
            self.lookup(held, (keys.iter(), Wanted::Value), within, take)
        })
    }
}

/// Adds the answers of all parts, in the order in which their keys are `assigned` to these.
fn merge(parts: &[Outcomes], assigned: &[u16], answers: &mut Outcomes) {
    let mut next: Vec<_> = parts.iter().map(Outcomes::iter).collect();
    for index in assigned {
        if let Some((outcome, value)) = next[usize::from(*index)].next() {
            answers.push(outcome, value);
        }
    }
}

/// Forgets answers, and does not keep the room for those of a long group, or for long values.
fn clear_answers(answers: &mut Outcomes) {
    match answers.len() > KEPT_ANSWERS {
        true => *answers = Outcomes::default(),
        false => answers.clear(),
    }
}

/// Takes the replies to all parts as they come, and lets those go that have ended; which have not,
/// or failed.
fn land<K: BuildKeys>(parts: &mut [(usize, RangeLookup<'_, K>)], left: Duration) -> Vec<usize> {
    let (began, mut failed, mut since, mut looks) = (Instant::now(), Vec::new(), None, 0u32);
    loop {
        let (mut has_come, mut goes_on) = (false, false);
        for (index, part) in parts.iter_mut() {
            if part.is_done() || failed.contains(index) {
                continue;
            }
            match part.poll() {
                Ok(came) => has_come |= came,
                // Whatever it is, it is met again, and got over, where the part is looked up alone.
                Err(_) => failed.push(*index),
            }
            goes_on |= !part.is_done() && !failed.contains(index);
        }
        if !goes_on {
            return failed;
        }
        looks = if has_come { 0 } else { looks + 1 };
        if looks > 0 && looks < LOOKS {
            std::hint::spin_loop();
            continue;
        }
        // However much has come: the call's time is its own.
        if began.elapsed() >= left {
            failed.extend(parts.iter().filter(|(_, part)| !part.is_done()).map(|(index, _)| *index));
            failed.sort_unstable();
            failed.dedup();
            return failed;
        }
        if has_come {
            since = None;
            continue;
        }
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        match waited < AWAKE {
            true => std::thread::yield_now(),
            false => std::thread::sleep(NAP),
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
