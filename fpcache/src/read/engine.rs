//! One key's lookup, step by step: what has come decides what is asked for next.
//!
//! Every plan, every kind of key and record and every fabric goes this way. The steps know nothing
//! of round trips or of other keys: whoever drives them lets a round trip pass between
//! [`begin`](Engine::begin) and [`take`](Engine::take), and between one take and the next, for one
//! key or for many at a time, over memory looked at in place or over doorbell batches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::external::Extents;
use super::outcome::Outcome;
use super::planner::Rule;
use super::records::Records;
use super::slot_window::SlotWindow;
use super::source::{Asked, Source};
use super::verify::{Check, Rules, check, match_window, shown_word, shows};
use super::{Plan, ReadError, Wanted};
use crate::cache::{CacheHandle, CachedSlot};
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, SegmentGeometry, Stored, ValueExtent};
use crate::matching::{Fingerprints, Kernels};
use crate::models::{Page, PagedModels};
use crate::table::Table;
use crate::table_view::TableView;

/// Most bytes of external values that keys of a group ask for at a time; a longer value comes alone.
const VALUE_BYTES: u64 = 64 << 20;

/// A key's lookup under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) target: SlotWindow,
    hash: u64,
    pub(super) stage: Stage,
    asked: Asked,
}

/// What has been asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Nothing: the lookup has ended.
    Done,
    /// The page of the directory that says where the key is, by its place in the list.
    Page(u32),
    /// The slot that the hot cache names.
    Cached(CachedSlot),
    /// The predicted slot, and the window's fingerprints.
    Predicted(Asked),
    /// The window's fingerprints.
    Fingerprints,
    /// The slot whose fingerprint matches.
    Slot(u32),
    /// The slots whose fingerprints match: from this place in the list on, so many.
    Slots(u32, u32),
    /// All slots of the window.
    Window,
    /// The value of the record, which is external, by its place in the list.
    Value(u32),
}

impl Probe {
    /// Of a key that is not there.
    pub(super) const DONE: Self = {
        let asked = Asked::NOTHING;
        Self { target: SlotWindow::UNKNOWN, hash: 0, stage: Stage::Done, asked }
    };

    #[inline(always)]
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

/// Lists that few lookups need, kept so that these allocate nothing either.
#[derive(Debug)]
pub(super) struct Lists<K: KeySpace> {
    /// Slots whose fingerprints match.
    slots: Vec<u32>,
    candidates: Vec<(u32, Asked)>,
    values: Vec<Awaited>,
    pages: Vec<AwaitedPage<K>>,
    /// Places of these, by number.
    page_places: HashMap<u32, u32>,
    /// Words that were copied from where others may change them.
    pub(super) copy: Vec<u64>,
}

/// An external value.
#[derive(Debug)]
struct Awaited {
    version: u32,
    extent: ValueExtent,
    /// `None` while values before it are long enough together.
    asked: Option<Asked>,
}

/// A page of the directory.
#[derive(Debug)]
struct AwaitedPage<K: KeySpace> {
    number: u32,
    asked: Asked,
    page: Option<Arc<Page<K>>>,
}

impl<K: KeySpace> Default for Lists<K> {
    fn default() -> Self {
        // Room for what few lookups need, so that the first of these allocates no more than the others.
        let (slots, candidates) = (Vec::with_capacity(64), Vec::with_capacity(64));
        let values = Vec::new();
        let (pages, page_places) = (Vec::new(), HashMap::new());
        Self { slots, candidates, values, pages, page_places, copy: Vec::new() }
    }
}

impl<K: KeySpace> Lists<K> {
    /// Forgets what earlier lookups left.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.candidates.clear();
        self.values.clear();
        if !self.pages.is_empty() {
            self.pages.clear();
            self.page_places.clear();
        }
    }

    /// Whether lookups waited for external values, which may be long.
    pub(super) fn had_values(&self) -> bool {
        !self.values.is_empty()
    }
}

/// What lookups took from bytes that prove nothing by themselves, since the reuse sequence was last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// That a key is not where it could have been.
    pub(super) absent: bool,
    /// That a record is being written, so that it is worth while to read it again.
    pub(super) torn: bool,
}

