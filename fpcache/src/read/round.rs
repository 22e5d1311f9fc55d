//! One round of a lookup: what the last doorbell batch brought decides what the next one asks for.

use fpcache_fabric::{Batch, Landing, REGION, RemoteAddr};

use super::outcome::Outcome;
use super::outside::{self, Awaited, Wanted};
use super::planner::Rule;
use super::target::Target;
use super::verify::{Candidates, Check, InWindow, Rules, check, look_through, match_fingerprints};
use super::{Plan, ReadError};
use crate::cache::{Hint, Spot, Visitor};
use crate::key_space::KeySpace;
use crate::layout::Stored;
use crate::matching::Matcher;
use crate::table::Table;

/// A doorbell batch and what its READs are for. A row begins with the number of its target.
#[derive(Debug, Default)]
pub(super) struct Trip {
    pub(super) batch: Batch,
    /// Pages of the directory, by number.
    pub(super) pages: Vec<(u32, Landing)>,
    /// Slots that the hot cache named.
    cached: Vec<(usize, Hint, Landing)>,
    /// Predicted slots, with the windows' fingerprints beside them.
    guesses: Vec<(usize, Landing, Landing)>,
    /// Fingerprints of windows.
    fingerprints: Vec<(usize, Landing)>,
    /// Slots whose fingerprint matched.
    candidates: Vec<(usize, u32, Landing)>,
    /// All slots of windows.
    ranges: Vec<(usize, Landing)>,
    /// Values outside slots.
    pub(super) values: Vec<Awaited>,
}

impl Trip {
    pub(super) fn clear(&mut self) {
        match self.values.is_empty() {
            true => self.batch.clear(),
            false => outside::clear(&mut self.batch),
        }
        self.pages.clear();
        self.cached.clear();
        self.guesses.clear();
        self.fingerprints.clear();
        self.candidates.clear();
        self.ranges.clear();
        self.values.clear();
    }
}

/// One round: the trip that has come back, and the one that is being prepared.
pub(super) struct Round<'a, K: KeySpace> {
    pub(super) table: &'a Table<K>,
    pub(super) rule: &'a Rule,
    pub(super) wanted: Wanted,
    pub(super) matcher: &'a Matcher,
    pub(super) visitor: &'a mut Visitor,
    pub(super) keys: &'a [K::Kept],
    pub(super) arena: &'a [u8],
    pub(super) targets: &'a [Target],
    pub(super) outcomes: &'a mut [Outcome],
    pub(super) values: &'a mut Vec<u8>,
    pub(super) slots: &'a mut Vec<u32>,
    pub(super) landed: &'a Trip,
    pub(super) next: &'a mut Trip,
    pub(super) doubt: &'a mut Doubt,
}

/// What a lookup took from bytes that prove nothing by themselves, since the reuse sequence was last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// That a key is not where it could have been.
    pub(super) absent: bool,
    /// That a record is being written, so that it is worth while to read it again.
    pub(super) unsettled: bool,
}

impl<'a, K: KeySpace> Round<'a, K> {
    #[inline]
    fn key(&self, index: usize) -> &'a K::Key {
        K::kept(&self.keys[index], self.arena)
    }

    /// What the hot cache knows the key by.
    #[inline]
    fn spot(&self, index: usize) -> Spot {
        self.targets[index].spot::<K>(self.key(index), self.table.snapshot().geometry())
    }
}

