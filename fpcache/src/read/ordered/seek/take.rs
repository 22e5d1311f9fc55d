//! The part of a search that takes what has come.

use std::borrow::Borrow;

use fpcache_fabric::Batch;
use zerocopy::IntoBytes;

use super::{AwaitedBytes, FoundValue, SearchContext, SearchEnd, SearchStep, Seek};
use crate::key_space::KeySpace;
use crate::layout::{SLOT_WORD_BYTES, SlotState, SlotWord, Stored};
use crate::read::ReadError;
use crate::read::external::Extents;
use crate::read::ordered::Side;
use crate::read::segment_search::PendingPages;
use crate::read::verify::{Rules, SlotRead, classify};
use crate::sabotage::Sabotage;
use crate::table_view::TableView;

/// The greatest version of a slot that was never written to since its segment was made of loaded
/// records.
const LOADED: u32 = 1;

impl<K: KeySpace> Seek<K> {
    /// Takes what has come; with an answer if that is the end of it.
    pub(in crate::read::ordered) fn take(
        &mut self,
        key: &K::Key,
        rule: &SearchContext<'_, K>,
        (batch, coming): (&Batch, &mut PendingPages<K>),
    ) -> Result<Option<SearchEnd>, ReadError> {
        let Some(awaited) = self.awaited.take() else { return Ok(None) };
        self.pages.take(rule.view, (batch, coming))?;
        match awaited {
            AwaitedBytes::Page if self.is_at_end => self.end_collection(rule),
            AwaitedBytes::Page => {
                self.next = if self.stretches.is_empty() { SearchStep::Begin } else { SearchStep::Extend };
                Ok(None)
            }
            AwaitedBytes::Stretches(from, to) => {
                for index in from..to {
                    self.look(index, key, rule, batch)?;
                }
                if to < self.stretches.len() {
                    self.next = SearchStep::Collect(to);
                } else if self.is_covered(rule) {
                    return self.end_collection(rule);
                } else {
                    self.next = SearchStep::Extend;
                }
                Ok(None)
            }
            AwaitedBytes::Value(version, extent, landing) => {
                if Extents::of(rule.view).value(extent, batch.bytes(landing)).is_none() {
                    self.read_again(rule)?;
                    return Ok(None);
                }
                self.end();
                Ok(Some(SearchEnd::Record(version, FoundValue::Landed(landing, extent.bytes as usize))))
            }
        }
    }

    /// Begins another collection, of the same slots to begin with.
    fn read_again(&mut self, rule: &SearchContext<'_, K>) -> Result<(), ReadError> {
        self.attempts += 1;
        if self.attempts >= rule.most_attempts {
            return Err(ReadError::Contended { attempts: self.attempts });
        }
        self.cost.fallbacks += 1;
        self.collect_again();
        self.next = SearchStep::Collect(0);
        Ok(())
    }

    /// Has the word that was kept last say that its slot cannot be told.
    #[cold]
    fn mark_last_busy(&mut self, word: SlotWord) {
        if let Some(last) = self.words.last_mut() {
            *last = SlotWord::new(SlotState::Busy, word.version(), 0).to_bits();
        }
        self.has_busy = true;
    }

