//! Looking keys up: two-stage and range reads of any number of keys in the same doorbell batches.

use std::ops::RangeFrom;

use fpcache_fabric::{Batch, Landing, REGION, RemoteAddr};

use super::outcome::Outcome;
use super::scratch::LookupScratch;
use super::target::{Target, too_many};
use super::verify::{Verdict, judge, shows};
use super::{Cost, MAX_ATTEMPTS, Operation, Plan, Planner, ReadError, Step};
use crate::key_space::KeySpace;
use crate::matching::Matcher;
use crate::snapshot::Snapshot;

/// How far a lookup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was read.
    Start,
    /// Windows were asked for: fingerprints or slots, by each key's plan.
    Windows,
    /// Slots were asked for.
    Slots,
}

/// Looks up a group of keys together.
///
/// Every round posts what all unfinished keys need as one doorbell batch: a group costs as many dependent round trips
/// as its slowest key, two with two-stage reads.
#[derive(Debug)]
pub struct Lookup<'a, K: KeySpace> {
    snapshot: &'a Snapshot<K>,
    planner: &'a Planner,
    scratch: &'a mut LookupScratch<K>,
    phase: Phase,
    /// Which of the two batches is filled next.
    turn: bool,
    attempts: u32,
}

impl<'a, K: KeySpace> Lookup<'a, K> {
    /// A lookup of `keys` in the table as `snapshot` has it.
    #[inline]
    pub fn new(
        snapshot: &'a Snapshot<K>,
        planner: &'a Planner,
        scratch: &'a mut LookupScratch<K>,
        keys: impl IntoIterator<Item = K::Key>,
    ) -> Self {
        scratch.targets.clear();
        scratch.answers.clear();
        scratch.targets.extend(keys.into_iter().filter_map(|key| Target::of(snapshot, key)));
        Self { snapshot, planner, scratch, phase: Phase::Start, turn: false, attempts: 0 }
    }
}

impl<K: KeySpace> Operation for Lookup<'_, K> {
    #[inline]
    fn step(&mut self) -> Result<Step, ReadError> {
        let scratch = &mut *self.scratch;
        let [even, odd] = &mut scratch.batches;
        let (landed, next) = if self.turn { (&*odd, even) } else { (&*even, odd) };
        next.clear();
        let reads = Reads { snapshot: self.snapshot, next };
        let mut round = Round {
            reads,
            landed,
            matcher: &scratch.matcher,
            outcomes: &mut scratch.answers.outcomes,
            candidates: &mut scratch.candidates,
            ranges: &mut scratch.ranges,
            slots: &mut scratch.slots,
            values: &mut scratch.answers.values,
        };
        match self.phase {
            Phase::Start => {
                round.ask_for_windows(&scratch.targets, self.planner, &mut scratch.windows);
                self.phase = Phase::Windows;
            }
            Phase::Windows => {
                round.take_windows(&scratch.targets, &scratch.windows)?;
                self.phase = Phase::Slots;
            }
            Phase::Slots => {
                self.attempts += 1;
                round.take_slots(&scratch.targets)?;
            }
        }
        if round.reads.next.is_empty() {
            return Ok(Step::Done);
        }
        if self.attempts >= MAX_ATTEMPTS {
            return Err(ReadError::Contended { attempts: self.attempts });
        }
        self.turn = !self.turn;
        Ok(Step::Post)
    }

    #[inline]
    fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batches[usize::from(self.turn)]
    }
}

/// The batch that is being filled.
struct Reads<'a, K: KeySpace> {
    snapshot: &'a Snapshot<K>,
    next: &'a mut Batch,
}

impl<K: KeySpace> Reads<'_, K> {
    /// Asks for `len` bytes at `offset` of the target's segment.
    #[inline]
    fn read(&mut self, target: &Target<K>, cost: &mut Cost, offset: usize, len: usize) -> Landing {
        cost.reads += 1;
        cost.bytes += len as u64;
        let offset = target.segment + offset as u64;
        self.next.read(RemoteAddr { area: REGION, offset }, len)
    }

    #[inline]
    fn fingerprints(&mut self, target: &Target<K>, cost: &mut Cost) -> Landing {
        let span = self.snapshot.geometry().fingerprint_span(target.window);
        self.read(target, cost, span.offset, span.len)
    }

    #[inline]
    fn slots(&mut self, target: &Target<K>, cost: &mut Cost, first: u32, count: u32) -> Landing {
        let geometry = self.snapshot.geometry();
        let offset = geometry.slot_offset(target.cap, first);
        self.read(target, cost, offset, count as usize * geometry.slot_bytes)
    }
}

