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
enum Stepped<K: BuildKeys> {
    To(SearchStage<K>),
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
        let Some(RoomSearch { stage, .. }) = self.search.take() else { return };
        if matches!(stage, SearchStage::Emptying { .. } | SearchStage::FreeingEmptied { .. }) {
            self.room.space.set_emptied(None);
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
        let search = match self.search.take() {
            Some(search) => search,
            None if self.room.is_known_not_to_help(&self.segments, len) => return Ok(Some(false)),
            None => RoomSearch { len, stage: SearchStage::Sweeping },
        };
        let len = search.len;
        let was_emptying =
            matches!(search.stage, SearchStage::Emptying { .. } | SearchStage::FreeingEmptied { .. });
        self.room.is_compacting = true;
        let stepped = self.step_stage(len, search.stage);
        self.room.is_compacting = false;
        match stepped {
            Ok(Stepped::To(stage)) => {
                self.search = Some(RoomSearch { len, stage });
                Ok(None)
            }
            Ok(Stepped::Ended(made)) => {
                self.room.note_help(&self.segments, len, made);
                Ok(Some(made))
            }
            Err(error) => {
                if was_emptying {
                    self.room.space.set_emptied(None);
                }
                Err(error)
            }
        }
    }

    fn step_stage(&mut self, len: u64, stage: SearchStage<K>) -> Result<Stepped<K>, TableError> {
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
            SearchStage::Emptying { from, mut replaced } => {
                match self.move_some(from.borrow(), &mut replaced)? {
                    Some(from) => Stepped::To(SearchStage::Emptying { from, replaced }),
                    None => {
                        self.move_encoders()?;
                        // With the change that this step made, if it made one.
                        let head = self.room.log_head();
                        Stepped::To(SearchStage::FreeingEmptied { head, replaced })
                    }
                }
            }
            SearchStage::FreeingEmptied { head, replaced } => {
                if self.step_freeing(head)? {
                    let found_obstacle = self.room.end_evacuation(replaced);
                    match self.room.has_hole(len) {
                        false if found_obstacle => self.begin_emptying_for(head, len)?,
                        made => Stepped::Ended(made),
                    }
                } else {
                    Stepped::To(SearchStage::FreeingEmptied { head, replaced })
                }
            }
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
    fn begin_emptying_for(&mut self, head: u64, len: u64) -> Result<Stepped<K>, TableError> {
        self.room.give_up_evacuation();
        if self.room.space.free_bytes() < self.room.needed_for(len) {
            return Ok(Stepped::Ended(false));
        }
        Ok(match self.room.window_for(&self.segments, len)? {
            Some(window) => {
                self.room.begin_emptying(window);
                Stepped::To(SearchStage::Emptying { from: K::lowest().to_owned(), replaced: 0 })
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
    fn what_a_search_empties_stays_its_own_when_no_evacuation_is_given_up() {
        let mut node = empty_node::<U64Keys>(1 << 20);
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        node.load(parameters, (0..5_000u32).map(|key| u64::from(key) * 10), |_, _| {}).expect("room");
        let table = table_of(&mut node);
        let len = table.room.space.longest() / 4;
        let Ok(Stepped::To(stage)) = table.begin_emptying_for(0, len) else { panic!("much is free") };
        table.search = Some(RoomSearch { len, stage });
        let emptied = table.room.space.emptied().cloned();
        assert!(emptied.is_some() && !table.room.give_up_evacuation());
        assert_eq!(table.room.space.emptied(), emptied.as_ref(), "nothing else is put there");
        // The search's end leaves no trace.
        table.give_up_search();
        assert_eq!(table.room.space.emptied(), None);
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
}
