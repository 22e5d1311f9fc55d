//! The search for room, after a segment or a value found none: everything that can make room is
//! done, in steps, before the write is refused. Replaced memory is freed, segments are compacted,
//! and a range is evacuated.
//!
//! Until the search has ended, no other write changes the table and nothing else reclaims memory.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::ValueExtent;
use fpcache::message::{Sent, WriteOperation};
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::TableError;
use super::segments::decide::is_external;
use super::task_state::{RoomSearch, SearchStage};

/// Share of the available memory that is replaced before it is freed.
const SHARE: u64 = 16;

/// The result of a step.
enum Stepped {
    To(SearchStage),
    /// Whether an extent is free.
    Ended(bool),
}

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Whether room is being searched for.
    pub(crate) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Gives up the search under way, if there is one.
    pub(crate) fn give_up_search(&mut self) {
        if let Some(RoomSearch { stage: SearchStage::Evacuating, .. }) = self.search.take() {
            self.room.give_up_evacuation();
        }
    }

    /// Whether room is being searched for, for the value of this operation, which has a slot. A
    /// search for anything else is given up: it was for a segment, whose slots it has freed.
    #[inline]
    pub(crate) fn still_searches_for(&mut self, operation: &WriteOperation<'_, impl Borrow<K::Key>>) -> bool {
        self.is_searching() && self.goes_on_searching_for(operation)
    }

    #[cold]
    fn goes_on_searching_for(&mut self, operation: &WriteOperation<'_, impl Borrow<K::Key>>) -> bool {
        let len = ValueExtent::memory_bytes(operation.value.len()) as u64;
        let is_for_it = matches!(operation.value, Sent::Here(_))
            && is_external::<K, _>(&self.segments.geometry, operation)
            && self.search.as_ref().is_some_and(|search| search.len == len);
        if !is_for_it {
            self.give_up_search();
        }
        is_for_it
    }

    /// Takes one step to make room for an extent of `len` bytes, or for the extent that a search
    /// under way is for. `None` if there is more to do, else whether there is room. Refuses at once
    /// if hardly anything has changed since nothing helped. No slot may be reserved.
    pub(super) fn step_search(&mut self, len: u64) -> Result<Option<bool>, TableError> {
        if self.search.is_none() {
            if self.room.is_known_not_to_help(&self.segments, len) {
                return Ok(Some(false));
            }
            self.room.look_at_all();
        }
        let begun = RoomSearch { len, stage: SearchStage::Sweeping };
        let RoomSearch { len, stage } = *self.search.get_or_insert(begun);
        self.room.is_compacting = true;
        let stepped = self.step_stage(len, stage);
        self.room.is_compacting = false;
        match stepped {
            Ok(Stepped::To(stage)) => {
                self.search = Some(RoomSearch { len, stage });
                Ok(None)
            }
            Ok(Stepped::Ended(made)) => {
                self.search = None;
                self.room.note_help(&self.segments, len, made);
                Ok(Some(made))
            }
            Err(error) => {
                self.give_up_search();
                Err(error)
            }
        }
    }

    fn step_stage(&mut self, len: u64, stage: SearchStage) -> Result<Stepped, TableError> {
        Ok(match stage {
            SearchStage::Sweeping => {
                let is_last = !self.step_sweep()?;
                let is_much = self.room.space.quarantined_bytes() > self.room.space.end_in_reach() / SHARE;
                if is_last || is_much || self.sweep.is_none() {
                    Stepped::To(SearchStage::FreeingSwept { head: self.room.log_head(), is_last })
                } else {
                    Stepped::To(SearchStage::Sweeping)
                }
            }
            SearchStage::FreeingSwept { head, is_last } => {
                if !self.step_freeing(head)? {
                    Stepped::To(SearchStage::FreeingSwept { head, is_last })
                } else if self.room.has_hole(len) {
                    Stepped::Ended(true)
                } else if is_last {
                    self.begin_emptying_for(head, len)?
                } else {
                    Stepped::To(SearchStage::Sweeping)
                }
            }
            SearchStage::Evacuating => match self.room.emptying.evacuation.as_ref().map(|it| it.moved) {
                Some(None) => {
                    self.step_moving()?;
                    Stepped::To(SearchStage::Evacuating)
                }
                Some(Some(head)) if !self.step_freeing(head)? => Stepped::To(SearchStage::Evacuating),
                Some(Some(head)) => {
                    let found_obstacle = self.room.end_evacuation();
                    match self.room.has_hole(len) {
                        false if found_obstacle => {
                            // The next best may be among those that were looked at.
                            self.room.look_at_all();
                            self.begin_emptying_for(head, len)?
                        }
                        made => Stepped::Ended(made),
                    }
                }
                None => Stepped::Ended(self.room.has_hole(len)),
            },
        })
    }

    /// Frees some more of what was replaced before the log head was this; `true` if nothing of it
    /// is left.
    fn step_freeing(&mut self, head: u64) -> Result<bool, TableError> {
        if self.room.record.checkpoint < head {
            match self.room.step_checkpoint(&self.segments) {
                Ok(()) if self.room.record.checkpoint < head => return Ok(false),
                // Without room for a directory that is as good as it gets.
                Ok(()) | Err(TableError::NoRoom { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.room.reclaim()?;
        Ok(true)
    }

    /// Begins to empty the bytes that are the best for an extent of `len` bytes, if there are some.
    fn begin_emptying_for(&mut self, head: u64, len: u64) -> Result<Stepped, TableError> {
        self.room.give_up_evacuation();
        if self.room.space.free_bytes() < self.room.needed_for(len) {
            return Ok(Stepped::Ended(false));
        }
        Ok(match self.room.window_for(&self.segments, len)? {
            Some(window) => {
                self.room.begin_evacuation(window);
                Stepped::To(SearchStage::Evacuating)
            }
            None if self.room.has_more_to_look_at() => {
                Stepped::To(SearchStage::FreeingSwept { head, is_last: true })
            }
            None => Stepped::Ended(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::U64Keys;
    use fpcache::layout::{RecordShape, TableParameters};

    use crate::fixtures::{empty_node, table_of};

    #[test]
    fn a_search_that_is_given_up_empties_nothing_any_more() {
        let mut node = empty_node::<U64Keys>(1 << 20);
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        node.load(parameters, (0..5_000u32).map(|key| u64::from(key) * 10), |_, _| {}).expect("room");
        let table = table_of(&mut node);
        let len = table.room.space.longest() / 4;
        let Ok(Stepped::To(stage)) = table.begin_emptying_for(0, len) else { panic!("much is free") };
        table.search = Some(RoomSearch { len, stage });
        assert!(table.room.space.emptied().is_some() && table.room.emptying.evacuation.is_some());
        table.give_up_search();
        assert!(table.room.space.emptied().is_none() && table.room.emptying.evacuation.is_none());
    }

    /// It kept what it was to make room of from everything else.
    #[test]
    fn a_record_that_is_put_back_leaves_no_search_for_room() {
        let mut node = empty_node::<U64Keys>(1 << 20);
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        node.load(parameters, (0..1000u32).map(|key| u64::from(key) * 10), |_, _| {}).expect("room");
        let table = table_of(&mut node);
        let Ok(Stepped::To(stage)) = table.begin_emptying_for(0, 4096) else { panic!("much is free") };
        table.search = Some(RoomSearch { len: 4096, stage });
        table.put_back(&10, 1, Some(&[1; 8])).expect("it has a slot");
        assert!(!table.is_searching() && table.room.space.emptied().is_none());
    }

    /// Small values that had room were refused then, for as long as nothing changed.
    #[test]
    fn a_search_for_a_longer_extent_that_is_in_vain_says_nothing_of_a_short_value() {
        let mut node = empty_node::<U64Keys>(1 << 20);
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
        let parameters = TableParameters { shape, ..TableParameters::default() };
        let records = (0..1000u32).map(|key| (u64::from(key) * 10, [1; 8]));
        node.load_records(parameters, (), records).expect("room");
        let table = table_of(&mut node);
        table.search = Some(RoomSearch { len: 2 << 20, stage: SearchStage::Sweeping });
        let made = (0..1000).find_map(|_| table.make_room_for_value(600).expect("it can be read"));
        assert_eq!((made, table.refused_for_value(600)), (Some(true), None));
    }

    /// The segment, for which there was room, was refused, and so were all of its length from then
    /// on.
    #[test]
    fn a_search_for_a_longer_extent_that_is_in_vain_says_nothing_of_a_segment() {
        let mut node = empty_node::<U64Keys>(1 << 20);
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        node.load(parameters, (0..1000u32).map(|key| u64::from(key) * 10), |_, _| {}).expect("room");
        let table = table_of(&mut node);
        table.search = Some(RoomSearch { len: 2 << 20, stage: SearchStage::Sweeping });
        let is_made = (0..1000).any(|_| table.make_room(&0).expect("there is room"));
        assert!(is_made && table.refused_for(&0).is_none() && !table.is_searching());
    }
}
