//! The lookup of one key, step by step: the bytes that have come decide what is asked for next.
//!
//! Every plan, every kind of key and record and every fabric goes this way. The steps know nothing
//! of round trips or of other keys: their driver lets a round trip pass between
//! [`begin`](Engine::begin) and [`take`](Engine::take), and between one take and the next, for one
//! key or for many at a time, over memory looked at in place or over doorbell batches.

mod groups;
mod in_place;
mod pages;
mod slots;
mod values;

use fpcache_fabric::{FabricError, Landing, Words};

pub(super) use in_place::Mapped;

use super::lookup::LineFirst;
use super::outcome::Outcome;
use super::records::Records;
use super::segment_search::PendingPages;
use super::slot_window::SlotWindow;
use super::{ReadError, Wanted};
use crate::cache::{CacheHandle, CachedSlot};
use crate::group_tables::SegmentName;
use crate::key_space::KeySpace;
use crate::layout::{SegmentGeometry, ValueExtent};
use crate::matching::{Fingerprints, Kernels};
use crate::plan::Plan;
use crate::plan::Rule;
use crate::table::Table;
use crate::table_view::TableView;

/// Bytes of the region that were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requested {
    pub(super) offset: u64,
    pub(super) bytes: usize,
    /// Where they land, if they are fetched.
    pub(super) landing: Landing,
}

impl Requested {
    /// Nothing was.
    pub(super) const NOTHING: Self = Self { offset: 0, bytes: 0, landing: Landing::NOTHING };
}

/// A source of bytes: those asked for in one round trip can be looked at after it.
pub(super) trait Source {
    /// Asks for `bytes` bytes at `offset` of the region.
    fn ask(&mut self, offset: u64, bytes: usize) -> Requested;

    /// Asks for slots, each guarded by its word.
    fn ask_slots(&mut self, offset: u64, bytes: usize, slot_bytes: usize) -> Requested;

    /// The words that were asked for: of many moments where they are looked at in place.
    fn words(&mut self, asked: &Requested) -> Result<Words<'_>, FabricError>;

    /// Copies the slot that lies `at` bytes after the beginning of what was asked for: whole, or
    /// with a busy word where that can be told.
    fn slot(&mut self, asked: &Requested, at: usize, out: &mut [u64]) -> Result<(), FabricError>;
}

/// A key's lookup under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) target: SlotWindow,
    hash: u64,
    pub(super) stage: Stage,
    asked: Requested,
}

/// The bytes that have been asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Nothing yet.
    New,
    /// Nothing: there is the answer.
    Done,
    /// Nothing: the lookup has ended without an answer.
    Failed,
    /// The page of the directory that says where the key is, by its number.
    Page(u32),
    /// The slot that the hot cache names.
    Cached(CachedSlot),
    /// The predicted slot, and the window's fingerprints.
    Predicted(Requested),
    /// The window's fingerprints.
    Fingerprints,
    /// The slot whose fingerprint matches.
    Slot(u32),
    /// The slots whose fingerprints match: their first place in the list, and how many.
    Slots(u32, u32),
    /// All slots of the window.
    Window,
    /// The slots of the key's group: the first, and how many.
    Group(u32, u32),
    /// The value of the record, which is external, by its place in the list.
    Value(u32),
}

impl Probe {
    /// Of a key that is not there.
    pub(super) const DONE: Self = Self::at(Stage::Done);
    /// Of a key for which nothing was asked yet.
    pub(super) const NEW: Self = Self::at(Stage::New);
    /// Of a key that cannot be looked up by what is known of the table.
    pub(super) const FAILED: Self = Self::at(Stage::Failed);

    const fn at(stage: Stage) -> Self {
        Self { target: SlotWindow::UNKNOWN, hash: 0, stage, asked: Requested::NOTHING }
    }

    /// Whether nothing was asked yet.
    #[inline(always)]
    pub(super) fn is_new(&self) -> bool {
        matches!(self.stage, Stage::New)
    }