/// One round of a lookup: what the last batch brought, and the batch that is being filled.
struct Round<'a, K: KeySpace> {
    reads: Reads<'a, K>,
    landed: &'a Batch,
    matcher: &'a Matcher,
    outcomes: &'a mut Vec<Outcome>,
    candidates: &'a mut Vec<(usize, Landing)>,
    ranges: &'a mut Vec<(usize, Landing)>,
    slots: &'a mut Vec<u32>,
    values: &'a mut Vec<u8>,
}

impl<K: KeySpace> Round<'_, K> {
    /// Asks for what each target's plan reads first.
    #[inline]
    fn ask_for_windows(&mut self, targets: &[Target<K>], planner: &Planner, windows: &mut Vec<Landing>) {
        windows.clear();
        for target in targets {
            let plan = planner.choose(target.window.len());
            let mut outcome = Outcome::begun(plan);
            let cost = &mut outcome.cost;
            windows.push(match plan {
                Plan::TwoStage => self.reads.fingerprints(target, cost),
                Plan::Range => self.reads.slots(target, cost, target.window.first, target.window.len()),
            });
            self.outcomes.push(outcome);
        }
    }

    /// Takes the windows: matches fingerprints and asks for the candidates' slots, or looks through slots.
    #[inline]
    fn take_windows(&mut self, targets: &[Target<K>], windows: &[Landing]) -> Result<(), ReadError> {
        self.candidates.clear();
        self.ranges.clear();
        for (index, (target, window)) in targets.iter().zip(windows).enumerate() {
            match self.outcomes[index].plan {
                Plan::TwoStage => self.match_fingerprints(index, target, *window)?,
                Plan::Range => self.check_range(index, target, *window)?,
            }
        }
        Ok(())
    }

    /// Asks for the slots whose fingerprint matches; without one the key is absent.
    #[inline]
    fn match_fingerprints(
        &mut self,
        index: usize,
        target: &Target<K>,
        window: Landing,
    ) -> Result<(), ReadError> {
        let geometry = self.reads.snapshot.geometry();
        let span = geometry.fingerprint_span(target.window);
        let bytes = &self.landed.bytes(window)[span.skip..][..span.used];
        let (first, fingerprint) = (target.window.first, target.fingerprint(geometry.width));
        let hits = self.matcher.hits(geometry.width, bytes, fingerprint);
        if hits.frozen {
            return Err(ReadError::Stale);
        }
        self.slots.clear();
        match hits.count {
            0 => return Ok(()),
            1 => self.slots.push(first + hits.first),
            _ => {
                self.matcher.find(geometry.width, bytes, fingerprint, first, self.slots);
            }
        }
        if too_many(self.slots.len(), target.window) {
            self.fall_back(index, target);
            return Ok(());
        }
        let cost = &mut self.outcomes[index].cost;
        cost.round_trips += 1;
        for slot in &*self.slots {
            let landing = self.reads.slots(target, cost, *slot, 1);
            self.candidates.push((index, landing));
        }
        Ok(())
    }

    /// Takes the slots that were asked for.
    #[inline]
    fn take_slots(&mut self, targets: &[Target<K>]) -> Result<(), ReadError> {
        let mut unsettled = None;
        for row in 0..self.candidates.len() {
            let (index, landing) = self.candidates[row];
            match self.check_slot(index, &targets[index], self.landed.bytes(landing))? {
                Check::Other => self.outcomes[index].cost.false_candidates += 1,
                Check::Unsettled => unsettled = Some(unsettled.unwrap_or(row)),
                Check::Found | Check::Nothing => {}
            }
        }
        // A range that must be read again is asked for behind those that have come.
        let come = self.ranges.len();
        for row in 0..come {
            let (index, landing) = self.ranges[row];
            self.check_range(index, &targets[index], landing)?;
        }
        self.ranges.drain(..come);
        if let Some(row) = unsettled {
            self.read_again(targets, row);
        }
        self.candidates.clear();
        Ok(())
    }

    /// Reads the windows of targets whose candidates, from `row` on, could not be judged: one of them may be the key.
    #[cold]
    fn read_again(&mut self, targets: &[Target<K>], row: usize) {
        let mut last = None;
        for row in row..self.candidates.len() {
            let (index, landing) = self.candidates[row];
            let value_bytes = self.reads.snapshot.record().parameters.value_bytes as usize;
            let slot = self.landed.bytes(landing);
            let verdict = judge::<K>(slot, targets[index].generation, value_bytes);
            if verdict == Verdict::Unsettled && self.outcomes[index].version.is_none() && last != Some(index)
            {
                last = Some(index);
                self.fall_back(index, &targets[index]);
            }
        }
    }

    /// Looks for the key in its window's slots.
    fn check_range(&mut self, index: usize, target: &Target<K>, landing: Landing) -> Result<(), ReadError> {
        let slot_bytes = self.reads.snapshot.geometry().slot_bytes;
        if let Some(key) = K::word(&target.key) {
            let stride = self.reads.snapshot.stride();
            let hits = self.matcher.key_hits(self.landed.words(landing), stride, key);
            match hits.count {
                0 if hits.frozen => return Err(ReadError::Stale),
                0 => return Ok(()),
                1 => return self.check_only(index, target, landing, hits.word as usize * 8..),
                // The remains of a deleted record beside a live one.
                _ => {}
            }
        }
        let mut unsettled = false;
        for slot in self.landed.bytes(landing).chunks_exact(slot_bytes) {
            if !shows::<K>(slot, target.key) {
                continue;
            }
            match self.check_slot(index, target, slot)? {
                Check::Found => return Ok(()),
                Check::Unsettled => unsettled = true,
                Check::Other | Check::Nothing => {}
            }
        }
        if unsettled {
            self.fall_back(index, target);
        }
        Ok(())
    }

    /// Checks the only slot of a window that shows the key; it begins where `range` does.
    #[inline]
    fn check_only(
        &mut self,
        index: usize,
        target: &Target<K>,
        landing: Landing,
        range: RangeFrom<usize>,
    ) -> Result<(), ReadError> {
        let slot = &self.landed.bytes(landing)[range][..self.reads.snapshot.geometry().slot_bytes];
        if let Check::Unsettled = self.check_slot(index, target, slot)? {
            self.fall_back(index, target);
        }
        Ok(())
    }

    #[inline]
    fn check_slot(&mut self, index: usize, target: &Target<K>, slot: &[u8]) -> Result<Check, ReadError> {
        let value_bytes = self.reads.snapshot.record().parameters.value_bytes as usize;
        match judge::<K>(slot, target.generation, value_bytes) {
            Verdict::Record { key, version, value } if key == target.key => {
                let start = self.values.len();
                self.values.extend_from_slice(value);
                let outcome = &mut self.outcomes[index];
                outcome.value = start..start + value.len();
                outcome.version = Some(version);
                Ok(Check::Found)
            }
            Verdict::Record { .. } => Ok(Check::Other),
            Verdict::Free => Ok(Check::Nothing),
            Verdict::Unsettled => Ok(Check::Unsettled),
            Verdict::Frozen => Err(ReadError::Stale),
        }
    }

    /// Goes on with a range read of the window.
    #[cold]
    fn fall_back(&mut self, index: usize, target: &Target<K>) {
        let Outcome { plan, cost, .. } = &mut self.outcomes[index];
        *plan = Plan::Range;
        cost.round_trips += 1;
        cost.fallbacks += 1;
        let landing = self.reads.slots(target, cost, target.window.first, target.window.len());
        self.ranges.push((index, landing));
    }
}

/// What a slot says about the key.
enum Check {
    Found,
    Other,
    Nothing,
    Unsettled,
}