/// Asking.
impl<K: KeySpace> Round<'_, K> {
    /// Asks for what `index`'s plan reads first.
    #[inline]
    pub(super) fn begin(&mut self, index: usize) {
        let target = &self.targets[index];
        let slots = target.window.len();
        if let Some(cache) = self.table.cache()
            && self.rule.asks(slots)
            && let Some(hint) = cache.probe(&self.spot(index))
        {
            self.outcomes[index].plan = Plan::Cached;
            let landing = self.ask_slots(index, hint.slot, 1);
            self.next.cached.push((index, hint, landing));
        } else {
            self.ask(index, self.rule.choose(slots));
        }
    }

    /// Begins all targets but those in `waiting`; for these it asks for their pages of the directory, each once.
    #[cold]
    pub(super) fn begin_known(&mut self, waiting: &[(u32, usize)]) {
        for index in 0..self.targets.len() {
            if self.targets[index].is_known() {
                self.begin(index);
            }
        }
        let Some(models) = self.table.snapshot().models().paged() else { return };
        for (page, index) in waiting {
            let cost = &mut self.outcomes[*index].cost;
            // The page's trip comes before the one every lookup is charged with.
            cost.round_trips += 1;
            if self.next.pages.last().is_none_or(|(last, _)| last != page) {
                cost.reads += 1;
                cost.bytes += K::PAGE_BYTES as u64;
                let from = RemoteAddr { area: REGION, offset: models.address(*page) };
                self.next.pages.push((*page, self.next.batch.read(from, K::PAGE_BYTES)));
            }
        }
    }

    /// Asks for what `plan` reads first.
    #[inline]
    fn ask(&mut self, index: usize, plan: Plan) {
        self.outcomes[index].plan = plan;
        match plan {
            Plan::Range => self.ask_range(index),
            Plan::TwoStage | Plan::Cached | Plan::Offloaded => {
                let landing = self.ask_fingerprints(index);
                self.next.fingerprints.push((index, landing));
            }
            Plan::Speculative => {
                let slot = self.ask_slots(index, self.targets[index].predicted, 1);
                let fingerprints = self.ask_fingerprints(index);
                self.next.guesses.push((index, slot, fingerprints));
            }
        }
    }

    #[inline]
    fn ask_range(&mut self, index: usize) {
        let window = self.targets[index].window;
        let landing = self.ask_slots(index, window.first, window.len());
        self.next.ranges.push((index, landing));
    }

    #[inline]
    fn ask_fingerprints(&mut self, index: usize) -> Landing {
        let span = self.table.snapshot().geometry().fingerprint_span(self.targets[index].window);
        let from = self.count(index, span.offset, span.len);
        self.next.batch.read(from, span.len)
    }

    #[inline]
    fn ask_slots(&mut self, index: usize, first: u32, count: u32) -> Landing {
        let geometry = self.table.snapshot().geometry();
        let offset = geometry.slot_offset(self.targets[index].cap, first);
        let len = count as usize * geometry.slot_bytes;
        let from = self.count(index, offset, len);
        self.table.snapshot().ask_for_slots(&mut self.next.batch, from, len)
    }

    /// Counts a READ of `len` bytes at `offset` of the target's segment, and says where that is.
    #[inline]
    fn count(&mut self, index: usize, offset: usize, len: usize) -> RemoteAddr {
        let cost = &mut self.outcomes[index].cost;
        cost.reads += 1;
        cost.bytes += len as u64;
        RemoteAddr { area: REGION, offset: self.targets[index].segment + offset as u64 }
    }

    /// Goes on with another plan after one that brought nothing.
    #[cold]
    fn go_on(&mut self, index: usize, plan: Plan) {
        self.outcomes[index].cost.round_trips += 1;
        self.ask(index, plan);
    }

    /// Goes on with a range read of the window.
    #[cold]
    pub(super) fn fall_back(&mut self, index: usize) {
        self.doubt.unsettled = true;
        self.outcomes[index].cost.fallbacks += 1;
        self.go_on(index, Plan::Range);
    }
}