    /// Whether the lookup has ended.
    #[inline(always)]
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Failed)
    }

    /// Whether it has ended with an answer.
    #[inline(always)]
    pub(super) fn has_answer(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

/// Lists that few lookups need, kept so that these allocate nothing either.
#[derive(Debug)]
pub(super) struct Lists<K: KeySpace> {
    /// Slots whose fingerprints match.
    slots: Vec<u32>,
    candidates: Vec<(u32, Requested)>,
    values: Vec<AwaitedValue>,
    /// Pages of the directory.
    pending_pages: PendingPages<K, Requested>,
    /// Tables of groups, which come with what else was asked for.
    tables: Vec<AwaitedTable>,
    /// Words that were copied from where others may change them.
    pub(super) copy: Vec<u64>,
    /// Whether a line of fingerprints is looked at before its window.
    pub(super) line_first: LineFirst,
}

impl<K: KeySpace> Lists<K> {
    /// Lists with room for the copy of a window of usual length, so that none grows when a longer
    /// one than before is met.
    pub(super) fn new() -> Self {
        const WINDOW_WORDS: usize = 512;
        Self { copy: Vec::with_capacity(WINDOW_WORDS), ..Self::default() }
    }

    /// Bytes of memory that they keep, but for what lookups of a few keys need.
    pub(super) fn kept_bytes(&self) -> usize {
        self.copy.capacity() * 8
            + self.slots.capacity() * size_of::<u32>()
            + self.candidates.capacity() * size_of::<(u32, Requested)>()
            + self.values.capacity() * size_of::<AwaitedValue>()
    }
}

/// An external value.
#[derive(Debug)]
struct AwaitedValue {
    version: u32,
    extent: ValueExtent,
    /// `None` while values before it are long enough together.
    asked: Option<Requested>,
}

/// A table of groups that has been asked for.
#[derive(Clone, Copy, Debug)]
struct AwaitedTable {
    segment: SegmentName,
    asked: Requested,
}

impl<K: KeySpace> Default for Lists<K> {
    fn default() -> Self {
        // Room for what few lookups need, so that the first of these allocates no more than the
        // others.
        let (slots, candidates) = (Vec::with_capacity(64), Vec::with_capacity(64));
        let (values, tables, copy) = (Vec::new(), Vec::new(), Vec::new());
        let line_first = LineFirst::default();
        Self { slots, candidates, values, pending_pages: PendingPages::default(), tables, copy, line_first }
    }
}

impl<K: KeySpace> Lists<K> {
    /// Forgets what earlier lookups left.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.candidates.clear();
        self.values.clear();
        self.tables.clear();
        self.pending_pages.clear();
    }

    /// Lets go of the pages of the directory that were asked for.
    pub(super) fn give_pages_back(&mut self) {
        self.pending_pages = PendingPages::default();
    }
}

/// Conclusions of lookups from bytes that prove nothing by themselves, since the reuse sequence was
/// last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unconfirmed {
    /// That a key is not where it could have been.
    pub(super) absent: bool,
    /// That a record is being written, so that it is worth while to read it again.
    pub(super) torn: bool,
}

