//! The search for the record nearest to one key.
//!
//! # What is read
//!
//! Slots from the near end of the key's window outwards: the window, and a few beyond it. The record that is found counts once
//! everything is read from there to the far end of *its* window, because what lies between it and the key can lie there; if
//! that is not yet so, or nothing was found, more is read, over as many segments as it takes.
//!
//! # Why it is the answer
//!
//! A READ of many slots is of many moments: a key may come into a slot that was passed already while another goes from a slot
//! that is yet to be read, and the record found in the end was the nearest at no time. So slots are *collected*, words and
//! records, and the collection must be of one instant:
//!
//! - Words of version 0 and 1 are what a segment was written with. Such a slot was never changed, so that it held the same when the
//!   operation began. If all that matter are so, that is the instant; one collection will do.
//! - Else they are collected again. A word that is the same twice did not change between (every store to a word is of a version
//!   of its own); if all that matter are the same, they held it at the instant between the two.
//! - Else the second collection is the first of another pair.
//!
//! Words that matter are those from the key to the far end of the window of the record found.

use std::borrow::Borrow;

use fpcache_fabric::{Batch, Landing};

use super::Side;
use super::place::{Coming, Found, Pages, Place};
use crate::key_space::KeySpace;
use crate::layout::{SLOT_WORD_BYTES, SlotState, SlotWord, Stored, ValueExtent};
use crate::read::external::{Extents, GROUP_BYTES};
use crate::read::scan::ROUND_BYTES;
use crate::read::verify::{Rules, SlotRead, classify};
use crate::read::{Cost, MAX_ATTEMPTS, ReadError};
use crate::table_view::TableView;
use zerocopy::IntoBytes;

/// Slots that are read beyond a window at first. Most keys' neighbours have a window that does not reach further.
const BEYOND: u32 = 8;
/// The fewest slots that are read where nothing was found.
const FURTHER: u32 = 64;
/// What a search keeps room for until the next one.
const KEPT_WORDS: usize = 1 << 10;
const KEPT_STRETCHES: usize = 16;
/// The greatest version of a slot that was never written to since its segment was made of loaded records.
const LOADED: u32 = 1;

/// Slots of one segment: `first..end`.
#[derive(Debug)]
struct Stretch<K: KeySpace> {
    place: Place<K>,
    first: u32,
    end: u32,
    /// Where its words begin among all words of a collection.
    words: usize,
    landing: Option<Landing>,
}

impl<K: KeySpace> Stretch<K> {
    fn is_of(&self, place: &Place<K>) -> bool {
        self.place.segment.address() == place.segment.address()
    }
}

/// What a search does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It asks for the segment that holds the key.
    Begin,
    /// It asks for slots further out.
    Extend,
    /// It asks for stretches from this one on.
    Collect(usize),
    /// It asks for the value of the record that was found, of this version.
    Fetch(u32, ValueExtent),
    Nothing,
}

/// What has been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// A page of the directory alone.
    Page,
    /// Stretches, and perhaps a page.
    Stretches(usize, usize),
    Value(u32, ValueExtent, Landing),
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nothing,
    /// A record of this version.
    Record(u32, Value),
}

/// Where the value of a record that was found lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// In the slot, which is kept.
    InSlot,
    /// So many bytes of what landed.
    Landed(Landing, usize),
}

/// A search under way, in buffers that are kept.
#[derive(Debug)]
pub(super) struct Seek<K: KeySpace> {
    pages: Pages<K>,
    /// From the key outwards.
    stretches: Vec<Stretch<K>>,
    next: Next,
    awaited: Option<Awaited>,
    /// Words of this collection and of the last one that was whole.
    words: Vec<u64>,
    before: Vec<u64>,
    /// The nearest record of this collection: its stretch and its slot's bytes.
    nearest: Option<usize>,
    slot: Vec<u64>,
    /// Whether one of the words of this collection is that of a slot that cannot be told.
    has_busy: bool,
    /// Whether the table ends after the last stretch.
    is_at_end: bool,
    attempts: u32,
    pub(super) cost: Cost,
}

impl<K: KeySpace> Default for Seek<K> {
    fn default() -> Self {
        Self {
            pages: Pages::default(),
            stretches: Vec::new(),
            next: Next::Begin,
            awaited: None,
            words: Vec::new(),
            before: Vec::new(),
            nearest: None,
            slot: Vec::new(),
            has_busy: false,
            is_at_end: false,
            attempts: 0,
            cost: Cost::default(),
        }
    }
}