/// Taking.
impl<K: KeySpace> Round<'_, K> {
    /// Takes everything that has come.
    #[inline]
    pub(super) fn take(&mut self) -> Result<(), ReadError> {
        let landed = self.landed;
        for (index, hint, landing) in &landed.cached {
            self.take_cached(*index, *hint, *landing)?;
        }
        for (index, slot, fingerprints) in &landed.guesses {
            self.take_guess(*index, *slot, *fingerprints)?;
        }
        for (index, landing) in &landed.fingerprints {
            self.take_fingerprints(*index, *landing)?;
        }
        self.take_candidates()?;
        for (index, landing) in &landed.ranges {
            self.take_range(*index, *landing)?;
        }
        if !landed.values.is_empty() {
            self.take_values();
        }
        Ok(())
    }

    /// Takes the slot that the hot cache named; if it is not the key's, the entry goes.
    fn take_cached(&mut self, index: usize, hint: Hint, landing: Landing) -> Result<(), ReadError> {
        let (landed, target) = (self.landed, &self.targets[index]);
        let check = self.check(index, landed.batch.bytes(landing))?;
        let cache = self.table.cache().map(|cache| (cache, self.spot(index)));
        match check {
            Check::Found { version, value } => {
                self.found(index, version, value);
                if let Some((cache, spot)) = cache {
                    cache.confirm(&spot, hint, self.visitor);
                }
            }
            Check::Unsettled => self.fall_back(index),
            Check::Other | Check::Nothing => {
                if let Some((cache, spot)) = cache {
                    cache.forget(&spot, hint, self.visitor);
                }
                self.outcomes[index].cost.conflicts += 1;
                let plan = self.table.planner().after_conflict(self.rule, target.window.len());
                self.go_on(index, plan);
            }
        }
        Ok(())
    }

    /// Takes a predicted slot; if it is not the key's, its fingerprints have come as well.
    fn take_guess(&mut self, index: usize, slot: Landing, fingerprints: Landing) -> Result<(), ReadError> {
        let landed = self.landed;
        match self.check(index, landed.batch.bytes(slot))? {
            Check::Found { version, value } => {
                self.found(index, version, value);
                self.learn(index, self.targets[index].predicted);
                Ok(())
            }
            // What is in the slot if it is not the key, or not yet, is for the fingerprints to say.
            _ => self.take_fingerprints(index, fingerprints),
        }
    }

    /// Asks for the slots whose fingerprint matches; without one the key is absent.
    #[inline]
    fn take_fingerprints(&mut self, index: usize, landing: Landing) -> Result<(), ReadError> {
        let (target, geometry) = (&self.targets[index], self.table.snapshot().geometry());
        let words = self.landed.batch.bytes(landing);
        let hash = K::hash(self.key(index));
        match match_fingerprints(words, hash, target.window, geometry, self.matcher, self.slots)? {
            Candidates::None => {
                self.doubt.absent = true;
                return Ok(());
            }
            Candidates::TooMany => {
                self.fall_back(index);
                return Ok(());
            }
            Candidates::One(slot) => {
                self.slots.clear();
                self.slots.push(slot);
            }
            Candidates::Several => {}
        }
        self.outcomes[index].cost.round_trips += 1;
        for at in 0..self.slots.len() {
            let slot = self.slots[at];
            let landing = self.ask_slots(index, slot, 1);
            self.next.candidates.push((index, slot, landing));
        }
        Ok(())
    }

    /// Takes candidates. Those that could not be judged may be the key: their windows are read.
    #[inline]
    fn take_candidates(&mut self) -> Result<(), ReadError> {
        let landed = self.landed;
        let mut unsettled = None;
        for (row, (index, slot, landing)) in landed.candidates.iter().enumerate() {
            match self.check(*index, landed.batch.bytes(*landing))? {
                Check::Found { version, value } => {
                    self.found(*index, version, value);
                    self.learn(*index, *slot);
                }
                Check::Other => {
                    self.doubt.absent = true;
                    self.outcomes[*index].cost.false_candidates += 1;
                }
                Check::Unsettled => unsettled = unsettled.or(Some(row)),
                Check::Nothing => self.doubt.absent = true,
            }
        }
        match unsettled {
            Some(row) => self.read_again(row),
            None => Ok(()),
        }
    }

    /// Reads the windows of targets whose candidates, from `row` on, could not be judged.
    #[cold]
    fn read_again(&mut self, row: usize) -> Result<(), ReadError> {
        let landed = self.landed;
        let mut last = None;
        for (index, _, landing) in &landed.candidates[row..] {
            let unsettled = self.check(*index, landed.batch.bytes(*landing))? == Check::Unsettled;
            if unsettled && self.outcomes[*index].version.is_none() && last != Some(*index) {
                last = Some(*index);
                self.fall_back(*index);
            }
        }
        Ok(())
    }

    /// Looks for the key in its window's slots.
    fn take_range(&mut self, index: usize, landing: Landing) -> Result<(), ReadError> {
        let slots = self.landed.batch.words(landing);
        match look_through(slots, &self.targets[index], self.key(index), self.table.snapshot(), self.matcher)?
        {
            InWindow::Absent => self.doubt.absent = true,
            InWindow::Found { slot, version, value } => {
                self.found(index, version, value);
                self.learn(index, slot);
            }
            InWindow::Unsettled => self.fall_back(index),
        }
        Ok(())
    }

    #[inline]
    fn check<'s>(&self, index: usize, slot: &'s [u8]) -> Result<Check<'s>, ReadError> {
        check::<K>(slot, &self.targets[index], self.key(index), Rules::of(self.table.snapshot()))
    }

    /// Keeps an answer, or asks for the value that it lacks.
    #[inline]
    fn found(&mut self, index: usize, version: u32, value: Stored<'_>) {
        match value {
            Stored::Here(value) => self.keep(index, version, value),
            Stored::Outside(extent) => self.ask_value(index, version, extent),
        }
    }

    /// Keeps an answer.
    #[inline]
    pub(super) fn keep(&mut self, index: usize, version: u32, value: &[u8]) {
        let start = self.values.len();
        self.values.extend_from_slice(value);
        let outcome = &mut self.outcomes[index];
        outcome.value = start..start + value.len();
        outcome.version = Some(version);
    }

    /// Tells the hot cache where a key was found that it did not know.
    #[inline]
    fn learn(&mut self, index: usize, slot: u32) {
        let (target, geometry) = (&self.targets[index], self.table.snapshot().geometry());
        if let Some(cache) = self.table.cache()
            && self.rule.keeps(target.window.len())
        {
            let saves = target.bytes_by(self.outcomes[index].plan, geometry);
            cache.learn(&self.spot(index), slot, saves, self.visitor);
        }
    }
}