/// The state that lookups of one table share.
pub(super) struct Engine<'a, K: KeySpace, S, M> {
    pub(super) table: &'a Table<K>,
    pub(super) rule: Rule,
    pub(super) wanted: Wanted,
    pub(super) kernels: M,
    pub(super) source: S,
    pub(super) handle: &'a mut CacheHandle,
    pub(super) lists: &'a mut Lists<K>,
    pub(super) records: &'a mut Records,
    pub(super) unconfirmed: Unconfirmed,
    /// Bytes of values asked for since the last round trip.
    pub(super) value_bytes: u64,
}

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
        let mut probe = Probe { target, hash: K::hash(key), stage: Stage::Done, asked: Requested::NOTHING };
        let slots = target.window.len();
        if let Some(cache) = self.table.cache()
            && self.rule.asks(slots)
            && let Some(cached) = cache.probe(&self.cache_probe(&probe, key))
        {
            outcome.plan = Plan::Cached;
            probe.asked = self.ask_slots(&probe.target, (cached.slot, 1), outcome);
            probe.stage = Stage::Cached(cached);
        } else if !(self.rule.by_groups(slots) && self.ask_group(&mut probe, outcome)) {
            self.ask(self.rule.choose(slots), &mut probe, outcome);
        }
        probe
    }

    /// Asks for what `plan` reads first.
    #[inline(always)]
    fn ask(&mut self, plan: Plan, probe: &mut Probe, outcome: &mut Outcome) {
        // The rule of a table without fingerprints names no other plan; none at all would look like
        // an absent key.
        let plan = if self.geometry().stores_fingerprints { plan } else { Plan::Range };
        outcome.plan = plan;
        match plan {
            Plan::TwoStage | Plan::Cached | Plan::Groups | Plan::AtNode | Plan::ServerSide => {
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
    fn ask_fingerprints(&mut self, target: &SlotWindow, outcome: &mut Outcome) -> Requested {
        let span = self.geometry().fingerprint_span(target.window);
        outcome.cost.reads += 1;
        outcome.cost.bytes += span.len as u64;
        self.source.ask(target.segment + span.offset as u64, span.len)
    }

    #[inline(always)]
    fn ask_slots(
        &mut self,
        target: &SlotWindow,
        (first, count): (u32, u32),
        outcome: &mut Outcome,
    ) -> Requested {
        let (geometry, slot_bytes) = (self.geometry(), self.geometry().slot_bytes);
        let (offset, bytes) = (geometry.slot_offset(target.cap, first), count as usize * slot_bytes);
        outcome.cost.reads += 1;
        outcome.cost.bytes += bytes as u64;
        self.source.ask_slots(target.segment + offset as u64, bytes, slot_bytes)
    }

    /// Takes what has come for a key, and asks for what it needs next, if that is anything.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        match probe.stage {
            Stage::New | Stage::Done | Stage::Failed => Ok(()),
            Stage::Fingerprints => self.take_fingerprints(probe, outcome),
            Stage::Slot(slot) => self.take_slot(slot, key, probe, outcome),
            Stage::Cached(cached) => self.take_cached(cached, key, probe, outcome),
            Stage::Window => self.take_window(key, probe, outcome),
            Stage::Group(first, count) => self.take_group((first, count), key, probe, outcome),
            Stage::Predicted(fingerprints) => self.take_predicted(fingerprints, key, probe, outcome),
            Stage::Slots(first, count) => self.take_slots((first, count), key, probe, outcome),
            Stage::Value(place) => self.take_value(place, probe, outcome),
            Stage::Page(number) => self.take_page(number, key, probe, outcome),
        }
    }

    /// Asks for the slots whose fingerprint matches; without one the key is absent.
    #[inline(always)]
    fn take_fingerprints(&mut self, probe: &mut Probe, outcome: &mut Outcome) -> Result<(), ReadError> {
        let (geometry, target) = (self.geometry(), &probe.target);
        let span = geometry.fingerprint_span(target.window);
        let words = self.source.words(&probe.asked)?;
        let window = Fingerprints { words, skip: span.skip, used: span.used, width: geometry.width };
        let wanted = geometry.width.of_hash(probe.hash);
        let hits = self.kernels.hits_in(window, wanted, &mut self.lists.copy);
        if hits.frozen() {
            return Err(ReadError::Stale);
        }
        if hits.count() == 1 {
            let slot = target.window.first + hits.first();
            outcome.cost.round_trips += 1;
            probe.asked = self.ask_slots(&probe.target, (slot, 1), outcome);
            probe.stage = Stage::Slot(slot);
            return Ok(());
        }
        probe.stage = Stage::Done;
        match hits.count() {
            0 => self.unconfirmed.absent = true,
            count => self.ask_several(count, probe, outcome)?,
        }
        Ok(())
    }

    /// Goes on with a range read of the window: what was read could not be told.
    #[cold]
    fn fall_back(&mut self, probe: &mut Probe, outcome: &mut Outcome) {
        self.unconfirmed.torn = true;
        outcome.cost.fallbacks += 1;
        outcome.cost.round_trips += 1;
        outcome.plan = Plan::Range;
        self.ask_window(probe, outcome);
    }
}