/// What searches of one call have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<'a, K: KeySpace> {
    pub(super) view: &'a TableView<K>,
    pub(super) side: Side,
    /// Whether a slot that lands is proven to be of one moment.
    pub(super) is_guarded: bool,
}

/// What searches of one call ask for with one doorbell.
#[derive(Debug)]
pub(super) struct Doorbell<'a, K: KeySpace> {
    pub(super) batch: &'a mut Batch,
    pub(super) coming: &'a mut Coming<K>,
    /// Bytes that searches under way keep of what they have read.
    pub(super) kept: u64,
}

impl<K: KeySpace> Doorbell<'_, K> {
    fn held(&self) -> u64 {
        self.kept + self.batch.tally().bytes_from
    }
}

/// Asking.
impl<K: KeySpace> Seek<K> {
    /// Forgets the search before.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.forget_words();
        (self.next, self.awaited, self.is_at_end) = (Next::Begin, None, false);
        (self.attempts, self.cost) = (0, Cost::default());
        self.collect_again();
    }

    fn collect_again(&mut self) {
        self.words.clear();
        (self.nearest, self.has_busy) = (None, false);
    }

    /// Forgets what was read, and gives its room back if that was a long way.
    fn forget_words(&mut self) {
        for words in [&mut self.words, &mut self.before] {
            words.clear();
            words.shrink_to(KEPT_WORDS);
        }
        self.stretches.clear();
        self.stretches.shrink_to(KEPT_STRETCHES);
    }

    /// Ends the search: of all that was read, the record that was found is kept.
    fn end(&mut self) {
        self.next = Next::Nothing;
        self.forget_words();
    }

    /// Bytes that it keeps of what it has read.
    pub(super) fn kept(&self) -> u64 {
        (size_of_val(&*self.words) + size_of_val(&*self.before)) as u64
    }

    /// Whether it has to wait for others of its group, which hold enough already. The first that asks never has to.
    fn is_put_off(&self, doorbell: &Doorbell<'_, K>) -> bool {
        !doorbell.batch.is_empty() && doorbell.held() > GROUP_BYTES
    }

    fn ask_for_page(&mut self, number: u32, rule: &Rule<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        let Doorbell { batch, coming, .. } = doorbell;
        self.pages.ask(number, rule.view, (batch, coming), &mut self.cost);
    }

    /// Asks for what is needed next; later if more than [`GROUP_BYTES`] would be under way.
    pub(super) fn ask(&mut self, key: &K::Key, rule: &Rule<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        if self.is_put_off(doorbell) {
            return;
        }
        let asked_before = doorbell.batch.len();
        self.awaited = match self.next {
            Next::Nothing => None,
            Next::Fetch(version, extent) => {
                // Looked at when the record was found.
                let Some((from, bytes)) = Extents::of(rule.view).place(extent) else { return };
                if !doorbell.batch.is_empty() && doorbell.held() + bytes as u64 > GROUP_BYTES {
                    return;
                }
                self.cost.reads += 1;
                self.cost.bytes += bytes as u64;
                Some(Awaited::Value(version, extent, doorbell.batch.read(from, bytes)))
            }
            Next::Begin => {
                self.begin(key, rule, doorbell);
                Some(self.ask_for_stretches(0, rule, doorbell.batch))
            }
            Next::Extend => {
                let from = self.stretches.len();
                self.extend(key, rule, doorbell);
                Some(self.ask_for_stretches(from, rule, doorbell.batch))
            }
            Next::Collect(from) => Some(self.ask_for_stretches(from, rule, doorbell.batch)),
        };
        self.cost.round_trips += u32::from(doorbell.batch.len() > asked_before);
    }

    /// The first stretch, and one of the neighbour beside it where the window lies at its segment's end.
    #[inline]
    fn begin(&mut self, key: &K::Key, rule: &Rule<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        let place = match self.pages.holding(rule.view, key) {
            Found::Here(place) => place,
            Found::Nowhere => return self.is_at_end = true,
            Found::InPage(number) => return self.ask_for_page(number, rule, doorbell),
        };
        let (window, cap) = (place.window(key, rule.view), place.cap());
        let epsilon = u32::from(place.segment.model().epsilon);
        let (first, end, is_at_edge) = match rule.side {
            Side::Floor => {
                let first = window.first.saturating_sub(BEYOND);
                (first, window.last + 1, window.last < epsilon + BEYOND / 2)
            }
            Side::Ceiling => {
                let end = (window.last + 1 + BEYOND).min(cap);
                (window.first, end, window.first + epsilon + BEYOND / 2 >= cap)
            }
        };
        self.push(place, first, end);
        if is_at_edge && self.reaches_edge(rule.side) {
            self.go_on_in_neighbour(BEYOND, rule, doorbell);
        }
    }

    fn push(&mut self, place: Place<K>, first: u32, end: u32) {
        let words = self.stretches.last().map_or(0, |last| last.words + (last.end - last.first) as usize);
        self.stretches.push(Stretch { place, first, end, words, landing: None });
    }

    /// Whether the last stretch ends with its segment.
    fn reaches_edge(&self, side: Side) -> bool {
        self.stretches.last().is_some_and(|last| match side {
            Side::Floor => last.first == 0,
            Side::Ceiling => last.end == last.place.cap(),
        })
    }

    /// A stretch of the segment beside the last one, as long as its windows and so many slots. `false` if there is none, or
    /// its page of the directory has to come first.
    fn go_on_in_neighbour(&mut self, more: u32, rule: &Rule<'_, K>, doorbell: &mut Doorbell<'_, K>) -> bool {
        let Some(last) = self.stretches.last() else { return false };
        let lo = last.place.lo.borrow();
        let found = match rule.side {
            Side::Floor => self.pages.before(rule.view, lo),
            Side::Ceiling => self.pages.after(rule.view, lo),
        };
        match found {
            Found::Here(place) => {
                let cap = place.cap();
                let len = (u32::from(place.segment.model().epsilon) + more).min(cap);
                let (first, end) = match rule.side {
                    Side::Floor => (cap - len, cap),
                    Side::Ceiling => (0, len),
                };
                self.push(place, first, end);
                true
            }
            Found::Nowhere => {
                self.is_at_end = true;
                false
            }
            Found::InPage(number) => {
                self.ask_for_page(number, rule, doorbell);
                false
            }
        }
    }

    /// Stretches further out: up to the end of the window of the record that was found, or as many slots again as were read.
    fn extend(&mut self, key: &K::Key, rule: &Rule<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        let Some(last) = self.stretches.last() else { return self.begin(key, rule, doorbell) };
        let (place, first, end) = (last.place.clone(), last.first, last.end);
        if let Some(edge) = self.edge(rule) {
            return match rule.side {
                Side::Floor => self.push(place, edge, first),
                Side::Ceiling => self.push(place, end, edge),
            };
        }
        let read = self.words.len() as u32;
        let most = (ROUND_BYTES / rule.view.geometry().slot_bytes).max(1) as u32;
        let mut more = read.saturating_mul(2).clamp(FURTHER, most.max(FURTHER));
        if !self.reaches_edge(rule.side) {
            match rule.side {
                Side::Floor => self.push(place, first.saturating_sub(more), first),
                Side::Ceiling => {
                    let cap = place.cap();
                    self.push(place, end, end.saturating_add(more).min(cap));
                }
            }
            more = more.saturating_sub(self.last_len());
        }
        while self.reaches_edge(rule.side) && more > 0 && self.go_on_in_neighbour(more, rule, doorbell) {
            more = more.saturating_sub(self.last_len());
        }
    }

    fn last_len(&self) -> u32 {
        self.stretches.last().map_or(0, |last| last.end - last.first)
    }

    /// Asks for stretches from one on, for as many as fit a doorbell.
    fn ask_for_stretches(&mut self, from: usize, rule: &Rule<'_, K>, batch: &mut Batch) -> Awaited {
        let (mut asked, mut to) = (0, from);
        for stretch in &mut self.stretches[from..] {
            let bytes = (stretch.end - stretch.first) as usize * rule.view.geometry().slot_bytes;
            if asked > 0 && asked + bytes > ROUND_BYTES {
                break;
            }
            let slots = (stretch.first, stretch.end);
            stretch.landing = Some(stretch.place.ask(slots, rule.view, batch, &mut self.cost));
            (asked, to) = (asked + bytes, to + 1);
        }
        if to > from { Awaited::Stretches(from, to) } else { Awaited::Page }
    }
}

