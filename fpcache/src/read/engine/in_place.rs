//! Driving the engine over memory looked at in place.

use std::slice::{from_mut, from_ref};

use fpcache_fabric::InPlace;

use super::{Engine, Probe, Unconfirmed};
use crate::key_space::KeySpace;
use crate::layout::REUSE_OFFSET;
use crate::matching::Kernels;
use crate::plan::Plan;
use crate::read::lookup::TOGETHER;
use crate::read::outcome::Outcome;
use crate::read::source::Mapped;
use crate::read::{MAX_ATTEMPTS, ReadError};

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
    #[inline(always)]
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

    #[inline(always)]
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