/// What lookups of one table share.
pub(super) struct Engine<'a, K: KeySpace, S, M> {
    pub(super) table: &'a Table<K>,
    pub(super) rule: Rule,
    pub(super) wanted: Wanted,
    pub(super) kernels: M,
    pub(super) source: S,
    pub(super) handle: &'a mut CacheHandle,
    pub(super) lists: &'a mut Lists<K>,
    pub(super) records: &'a mut Records,
    pub(super) doubt: Doubt,
    /// Bytes of values asked for since the last round trip.
    pub(super) value_bytes: u64,
}

/// Asking.
impl<'a, K: KeySpace, S: Source, M: Kernels> Engine<'a, K, S, M> {
    #[inline(always)]
    fn view(&self) -> &'a TableView<K> {
        self.table.view()
    }

    #[inline(always)]
    fn geometry(&self) -> &'a SegmentGeometry {
        self.table.view().geometry()
    }

    /// Asks for what a key's plan reads first.
    #[inline(always)]
    pub(super) fn begin(&mut self, key: &K::Key, outcome: &mut Outcome) -> Probe {
        match SlotWindow::of(self.view(), key) {
            Some(target) => self.begin_at(target, key, outcome),
            None => self.ask_for_page(key, outcome),
        }
    }

    #[inline(always)]
    fn begin_at(&mut self, target: SlotWindow, key: &K::Key, outcome: &mut Outcome) -> Probe {
        let mut probe = Probe { target, hash: K::hash(key), stage: Stage::Done, asked: Asked::NOTHING };
        let slots = target.window.len();
        if let Some(cache) = self.table.cache()
            && self.rule.asks(slots)
            && let Some(cached) = cache.probe(&self.cache_probe(&probe, key))
        {
            outcome.plan = Plan::Cached;
            probe.asked = self.ask_slots(&probe.target, (cached.slot, 1), outcome);
            probe.stage = Stage::Cached(cached);
        } else {
            self.ask(self.rule.choose(slots), &mut probe, outcome);
        }
        probe
    }

    /// Asks for what `plan` reads first.
    #[inline(always)]
    fn ask(&mut self, plan: Plan, probe: &mut Probe, outcome: &mut Outcome) {
        outcome.plan = plan;
        match plan {
            Plan::TwoStage | Plan::Cached | Plan::ServerSide => {
                probe.asked = self.ask_fingerprints(&probe.target, outcome);
                probe.stage = Stage::Fingerprints;
            }
            Plan::Range => self.ask_window(probe, outcome),
            Plan::Speculative => {
                probe.asked = self.ask_slots(&probe.target, (probe.target.predicted, 1), outcome);
                probe.stage = Stage::Predicted(self.ask_fingerprints(&probe.target, outcome));
            }
        }
    }

    #[inline(always)]
    fn ask_window(&mut self, probe: &mut Probe, outcome: &mut Outcome) {
        let window = probe.target.window;
        probe.asked = self.ask_slots(&probe.target, (window.first, window.len()), outcome);
        probe.stage = Stage::Window;
    }

    #[inline(always)]
    fn ask_fingerprints(&mut self, target: &SlotWindow, outcome: &mut Outcome) -> Asked {
        let span = self.geometry().fingerprint_span(target.window);
        outcome.cost.reads += 1;
        outcome.cost.bytes += span.len as u64;
        self.source.ask(target.segment + span.offset as u64, span.len)
    }

    #[inline(always)]
    fn ask_slots(&mut self, target: &SlotWindow, (first, count): (u32, u32), outcome: &mut Outcome) -> Asked {
        let (geometry, slot_bytes) = (self.geometry(), self.geometry().slot_bytes);
        let (offset, bytes) = (geometry.slot_offset(target.cap, first), count as usize * slot_bytes);
        outcome.cost.reads += 1;
        outcome.cost.bytes += bytes as u64;
        self.source.ask_slots(target.segment + offset as u64, bytes, slot_bytes)
    }

    /// Goes on with a range read of the window: what was read could not be told.
    #[cold]
    fn fall_back(&mut self, probe: &mut Probe, outcome: &mut Outcome) {
        self.doubt.torn = true;
        outcome.cost.fallbacks += 1;
        outcome.cost.round_trips += 1;
        outcome.plan = Plan::Range;
        self.ask_window(probe, outcome);
    }
}

