//! A group of keys of a table of words, by the [steps](super::word_steps) that most lookups take,
//! each step of all keys before the next one of any: they wait for memory together.

use fpcache_fabric::InPlace;

use super::word_steps::{WordPlace, WordSlot, WordSteps, searched};
use crate::key_space::KeySpace;
use crate::matching::Kernels;
use crate::models::Models;
use crate::plan::Rule;
use crate::read::attempt::{CACHED_SEGMENTS, TOGETHER};
use crate::read::outcome::Outcome;
use crate::read::records::Records;
use crate::read::{Cost, ReadError};

impl<K: KeySpace, L: InPlace, M: Kernels> WordSteps<'_, K, L, M> {
    /// The answers of those keys whom these steps lead there, their values among `records`; whether
    /// these are all. Others have no reads in their costs. At most [`TOGETHER`] keys.
    #[inline(always)]
    pub(super) fn group(
        &mut self,
        keys: &[&K::Key],
        rule: &Rule,
        outcomes: &mut [Outcome],
        records: &mut Records,
    ) -> Result<bool, ReadError> {
        let (mut places, mut slots) = ([WordPlace::RARE; TOGETHER], [WordSlot::Rare; TOGETHER]);
        if !self.locate(keys, rule, &mut places) {
            return Ok(false);
        }
        for ((key, place), slot) in keys.iter().zip(&places).zip(&mut slots) {
            let Some(word) = K::word(key).filter(|_| place.is_known()) else { continue };
            *slot = self.search(place, key, word);
            if let WordSlot::At(slot) = *slot {
                self.prefetch_slot(place, slot);
            }
        }
        searched();
        let mut total = Cost::default();
        let mut are_all = true;
        // Of all keys at once: it is looked at after all that was searched.
        let is_held = self.is_held();
        let value_bytes = self.table.view().geometry().shape.value_bytes.unwrap_or(0).min(8) as usize;
        for (((key, place), slot), outcome) in keys.iter().zip(&places).zip(&slots).zip(outcomes) {
            let value = match *slot {
                WordSlot::At(slot) => K::word(key).and_then(|word| self.verify(place, slot, word)),
                WordSlot::Absent | WordSlot::Rare => None,
            };
            if value.is_none() && !(*slot == WordSlot::Absent && is_held) {
                are_all = false;
                continue;
            }
            let cost = Cost::from(place.cost(value.is_some()));
            total.round_trips = total.round_trips.max(cost.round_trips);
            total.reads += cost.reads;
            total.bytes += cost.bytes;
            (outcome.plan, outcome.cost) = (place.plan, cost);
            if let Some((word, value)) = value {
                outcome.version = Some(word.version());
                outcome.value = records.keep_word(value, value_bytes);
            }
        }
        self.look.count(total.round_trips, total.reads, total.bytes)?;
        Ok(are_all)
    }

    /// Where each key can be, with what is searched on its way; whether all models are here.
    #[inline(always)]
    fn locate(&self, keys: &[&K::Key], rule: &Rule, places: &mut [WordPlace; TOGETHER]) -> bool {
        let table = self.table;
        let Models::Resident(directory) = table.view().models() else { return false };
        if directory.len() <= CACHED_SEGMENTS {
            for (key, place) in keys.iter().zip(places) {
                if let Some(segment) = directory.find_shared(key) {
                    *place = WordPlace::of(table, segment, key, rule).0;
                    self.prefetch_searched(place);
                }
            }
            return true;
        }
        let mut pages = [None; TOGETHER];
        for (page, key) in pages.iter_mut().zip(keys) {
            *page = directory.page_for(key);
        }
        for (page, key) in pages.iter().zip(keys) {
            if let Some(page) = page {
                page.prefetch(key);
            }
        }
        for ((page, key), place) in pages.iter().zip(keys).zip(places) {
            if let Some(segment) = page.and_then(|page| page.find_shared(key)) {
                *place = WordPlace::of(table, segment, key, rule).0;
                self.prefetch_searched(place);
            }
        }
        true
    }
}