/// Taking.
impl<K: KeySpace> Seek<K> {
    /// Takes what has come; with an answer if that is the end of it.
    pub(super) fn take(
        &mut self,
        key: &K::Key,
        rule: &Rule<'_, K>,
        (batch, coming): (&Batch, &mut Coming<K>),
    ) -> Result<Option<Answer>, ReadError> {
        let Some(awaited) = self.awaited.take() else { return Ok(None) };
        self.pages.take(rule.view, (batch, coming))?;
        match awaited {
            Awaited::Page if self.is_at_end => self.end_collection(rule),
            Awaited::Page => {
                self.next = if self.stretches.is_empty() { Next::Begin } else { Next::Extend };
                Ok(None)
            }
            Awaited::Stretches(from, to) => {
                for index in from..to {
                    self.look(index, key, rule, batch)?;
                }
                if to < self.stretches.len() {
                    self.next = Next::Collect(to);
                } else if self.is_covered(rule) {
                    return self.end_collection(rule);
                } else {
                    self.next = Next::Extend;
                }
                Ok(None)
            }
            Awaited::Value(version, extent, landing) => {
                if Extents::of(rule.view).value(extent, batch.bytes(landing)).is_none() {
                    self.read_again()?;
                    return Ok(None);
                }
                self.end();
                Ok(Some(Answer::Record(version, Value::Landed(landing, extent.bytes as usize))))
            }
        }
    }