/// Taking.
impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    /// Takes what has come for a key, and asks for what it needs next, if that is anything.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        match probe.stage {
            Stage::Done => Ok(()),
            Stage::Fingerprints => self.take_fingerprints(probe, outcome),
            Stage::Slot(slot) => self.take_slot(slot, key, probe, outcome),
            Stage::Cached(cached) => self.take_cached(cached, key, probe, outcome),
            Stage::Window => self.take_window(key, probe, outcome),
            Stage::Predicted(fingerprints) => self.take_predicted(fingerprints, key, probe, outcome),
            Stage::Slots(first, count) => self.take_slots((first, count), key, probe, outcome),
            Stage::Value(place) => self.take_value(place, probe, outcome),
            Stage::Page(place) => self.take_page(place, key, probe, outcome),
        }
    }

    /// Asks for the slots whose fingerprint matches; without one the key is absent.
    #[inline(always)]
    fn take_fingerprints(&mut self, probe: &mut Probe, outcome: &mut Outcome) -> Result<(), ReadError> {
        let (geometry, target) = (self.geometry(), &probe.target);
        let span = geometry.fingerprint_span(target.window);
        let words = self.source.words(&probe.asked)?;
        let hits = match_window((words, span), geometry, probe.hash, self.kernels, &mut self.lists.copy);
        if hits.frozen {
            return Err(ReadError::Stale);
        }
        if hits.count == 1 {
            let slot = target.window.first + hits.first;
            outcome.cost.round_trips += 1;
            probe.asked = self.ask_slots(&probe.target, (slot, 1), outcome);
            probe.stage = Stage::Slot(slot);
            return Ok(());
        }
        probe.stage = Stage::Done;
        match hits.count {
            0 => self.doubt.absent = true,
            count => self.ask_several(count, probe, outcome)?,
        }
        Ok(())
    }

    /// Asks for the slots of several matching fingerprints, or for the window if they are more than half of it.
    #[cold]
    fn ask_several(&mut self, count: u32, probe: &mut Probe, outcome: &mut Outcome) -> Result<(), ReadError> {
        let (geometry, target) = (self.geometry(), probe.target);
        if count * 2 > target.window.len() {
            self.fall_back(probe, outcome);
            return Ok(());
        }
        let span = geometry.fingerprint_span(target.window);
        let words = self.source.words(&probe.asked)?;
        let window = Fingerprints { words, skip: span.skip, used: span.used, width: geometry.width };
        let Lists { slots, copy, .. } = &mut *self.lists;
        slots.clear();
        let wanted = geometry.width.of_hash(probe.hash);
        if self.kernels.find_in(window, wanted, target.window.first, slots, copy) {
            return Err(ReadError::Stale);
        }
        // Looked at in place they may be others by now, or none: one moment or the other will do.
        let (first, count) = (self.lists.candidates.len() as u32, self.lists.slots.len() as u32);
        for at in 0..self.lists.slots.len() {
            let slot = self.lists.slots[at];
            let asked = self.ask_slots(&target, (slot, 1), outcome);
            self.lists.candidates.push((slot, asked));
        }
        outcome.cost.round_trips += 1;
        probe.stage = Stage::Slots(first, count);
        Ok(())
    }

    /// Takes the slot whose fingerprint matched.
    #[inline(always)]
    fn take_slot(
        &mut self,
        slot: u32,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let asked = probe.asked;
        probe.stage = Stage::Done;
        match self.check(&asked, 0, key, probe)? {
            Slot::Found(found) => {
                self.found(found, probe, outcome);
                self.learn(slot, key, probe, outcome);
            }
            Slot::Other => {
                self.doubt.absent = true;
                outcome.cost.false_candidates += 1;
            }
            Slot::Nothing => self.doubt.absent = true,
            Slot::Torn => self.fall_back(probe, outcome),
        }
        Ok(())
    }

    /// Takes the slots whose fingerprints matched. One that could not be told may be the key.
    #[cold]
    fn take_slots(
        &mut self,
        (first, count): (u32, u32),
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        probe.stage = Stage::Done;
        let (mut is_found, mut is_torn) = (false, false);
        for at in first..first + count {
            let (slot, asked) = self.lists.candidates[at as usize];
            match self.check(&asked, 0, key, probe)? {
                Slot::Found(found) => {
                    is_found = true;
                    self.found(found, probe, outcome);
                    self.learn(slot, key, probe, outcome);
                }
                Slot::Other => outcome.cost.false_candidates += 1,
                Slot::Nothing => {}
                Slot::Torn => is_torn = true,
            }
        }
        match is_torn {
            _ if is_found => {}
            true => self.fall_back(probe, outcome),
            false => self.doubt.absent = true,
        }
        Ok(())
    }

    /// Takes the slot that the hot cache named; if it is not the key's, the entry goes.
    #[inline(always)]
    fn take_cached(
        &mut self,
        cached: CachedSlot,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let asked = probe.asked;
        probe.stage = Stage::Done;
        match self.check(&asked, 0, key, probe)? {
            Slot::Found(found) => {
                self.found(found, probe, outcome);
                if let Some(cache) = self.table.cache() {
                    cache.confirm(&self.cache_probe(probe, key), cached, self.handle);
                }
            }
            Slot::Torn => self.fall_back(probe, outcome),
            Slot::Other | Slot::Nothing => self.take_conflict(cached, key, probe, outcome),
        }
        Ok(())
    }

    #[cold]
    fn take_conflict(&mut self, cached: CachedSlot, key: &K::Key, probe: &mut Probe, outcome: &mut Outcome) {
        if let Some(cache) = self.table.cache() {
            cache.forget(&self.cache_probe(probe, key), cached, self.handle);
        }
        outcome.cost.conflicts += 1;
        outcome.cost.round_trips += 1;
        let plan = self.table.planner().after_conflict(&self.rule, probe.target.window.len());
        self.ask(plan, probe, outcome);
    }

    /// Takes a predicted slot; if it is not the key's, its fingerprints have come as well.
    #[inline(always)]
    fn take_predicted(
        &mut self,
        fingerprints: Asked,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let asked = probe.asked;
        if let Slot::Found(found) = self.check(&asked, 0, key, probe)? {
            probe.stage = Stage::Done;
            self.found(found, probe, outcome);
            self.learn(probe.target.predicted, key, probe, outcome);
            return Ok(());
        }
        // What is in the slot if it is not the key, or not yet, is for the fingerprints to say.
        probe.asked = fingerprints;
        self.take_fingerprints(probe, outcome)
    }

    /// Looks for the key in its window's slots.
    #[inline(always)]
    fn take_window(
        &mut self,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let (view, asked) = (self.view(), probe.asked);
        let Some(word) = shown_word(key, view) else { return self.take_each(key, probe, outcome) };
        let words = self.source.words(&asked)?;
        let hits = self.kernels.key_hits_in(words, view.stride(), word, &mut self.lists.copy);
        if hits.frozen {
            return Err(ReadError::Stale);
        }
        probe.stage = Stage::Done;
        match hits.count {
            0 => self.doubt.absent = true,
            1 => match self.check(&asked, hits.word as usize * 8, key, probe)? {
                Slot::Found(found) => {
                    let slot = hits.word as usize * 8 / self.geometry().slot_bytes;
                    self.found(found, probe, outcome);
                    self.learn(probe.target.window.first + slot as u32, key, probe, outcome);
                }
                Slot::Torn => self.fall_back(probe, outcome),
                // The remains of a deleted record, which were the only ones to be looked at: others may be frozen.
                Slot::Other | Slot::Nothing => return self.take_each(key, probe, outcome),
            },
            // The remains of deleted records, perhaps beside a live one.
            _ => return self.take_each(key, probe, outcome),
        }
        Ok(())
    }

    /// The same, slot by slot.
    #[cold]
    fn take_each(&mut self, key: &K::Key, probe: &mut Probe, outcome: &mut Outcome) -> Result<(), ReadError> {
        let (window, slot_bytes) = (probe.target.window, self.geometry().slot_bytes);
        let (asked, rules) = (probe.asked, Rules::of(self.view()));
        probe.stage = Stage::Done;
        let mut is_torn = false;
        for at in 0..window.len() {
            let room = self.records.room(slot_bytes / 8);
            self.source.slot(&asked, at as usize * slot_bytes, room)?;
            if !shows::<K>(room.as_bytes(), key, rules.shape) {
                continue;
            }
            match self.check(&asked, at as usize * slot_bytes, key, probe)? {
                Slot::Found(found) => {
                    self.found(found, probe, outcome);
                    self.learn(window.first + at, key, probe, outcome);
                    return Ok(());
                }
                Slot::Torn => is_torn = true,
                Slot::Other | Slot::Nothing => {}
            }
        }
        match is_torn {
            true => self.fall_back(probe, outcome),
            false => self.doubt.absent = true,
        }
        Ok(())
    }

    /// Copies a slot that was asked for, or that lies `at` bytes after the beginning of it, and says what it is.
    #[inline(always)]
    fn check(&mut self, asked: &Asked, at: usize, key: &K::Key, probe: &Probe) -> Result<Slot, ReadError> {
        let words = self.geometry().slot_bytes / 8;
        let room = self.records.room(words);
        self.source.slot(asked, at, room)?;
        let start = room.as_ptr() as usize;
        let slot = match check::<K>(room, probe.target.generation, key, Rules::of(self.table.view()))? {
            Check::Other => Slot::Other,
            Check::Nothing => Slot::Nothing,
            Check::Torn => Slot::Torn,
            Check::Found { version, value: Stored::Here(value) } => {
                let from = value.as_ptr() as usize - start;
                let value = from..from + value.len();
                Slot::Found(Found { version, value: Value::Here(value) })
            }
            Check::Found { version, value: Stored::External(extent) } => {
                Slot::Found(Found { version, value: Value::External(extent) })
            }
        };
        Ok(slot)
    }

    /// Keeps an answer, or asks for the value that it lacks.
    #[inline(always)]
    fn found(&mut self, found: Found, probe: &mut Probe, outcome: &mut Outcome) {
        outcome.version = Some(found.version);
        match found.value {
            Value::Here(value) => {
                probe.stage = Stage::Done;
                outcome.value = self.records.keep(self.geometry().slot_bytes / 8, value);
            }
            Value::External(extent) => self.ask_value(found.version, extent, probe, outcome),
        }
    }

    /// Tells the hot cache where a key was found that it did not know.
    #[inline(always)]
    fn learn(&mut self, slot: u32, key: &K::Key, probe: &Probe, outcome: &Outcome) {
        if let Some(cache) = self.table.cache()
            && self.rule.keeps(probe.target.window.len())
        {
            let saves = probe.target.bytes_by(outcome.plan, self.geometry());
            cache.learn(&self.cache_probe(probe, key), slot, saves, self.handle);
        }
    }

    /// What the hot cache knows the key by.
    #[inline(always)]
    fn cache_probe(&self, probe: &Probe, key: &K::Key) -> crate::cache::CacheProbe {
        probe.target.cache_probe::<K>((key, probe.hash), self.geometry())
    }
}

