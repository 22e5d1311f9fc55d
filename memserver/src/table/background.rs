//! Background work of a table between requests, a step at a time. All of it has its turn: writes
//! that never cease always leave segments to be replaced, and what these give back must come free
//! meanwhile.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::TableError;
use super::room::Stage;
use super::turns::Task;
use crate::superblock_writer::SuperblockWriter;

impl<K: BuildKeys> Table<K> {
    /// Does a little background work; `true` if there is more. Segments are replaced only if
    /// `may_replace`: none of their slots may be reserved.
    pub(crate) fn work<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        may_replace: bool,
    ) -> Result<bool, TableError> {
        // What it replaces would be in the way of a search for room.
        let may_replace = may_replace && !self.is_searching();
        let mut without_room = None;
        for _ in 0..Task::ALL.len() {
            let task = self.turns.next();
            if task.replaces_segments() && !may_replace {
                continue;
            }
            match self.step(task, superblock) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                // Other tasks may make some.
                Err(error @ TableError::NoRoom { .. }) => without_room = Some(error),
                Err(error) => return Err(error),
            }
        }
        without_room.map_or(Ok(false), Err)
    }

    /// Whether segments are known to be replaced as soon as none of their slots is reserved.
    pub(crate) fn has_segments_to_replace<M: NodeMemory>(&self, superblock: &SuperblockWriter<K, M>) -> bool {
        let Self { rebuilder, segments, room, .. } = self;
        rebuilder.has_due()
            || rebuilder.retraining.outdated_from.is_some()
            || self.sweep.is_some()
            || room.due_sweep(superblock, segments).is_some()
            || room.emptying.evacuation.as_ref().is_some_and(|evacuation| match evacuation.stage {
                Stage::Moving(_) => true,
                Stage::Freeing(head) => room.record.checkpoint >= head,
            })
    }

    /// Takes a step of a task; `false` if there was none to take.
    fn step<M: NodeMemory>(
        &mut self,
        task: Task,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        match task {
            Task::Relieve => self.relieve_next(superblock),
            Task::Recount => self.values.step_recounting(superblock, &self.segments),
            Task::Checkpoint => self.step_directory(superblock),
            Task::Retrain => self.step_retraining(superblock),
            Task::GiveBack => self.give_back(superblock),
            Task::Reclaim => self.room.reclaim_early(superblock),
            Task::Shrink => Ok(self.room.space.shrink()),
        }
    }

    /// Replaces the next segment that is due, and forgets those that no longer are.
    fn relieve_next<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        /// Those looked at in one step: inserts note a segment more than once.
        const MOST: usize = 32;
        for _ in 0..MOST {
            let Some(key) = self.rebuilder.next_due() else { return Ok(false) };
            if self.relieve(superblock, key.borrow())? {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Writes some more of the next directory, if one is wanted.
    fn step_directory<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        // A search writes directories when it needs them, and has room for them then.
        if self.is_searching() || !self.room.wants_checkpoint(superblock) {
            return Ok(false);
        }
        match self.room.step_checkpoint(superblock, &self.segments) {
            // The bytes that are being emptied may be all that is free.
            Err(TableError::NoRoom { .. }) if self.room.give_up_evacuation() => {}
            stepped => stepped?,
        }
        Ok(true)
    }
}
