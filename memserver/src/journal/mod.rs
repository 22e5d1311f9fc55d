//! What is written down before a slot changes, so that the end of the process or of the machine undoes nothing that was
//! acknowledged.

pub(crate) mod background;
pub(crate) mod entry;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::KeySpace;
use fpcache_fabric::{Clock, NodeMemory, SystemClock};

use crate::durability::{AppendError, LogError, Lsn, Staging, SyncPolicy};
use crate::notes::Notes;
use background::{Draining, Snapshots};
use entry::Entry;

/// Why an effect was not written down.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The staging ring does not take the entry.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// The log as a memory node writes it: staging ring, notes, and whoever brings them to the disk.
pub(crate) struct Journal<M> {
    pub(crate) notes: Notes<M>,
    staging: Staging<M>,
    policy: SyncPolicy,
    pub(crate) clock: Arc<dyn Clock>,
    draining: Box<dyn Draining>,
    pub(crate) snapshots: Box<dyn Snapshots>,
    bytes: Vec<u8>,
    /// Bytes appended since the last snapshot began.
    pub(crate) since_snapshot: u64,
}

impl<M> fmt::Debug for Journal<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<M: NodeMemory> Journal<M> {
    pub(crate) fn new(
        notes: Notes<M>,
        staging: Staging<M>,
        policy: SyncPolicy,
        draining: Box<dyn Draining>,
        snapshots: Box<dyn Snapshots>,
    ) -> Self {
        let clock = Arc::new(SystemClock);
        Self { notes, staging, policy, clock, draining, snapshots, bytes: Vec::new(), since_snapshot: 0 }
    }

    /// Whether effects wait for the disk before anybody sees them.
    pub(crate) fn syncs_first(&self) -> bool {
        self.policy == SyncPolicy::Always
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.staging.lineage()
    }

    /// Writes an effect down. From here on the end of the process does not undo it. Waits for the disk if the staging ring
    /// is full.
    pub(crate) fn append<K: KeySpace>(
        &mut self,
        entry: &Entry<'_, impl Borrow<K::Key>>,
    ) -> Result<Lsn, JournalError> {
        if let Some(failure) = self.staging.failure() {
            return Err(failure.into());
        }
        entry.encode::<K>(&mut self.bytes);
        loop {
            match self.staging.append(&self.bytes) {
                Ok(lsn) => {
                    self.since_snapshot += self.bytes.len() as u64;
                    return Ok(lsn);
                }
                Err(AppendError::Full) => self.wait_for_disk()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets the disk get on.
    fn wait_for_disk(&mut self) -> Result<(), JournalError> {
        self.staging.want_sync(self.staging.last_lsn());
        self.draining.step(self.clock.now())?;
        match self.staging.failure() {
            Some(failure) => Err(failure.into()),
            None => {
                std::thread::yield_now();
                Ok(())
            }
        }
    }

    /// Lets the disk get on; says why it does not, if it does not.
    pub(crate) fn wait_a_little(&mut self) -> Option<String> {
        self.wait_for_disk().err().map(|error| error.to_string())
    }

    /// Waits until an entry is on the disk.
    pub(crate) fn wait_synced(&mut self, lsn: Lsn) -> Result<(), JournalError> {
        while self.synced() < lsn {
            self.wait_for_disk()?;
        }
        Ok(())
    }

    /// Asks for an entry to be brought to the disk soon.
    pub(crate) fn want_synced(&mut self, lsn: Lsn) {
        self.staging.want_sync(lsn);
    }

    /// Whether entries were lost from the log since this was asked last.
    pub(crate) fn has_lost(&mut self) -> bool {
        self.draining.has_lost()
    }

    /// Why the log cannot be written, while it cannot.
    pub(crate) fn failure(&self) -> Option<LogError> {
        self.staging.failure()
    }

    /// The last entry that a crash of the machine does not undo.
    pub(crate) fn synced(&self) -> Lsn {
        self.staging.synced_lsn().unwrap_or(0)
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Lsn {
        self.staging.last_lsn()
    }

    /// Does what nobody else does in the background; says when there is more to do.
    pub(crate) fn work(&mut self) -> Option<Instant> {
        // An error stays with the ring until it is overcome, and writers are told.
        self.draining.step(self.clock.now()).unwrap_or(None)
    }
}