    /// Begins another collection, of the same slots to begin with.
    fn read_again(&mut self) -> Result<(), ReadError> {
        self.attempts += 1;
        if self.attempts >= MAX_ATTEMPTS {
            return Err(ReadError::Contended { attempts: self.attempts });
        }
        self.cost.fallbacks += 1;
        self.collect_again();
        self.next = Next::Collect(0);
        Ok(())
    }

    /// Looks for the nearest record in a stretch that has come. A slot that cannot be told is kept as a busy one.
    #[inline]
    fn look(
        &mut self,
        index: usize,
        key: &K::Key,
        rule: &Rule<'_, K>,
        batch: &Batch,
    ) -> Result<(), ReadError> {
        let stretch = &self.stretches[index];
        let Some(landing) = stretch.landing else { return Ok(()) };
        let (rules, stride) = (Rules::of(rule.view), rule.view.geometry().slot_bytes / 8);
        let held = std::mem::take(&mut self.slot);
        let mut nearest = self.nearest.and_then(|_| key_of::<K>(&held, rules));
        let mut found = None;
        let mut is_frozen = false;
        for slot in batch.words(landing).chunks_exact(stride) {
            let word = SlotWord::from_bits(slot[0]);
            self.words.push(slot[0]);
            match word.state() {
                SlotState::Free => continue,
                SlotState::Busy => {
                    self.has_busy = true;
                    continue;
                }
                SlotState::Live => {}
                SlotState::Frozen => {
                    is_frozen = true;
                    break;
                }
            }
            let body = &slot.as_bytes()[SLOT_WORD_BYTES..];
            let parts = rules
                .shape
                .parts::<K>(body)
                .filter(|_| rule.is_guarded || rules.vouched(word, stretch.place.segment.generation(), body));
            let Some(parts) = parts else {
                let last = self.words.len() - 1;
                self.words[last] = SlotWord::new(SlotState::Busy, word.version(), 0).to_bits();
                self.has_busy = true;
                continue;
            };
            let Some(view) = K::view(parts.key) else { continue };
            let is_nearer = match rule.side {
                Side::Floor => view.borrow() <= key && nearest.is_none_or(|nearest| view > nearest),
                Side::Ceiling => view.borrow() >= key && nearest.is_none_or(|nearest| view < nearest),
            };
            if is_nearer {
                (nearest, found) = (Some(view), Some(slot));
            }
        }
        self.slot = held;
        if let Some(slot) = found {
            self.slot.clear();
            self.slot.extend_from_slice(slot);
            self.nearest = Some(index);
        }
        if is_frozen { Err(ReadError::Stale) } else { Ok(()) }
    }