/// What a slot is to a key.
enum Slot {
    Found(Found),
    Other,
    Nothing,
    Torn,
}

/// A record that was found.
struct Found {
    version: u32,
    value: Value,
}

enum Value {
    /// Bytes of the slot that was copied last.
    Here(Range<usize>),
    External(ValueExtent),
}

/// External values, and pages of the directory.
impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    /// Asks for the value of a key whose slot was found.
    #[cold]
    fn ask_value(&mut self, version: u32, extent: ValueExtent, probe: &mut Probe, outcome: &mut Outcome) {
        if self.wanted == Wanted::Presence {
            return;
        }
        let Some((from, bytes)) = Extents::of(self.view()).place(extent) else {
            return self.read_again_for_value(probe, outcome);
        };
        outcome.cost.round_trips += 1;
        let is_put_off = self.value_bytes > 0 && self.value_bytes + bytes as u64 > VALUE_BYTES;
        let asked = (!is_put_off).then(|| {
            self.value_bytes += bytes as u64;
            outcome.cost.reads += 1;
            outcome.cost.bytes += bytes as u64;
            self.source.ask(from.offset, bytes)
        });
        probe.stage = Stage::Value(self.lists.values.len() as u32);
        self.lists.values.push(Awaited { version, extent, asked });
    }

    /// Takes a value that has come, or asks for one that was put off.
    #[cold]
    fn take_value(&mut self, place: u32, probe: &mut Probe, outcome: &mut Outcome) -> Result<(), ReadError> {
        let Awaited { version, extent, asked } = &self.lists.values[place as usize];
        let (version, extent) = (*version, *extent);
        probe.stage = Stage::Done;
        let Some(asked) = asked else {
            self.ask_value(version, extent, probe, outcome);
            return Ok(());
        };
        let words = self.source.words(asked)?;
        let count = words.len();
        let room = self.records.room(count);
        room.iter_mut().zip(words).for_each(|(word, read)| *word = read);
        let length = extent.bytes as usize;
        match Extents::of(self.table.view()).proves(extent, room.as_bytes()) {
            true => {
                // Another of the key's slots may have been found since the one that named this value.
                outcome.version = Some(version);
                outcome.value = self.records.keep(count, 0..length);
            }
            false => self.read_again_for_value(probe, outcome),
        }
        Ok(())
    }

    /// Reads the slots again of a key whose value was not where its slot said.
    fn read_again_for_value(&mut self, probe: &mut Probe, outcome: &mut Outcome) {
        outcome.version = None;
        self.fall_back(probe, outcome);
    }

    fn paged(&self) -> Option<&PagedModels<K>> {
        self.table.view().models().paged()
    }

    /// Asks for the page of the directory that says where a key is, if no other key has.
    #[cold]
    fn ask_for_page(&mut self, key: &K::Key, outcome: &mut Outcome) -> Probe {
        let Some(models) = self.table.view().models().paged() else { return Probe::DONE };
        let number = models.page_of(key);
        // The page's trip comes before the one every lookup is charged with.
        outcome.cost.round_trips += 1;
        let Lists { pages, page_places, .. } = &mut *self.lists;
        let place = *page_places.entry(number).or_insert_with(|| {
            outcome.cost.reads += 1;
            outcome.cost.bytes += K::PAGE_BYTES as u64;
            let asked = self.source.ask(models.address(number), K::PAGE_BYTES);
            pages.push(AwaitedPage { number, asked, page: None });
            (pages.len() - 1) as u32
        });
        Probe { stage: Stage::Page(place), ..Probe::DONE }
    }

    /// Takes a page of the directory, and begins.
    #[cold]
    fn take_page(
        &mut self,
        place: u32,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let page = self.page(place as usize)?;
        let target = SlotWindow::in_page(&page, key, self.view().encoders());
        *probe = self.begin_at(target, key, outcome);
        Ok(())
    }

    fn page(&mut self, place: usize) -> Result<Arc<Page<K>>, ReadError> {
        let AwaitedPage { number, asked, page } = &self.lists.pages[place];
        let (number, asked) = (*number, *asked);
        if let Some(page) = page {
            return Ok(Arc::clone(page));
        }
        self.source.words(&asked)?.copy_to(&mut self.lists.copy);
        let bytes = self.lists.copy.as_bytes();
        let models = self.paged().ok_or_else(|| Corrupt::new("directory page", 0, "none is expected"))?;
        let kept = models.keep(number, &bytes[..K::PAGE_BYTES.min(bytes.len())])?;
        self.lists.pages[place].page = Some(Arc::clone(&kept));
        Ok(kept)
    }
}