    /// Looks for the nearest record in a stretch that has come. A slot that cannot be told is kept
    /// as a busy one.
    #[inline]
    fn look(
        &mut self,
        index: usize,
        key: &K::Key,
        rule: &SearchContext<'_, K>,
        batch: &Batch,
    ) -> Result<(), ReadError> {
        let stretch = &self.stretches[index];
        let (generation, Some(landing)) = (stretch.place.segment.generation(), stretch.landing) else {
            return Ok(());
        };
        let (rules, stride) = (Rules::of(rule.view), rule.view.geometry().slot_bytes / 8);
        let held = std::mem::take(&mut self.slot);
        let mut nearest = self.nearest.and_then(|_| key_of::<K>(&held, rules));
        let mut found = None;
        let mut is_frozen = false;
        for slot in batch.words(landing).chunks_exact(stride) {
            let word = SlotWord::from_bits(slot[0]);
            self.words.push(slot[0]);
            match word.state() {
                SlotState::Free if word.is_free() => continue,
                SlotState::Busy => {
                    self.has_busy = true;
                    continue;
                }
                // A record's, whose state is damaged.
                SlotState::Free => {
                    self.mark_last_busy(word);
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
                .filter(|_| rule.is_guarded || rules.is_proven(word, generation, body));
            let Some(parts) = parts else {
                self.mark_last_busy(word);
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

    /// Up to where slots are to be read further in the last stretch's segment, if that is known: to
    /// the end of the window of the nearest record, which lies there.
    pub(super) fn edge(&self, rule: &SearchContext<'_, K>) -> Option<u32> {
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
    fn is_covered(&self, rule: &SearchContext<'_, K>) -> bool {
        match self.nearest {
            Some(_) => self.edge(rule).is_none(),
            None => self.is_at_end && self.reaches_edge(rule.side),
        }
    }

    /// Whether `holds` is true of every range of words that matter.
    #[inline]
    fn all_relevant(
        &self,
        rule: &SearchContext<'_, K>,
        holds: impl Fn(std::ops::Range<usize>) -> bool,
    ) -> bool {
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
    fn is_of_one_instant(&self, rule: &SearchContext<'_, K>) -> bool {
        if rule.view.breaks(Sabotage::UnprovenNeighbours) {
            return true;
        }
        let is_loaded = |word: &u64| SlotWord::from_bits(*word).version() <= LOADED;
        self.all_relevant(rule, |range| self.words[range].iter().all(is_loaded))
            || self.all_relevant(rule, |range| self.before.get(range.clone()) == Some(&self.words[range]))
    }

    /// Whether a slot that matters was being written. What the others hold is nothing to the
    /// answer.
    #[inline]
    fn is_torn(&self, rule: &SearchContext<'_, K>) -> bool {
        let is_busy = |word: &u64| SlotWord::from_bits(*word).state() == SlotState::Busy;
        self.has_busy && !self.all_relevant(rule, |range| !self.words[range].iter().any(is_busy))
    }

    /// Ends a collection: with the answer, or with another one.
    #[inline]
    fn end_collection(&mut self, rule: &SearchContext<'_, K>) -> Result<Option<SearchEnd>, ReadError> {
        if self.is_torn(rule) {
            self.read_again(rule)?;
            return Ok(None);
        }
        if !self.is_of_one_instant(rule) {
            std::mem::swap(&mut self.words, &mut self.before);
            // The first one is no attempt that failed.
            if self.words.is_empty() {
                self.collect_again();
                self.next = SearchStep::Collect(0);
                return Ok(None);
            }
            self.read_again(rule)?;
            return Ok(None);
        }
        let Some(index) = self.nearest else {
            self.end();
            return Ok(Some(SearchEnd::Nothing));
        };
        let generation = self.stretches[index].place.segment.generation();
        match classify::<K>(self.slot.as_bytes(), generation, Rules::of(rule.view)) {
            SlotRead::Live { value: Stored::External(extent), .. }
                if Extents::of(rule.view).place(extent).is_none() =>
            {
                // No memory node's slot says so.
                self.read_again(rule)?;
                Ok(None)
            }
            SlotRead::Live { version, value: Stored::External(extent), .. } => {
                self.next = SearchStep::Fetch(version, extent);
                Ok(None)
            }
            SlotRead::Live { version, .. } => {
                self.end();
                Ok(Some(SearchEnd::Record(version, FoundValue::InSlot)))
            }
            SlotRead::Frozen => Err(ReadError::Stale),
            SlotRead::Free | SlotRead::Torn => {
                self.read_again(rule)?;
                Ok(None)
            }
        }
    }

    /// The record that was found: its key, and its value if that lies in the slot.
    pub(in crate::read::ordered) fn record(&self, view: &TableView<K>) -> Option<(K::View<'_>, &[u8])> {
        let body = self.slot.as_bytes().get(SLOT_WORD_BYTES..)?;
        let parts = Rules::of(view).shape.parts::<K>(body)?;
        let value = match parts.value {
            Stored::Here(value) => value,
            Stored::External(_) => &[],
        };
        Some((K::view(parts.key)?, value))
    }

    /// Whether the search has ended.
    pub(in crate::read::ordered) fn is_done(&self) -> bool {
        self.next == SearchStep::Nothing
    }
}

/// The key that a slot shows.
fn key_of<K: KeySpace>(slot: &[u64], rules: Rules) -> Option<K::View<'_>> {
    K::view(rules.shape.parts::<K>(slot.as_bytes().get(SLOT_WORD_BYTES..)?)?.key)
}