    /// The key of the nearest record.
    fn nearest_key(&self, view: &TableView<K>) -> Option<K::View<'_>> {
        self.nearest?;
        key_of::<K>(&self.slot, Rules::of(view))
    }

    /// Up to where slots are to be read further in the last stretch's segment, if that is known: to the end of the window of
    /// the nearest record, which lies there.
    fn edge(&self, rule: &Rule<'_, K>) -> Option<u32> {
        let (nearest, last) = (&self.stretches[self.nearest?], self.stretches.last()?);
        if !nearest.is_of(&last.place) {
            return None;
        }
        let window = last.place.window(self.nearest_key(rule.view)?.borrow(), rule.view);
        match rule.side {
            Side::Floor => (window.first < last.first).then_some(window.first),
            Side::Ceiling => (window.last >= last.end).then_some(window.last + 1),
        }
    }

    /// Whether all was read that lies between the key and the nearest record.
    #[inline]
    fn is_covered(&self, rule: &Rule<'_, K>) -> bool {
        match self.nearest {
            Some(_) => self.edge(rule).is_none(),
            None => self.is_at_end && self.reaches_edge(rule.side),
        }
    }

    /// Whether `holds` is true of every range of words that matter.
    #[inline]
    fn all_that_matter(&self, rule: &Rule<'_, K>, holds: impl Fn(std::ops::Range<usize>) -> bool) -> bool {
        let nearest = self.nearest.map(|index| &self.stretches[index].place);
        let window = nearest.zip(self.nearest_key(rule.view));
        let window = window.map(|(place, key)| (place, place.window(key.borrow(), rule.view)));
        let mut is_after = false;
        self.stretches.iter().all(|stretch| {
            let (mut first, mut end) = (stretch.first, stretch.end);
            match &window {
                Some((place, window)) if stretch.is_of(place) => {
                    is_after = true;
                    match rule.side {
                        Side::Floor => first = first.max(window.first).min(end),
                        Side::Ceiling => end = end.min(window.last + 1).max(first),
                    }
                }
                // A neighbour that was read although nothing was wanted of it.
                _ if is_after => return true,
                _ => {}
            }
            let at = stretch.words + (first - stretch.first) as usize;
            holds(at..at + (end - first) as usize)
        })
    }

    /// Whether what was collected was there at one instant.
    #[inline]
    fn is_of_one_instant(&self, rule: &Rule<'_, K>) -> bool {
        if rule.view.believes_neighbours() {
            return true;
        }
        let is_loaded = |word: &u64| SlotWord::from_bits(*word).version() <= LOADED;
        self.all_that_matter(rule, |range| self.words[range].iter().all(is_loaded))
            || self.all_that_matter(rule, |range| self.before.get(range.clone()) == Some(&self.words[range]))
    }

    /// Whether a slot that matters was being written. What the others hold is nothing to the answer.
    #[inline]
    fn is_torn(&self, rule: &Rule<'_, K>) -> bool {
        let is_busy = |word: &u64| SlotWord::from_bits(*word).state() == SlotState::Busy;
        self.has_busy && !self.all_that_matter(rule, |range| !self.words[range].iter().any(is_busy))
    }

    /// Ends a collection: with the answer, or with another one.
    #[inline]
    fn end_collection(&mut self, rule: &Rule<'_, K>) -> Result<Option<Answer>, ReadError> {
        if self.is_torn(rule) {
            self.read_again()?;
            return Ok(None);
        }
        if !self.is_of_one_instant(rule) {
            std::mem::swap(&mut self.words, &mut self.before);
            // The first one is no attempt that failed.
            if self.words.is_empty() {
                self.collect_again();
                self.next = Next::Collect(0);
                return Ok(None);
            }
            self.read_again()?;
            return Ok(None);
        }
        let Some(index) = self.nearest else {
            self.end();
            return Ok(Some(Answer::Nothing));
        };
        let generation = self.stretches[index].place.segment.generation();
        match classify::<K>(self.slot.as_bytes(), generation, Rules::of(rule.view)) {
            SlotRead::Live { value: Stored::External(extent), .. }
                if Extents::of(rule.view).place(extent).is_none() =>
            {
                // No memory node's slot says so.
                self.read_again()?;
                Ok(None)
            }
            SlotRead::Live { version, value: Stored::External(extent), .. } => {
                self.next = Next::Fetch(version, extent);
                Ok(None)
            }
            SlotRead::Live { version, .. } => {
                self.end();
                Ok(Some(Answer::Record(version, Value::InSlot)))
            }
            SlotRead::Frozen => Err(ReadError::Stale),
            SlotRead::Free | SlotRead::Torn => {
                self.read_again()?;
                Ok(None)
            }
        }
    }

    /// The record that was found: its key, and its value if that lies in the slot.
    pub(super) fn record(&self, view: &TableView<K>) -> Option<(K::View<'_>, &[u8])> {
        let body = self.slot.as_bytes().get(SLOT_WORD_BYTES..)?;
        let parts = Rules::of(view).shape.parts::<K>(body)?;
        let value = match parts.value {
            Stored::Here(value) => value,
            Stored::External(_) => &[],
        };
        Some((K::view(parts.key)?, value))
    }

    /// Whether the search has ended.
    pub(super) fn is_done(&self) -> bool {
        self.next == Next::Nothing
    }
}

/// The key that a slot shows.
fn key_of<K: KeySpace>(slot: &[u64], rules: Rules) -> Option<K::View<'_>> {
    K::view(rules.shape.parts::<K>(slot.as_bytes().get(SLOT_WORD_BYTES..)?)?.key)
}
