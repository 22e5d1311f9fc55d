//! The engine over memory looked at in place: its source and its driver.

use std::slice::{from_mut, from_ref};
use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::{FabricError, InPlace, Landing, Words};

use super::{Engine, Probe, Requested, Source, Unconfirmed};
use crate::key_space::KeySpace;
use crate::layout::REUSE_OFFSET;
use crate::matching::Kernels;
use crate::plan::Plan;
use crate::read::lookup::TOGETHER;
use crate::read::outcome::Outcome;
use crate::read::{MAX_ATTEMPTS, ReadError};

/// Memory looked at in place: what is asked for is prefetched, because other bytes are looked at
/// before.
#[derive(Debug)]
pub(in crate::read) struct Mapped<L> {
    look: L,
    /// Whether slots are copied with their guards.
    guards: bool,
    /// READs asked for since the last round trip.
    reads: u32,
    bytes: u64,
}

impl<L: InPlace> Mapped<L> {
    #[inline(always)]
    pub(in crate::read) fn new(look: L, guards: bool) -> Self {
        Self { look, guards, reads: 0, bytes: 0 }
    }

    /// Closes a round trip.
    #[inline(always)]
    pub(super) fn end_trip(&mut self) -> Result<(), FabricError> {
        let (reads, bytes) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.bytes));
        fence(Ordering::Acquire);
        self.look.count(1, reads, bytes)
    }

    /// Whether the memory node is there, after everything that was looked at.
    #[inline(always)]
    pub(super) fn check_alive(&mut self) -> Result<(), FabricError> {
        self.look.check_alive()
    }

    /// The word at `offset`, after everything that was looked at.
    #[inline(always)]
    pub(super) fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        self.look.load_after_reads(offset)
    }
}

impl<L: InPlace> Source for Mapped<L> {
    #[inline(always)]
    fn ask(&mut self, offset: u64, bytes: usize) -> Requested {
        self.reads += 1;
        self.bytes += bytes as u64;
        self.look.prefetch(offset, bytes);
        Requested { offset, bytes, landing: Landing::NOTHING }
    }

    #[inline(always)]
    fn ask_slots(&mut self, offset: u64, bytes: usize, _: usize) -> Requested {
        self.ask(offset, bytes)
    }

    #[inline(always)]
    fn words(&mut self, asked: &Requested) -> Result<Words<'_>, FabricError> {
        self.look.words(asked.offset, asked.bytes)
    }

    #[inline(always)]
    fn slot(&mut self, asked: &Requested, at: usize, out: &mut [u64]) -> Result<(), FabricError> {
        match self.guards {
            true => self.look.record(asked.offset + at as u64, out),
            false => self.look.copy(asked.offset + at as u64, out),
        }
    }
}

impl<K: KeySpace, L: InPlace, M: Kernels> Engine<'_, K, Mapped<L>, M> {
    /// Looks up those keys of a group for which nothing has been read yet. Those that lie in
    /// segments that were replaced are passed to `fail`; after an error no key has an answer.
    #[inline(never)]
    pub(in crate::read) fn look_up_rest(
        &mut self,
        keys: &[&K::Key],
        outcomes: &mut [Outcome],
        fail: impl FnMut(usize),
    ) -> Result<(), ReadError> {
        let mut probes = [Probe::DONE; TOGETHER];
        let probes = &mut probes[..keys.len()];
        self.look_up_some(keys, probes, outcomes)?;
        let failed = probes.iter().enumerate().filter(|(_, probe)| !probe.has_answer());
        failed.map(|(at, _)| at).for_each(fail);
        Ok(())
    }

    /// Looks up keys of which it is not known which lie in segments that were replaced: each by
    /// itself, so that the others have their answers. Those that have none are passed to `fail`.
    #[cold]
    pub(in crate::read) fn look_up_each(
        &mut self,
        keys: &[&K::Key],
        outcomes: &mut [Outcome],
        mut fail: impl FnMut(usize),
    ) {
        for (at, (key, outcome)) in keys.iter().zip(outcomes).enumerate() {
            *outcome = Outcome::begun(Plan::TwoStage);
            self.unconfirmed = Unconfirmed::default();
            let mut is_failed = false;
            let looked = self.look_up_rest(from_ref(key), from_mut(outcome), |_| is_failed = true);
            if is_failed || looked.is_err() {
                fail(at);
            }
        }
    }

    /// Looks up keys in turns. Those that lie in segments that were replaced end without an answer.
    // Compiled once for all callers, however they note failures.
    #[inline(never)]
    fn look_up_some(
        &mut self,
        keys: &[&K::Key],
        probes: &mut [Probe],
        outcomes: &mut [Outcome],
    ) -> Result<(), ReadError> {
        self.lists.clear();
        for ((key, probe), outcome) in keys.iter().zip(probes.iter_mut()).zip(outcomes.iter_mut()) {
            if outcome.cost.reads == 0 {
                *probe = self.begin(key, outcome);
            }
        }
        let mut torn = 0;
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            self.end_trip(&mut torn)?;
            for ((key, probe), outcome) in keys.iter().zip(probes.iter_mut()).zip(outcomes.iter_mut()) {
                match self.take_in_place(key, probe, outcome) {
                    Ok(()) => goes_on |= !probe.is_done(),
                    Err(ReadError::Stale) => *probe = Probe::FAILED,
                    Err(error) => return Err(error),
                }
            }
        }
        self.check_all_seen()
    }

    /// Lets a round trip pass. What is read again because it could not be told may be no slot any
    /// more; `torn` counts the trips after which that is so.
    #[inline(always)]
    pub(in crate::read) fn end_trip(&mut self, torn: &mut u32) -> Result<(), ReadError> {
        self.source.end_trip()?;
        self.take_tables()?;
        self.value_bytes = 0;
        if self.unconfirmed.torn {
            self.unconfirmed.torn = false;
            self.check_reuse()?;
            *torn += 1;
            if *torn >= MAX_ATTEMPTS {
                return Err(ReadError::Contended { attempts: MAX_ATTEMPTS });
            }
        }
        Ok(())
    }

    // With assertions, as in tests, it is compiled once, not as part of each caller.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(in crate::read) fn take_in_place(
        &mut self,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        match self.take(key, probe, outcome) {
            Err(error @ ReadError::Corrupt(_)) => {
                // Damaged, or no page of this directory any more.
                self.check_reuse()?;
                Err(error)
            }
            taken => taken,
        }
    }

    /// That what was looked at holds.
    #[inline(always)]
    pub(in crate::read) fn check_all_seen(&mut self) -> Result<(), ReadError> {
        self.check_absence()?;
        Ok(self.source.check_alive()?)
    }

    /// That a key is absent may be believed of segments whose memory had no other use yet.
    #[inline(always)]
    fn check_absence(&mut self) -> Result<(), ReadError> {
        match std::mem::take(&mut self.unconfirmed).absent {
            true => self.check_reuse(),
            false => Ok(()),
        }
    }

    #[inline(always)]
    fn check_reuse(&mut self) -> Result<(), ReadError> {
        match self.source.load_after_reads(REUSE_OFFSET)? > self.table.view().holds_until() {
            true => Err(ReadError::Stale),
            false => Ok(()),
        }
    }
}
