//! Operations that are not done: why, their replies, and the room that is made before.

use fpcache::key_space::BuildKeys;
use fpcache::message::{ErrorCode, Refusal, WriteReply, WriteStatus};
use fpcache_fabric::NodeMemory;
use tracing::warn;

use crate::node::parked::{WaitFor, WriteInProgress, cost};
use crate::node::{MemoryNode, NodeState};
use crate::table::error::{DamagedRecord, TableError};

/// Why an operation is not done.
#[derive(Debug)]
pub(crate) enum Unable {
    NoRoom,
    /// There would be room if the region's file system had some.
    DiskFull,
    NotDurable,
    /// A segment is to be replaced while operations wait for the disk.
    NotQuiet,
    /// The key's record is damaged, or one beside it.
    Damaged,
    /// The region contradicts itself.
    Broken(String),
}

impl Unable {
    pub(super) fn reply(self) -> Result<WriteReply, Refusal> {
        let status = match self {
            Self::NoRoom => WriteStatus::NoRoom,
            Self::DiskFull => WriteStatus::DiskFull,
            Self::NotDurable | Self::NotQuiet => WriteStatus::NotDurable,
            Self::Damaged => WriteStatus::Damaged,
            Self::Broken(why) => return Err(Refusal::new(ErrorCode::Internal, why)),
        };
        Ok(WriteReply { status, token: None })
    }
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Replies that an operation cannot be done; or returns what must be waited for, if that may be
    /// known once nothing waits for the disk.
    pub(super) fn unable(
        &mut self,
        going: &mut WriteInProgress,
        operation: usize,
        unable: Unable,
    ) -> Result<Option<WaitFor>, Refusal> {
        let unable = match unable {
            Unable::NotQuiet if self.log_fails() => Unable::NotDurable,
            Unable::NotQuiet => return Ok(Some(WaitFor::Quiet)),
            Unable::NoRoom if self.state.superblock().grant.is_disk_full() => Unable::DiskFull,
            unable => unable,
        };
        if matches!(unable, Unable::NoRoom) {
            self.tell_full();
        }
        if let Some(put) = going.put.take() {
            self.give_up_value(&put);
        }
        self.reply(going, operation, unable.reply()?)
    }

    /// Tells that writes are refused for want of room. That of a full disk is told with what the
    /// disk says.
    #[cold]
    fn tell_full(&mut self) {
        if let Some(table) = self.state.table()
            && self.operator_log.is_full_due(self.clock.now())
        {
            warn!("a write was refused: {}", table.room.no_room());
        }
    }

    /// Tells that a request was refused because of a damaged record.
    #[cold]
    pub(crate) fn tell_refused(&mut self, damaged: &DamagedRecord) {
        let what = format_args!("a request was refused: {damaged}");
        self.operator_log.refused.tell(self.clock.now(), damaged.offset, what);
    }

    /// Whether room may be searched for now; `missed` are the bytes that are known not to be there,
    /// if they are.
    pub(crate) fn may_search(&self, missed: Option<u64>) -> Result<(), Unable> {
        let Some(table) = self.state.table() else { return Ok(()) };
        let has_values_outside = table.segments.geometry.shape.value_bytes.is_none();
        match missed.filter(|_| !table.is_searching()) {
            Some(missed) if !self.pending.may_free(has_values_outside) => {
                self.state.superblock().grant.miss(missed);
                Err(Unable::NoRoom)
            }
            None if self.pending.is_empty() => Ok(()),
            // No record may move that waits for the disk, and what waits may give memory back.
            _ => Err(Unable::NotQuiet),
        }
    }

    /// Makes room for a key whose window is full, as long as the allowance lasts; `false` if there
    /// is more to do.
    pub(super) fn make_room(&mut self, key: &K::Key) -> Result<bool, Unable> {
        self.may_search(self.state.table().and_then(|table| table.refused_for(key)))?;
        loop {
            let NodeState::Serving(table) = &mut self.state else { return Ok(true) };
            let (before, was_searching) = (table.counters.copies, table.is_searching());
            let made = table.make_room(key);
            let moved = table.counters.copies.saturating_sub(before) as i64;
            table.counters.damaged_writes += u64::from(matches!(made, Err(TableError::Damaged(_))));
            let step = if was_searching || matches!(made, Ok(false)) { cost::STEP } else { cost::REBUILD };
            self.charge(step + cost::RECORD_MOVED * moved);
            let made = made.map_err(|error| match error {
                TableError::NoRoom { .. } => Unable::NoRoom,
                TableError::Damaged(damaged) => {
                    self.tell_refused(&damaged);
                    Unable::Damaged
                }
                other => Unable::Broken(other.to_string()),
            })?;
            if made || self.is_spent() {
                return Ok(made);
            }
        }
    }
}
