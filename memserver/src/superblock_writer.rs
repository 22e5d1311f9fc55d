//! The writer of a region's superblock, which makes a table's changes visible.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{LOG_HEAD_OFFSET, REUSE_OFFSET, SEQUENCE_OFFSET, Superblock, TableRecord};
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{AccessError, NodeMemory};

use crate::budget::Grant;
use crate::lease::Lease;
use crate::recovery_area::{RecoveryArea, Replaced};

/// The superblock, and the copy of it that readers see.
#[derive(Debug)]
pub(crate) struct SuperblockWriter<K, M> {
    pub(crate) region: Arc<M>,
    /// What of it may be used.
    pub(crate) grant: Arc<Grant>,
    /// Where to note what the next process needs.
    pub(crate) recovery_area: Option<RecoveryArea<M>>,
    superblock: Superblock,
    /// How long readers may believe the reuse sequence.
    pub(crate) lease: Lease,
    keys: PhantomData<K>,
    /// What is broken on purpose.
    pub(crate) sabotage: Option<Sabotage>,
}

impl<K, M> Clone for SuperblockWriter<K, M> {
    fn clone(&self) -> Self {
        Self {
            region: Arc::clone(&self.region),
            grant: Arc::clone(&self.grant),
            recovery_area: self.recovery_area.clone(),
            superblock: self.superblock,
            lease: self.lease.clone(),
            keys: PhantomData,
            sabotage: self.sabotage,
        }
    }
}

impl<K: BuildKeys, M: NodeMemory> SuperblockWriter<K, M> {
    /// Writes the superblock of a region that holds nothing yet.
    pub(crate) fn create(region: Arc<M>, grant: Arc<Grant>, incarnation: u64) -> Result<Self, AccessError> {
        let superblock = Superblock {
            incarnation,
            region_bytes: region.len(),
            sequence: 0,
            reuse_sequence: 0,
            log_head: 0,
            table: None,
        };
        let writer = Self {
            region,
            grant,
            recovery_area: None,
            superblock,
            lease: Lease::default(),
            keys: PhantomData,
            sabotage: None,
        };
        writer.region.write_bytes(0, &writer.superblock.encode::<K>())?;
        Ok(writer)
    }

    /// Goes on with the superblock that was found in a region.
    pub(crate) fn resume(
        region: Arc<M>,
        grant: Arc<Grant>,
        lease: Lease,
        recovery_area: RecoveryArea<M>,
        superblock: Superblock,
    ) -> Self {
        Self {
            region,
            grant,
            recovery_area: Some(recovery_area),
            superblock,
            lease,
            keys: PhantomData,
            sabotage: None,
        }
    }

    pub(crate) fn current(&self) -> &Superblock {
        &self.superblock
    }

    /// Makes a table's record visible: odd sequence, record, even sequence.
    pub(crate) fn publish(&mut self, record: TableRecord) -> Result<(), AccessError> {
        if let Some(recovery_area) = &self.recovery_area {
            recovery_area.set_record::<K>(&record)?;
        }
        self.superblock.table = Some(record);
        self.rewrite()
    }

    /// Begins another life of the memory node.
    pub(crate) fn renew(&mut self, incarnation: u64) -> Result<(), AccessError> {
        self.superblock.incarnation = incarnation;
        // A writer that died in the midst of a change left an odd sequence.
        self.superblock.sequence = self.superblock.sequence.next_multiple_of(2);
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<(), AccessError> {
        let odd = self.superblock.sequence + 1;
        self.superblock.sequence = odd;
        self.region.store_release(SEQUENCE_OFFSET, odd)?;
        self.region.release();
        self.region.write_bytes(0, &self.superblock.encode::<K>())?;
        self.superblock.sequence = odd + 1;
        self.region.store_release(SEQUENCE_OFFSET, odd + 1)
    }

    /// Notes which segments are about to be replaced by the change after which the log head is
    /// `head`.
    pub(crate) fn begin_change(
        &self,
        head: u64,
        old: impl Iterator<Item = Replaced>,
    ) -> Result<(), AccessError> {
        match &self.recovery_area {
            Some(recovery_area) => recovery_area.begin_change(head, &old.collect::<Vec<_>>()),
            None => Ok(()),
        }
    }

    /// The segments that were to be replaced are frozen.
    pub(crate) fn end_change(&self) -> Result<(), AccessError> {
        self.recovery_area.as_ref().map_or(Ok(()), RecoveryArea::end_change)
    }

    /// Commits the records of the change log below `head`.
    pub(crate) fn set_log_head(&mut self, head: u64) -> Result<(), AccessError> {
        self.superblock.log_head = head;
        self.region.store_release(LOG_HEAD_OFFSET, head)
    }

    /// Tells readers with directories older than `tag` that memory they know of is reused. A reader
    /// that sees any later store sees this, but for those with a lease, which must have ended
    /// before.
    pub(crate) fn set_reuse(&mut self, tag: u64) -> Result<(), AccessError> {
        if tag > self.superblock.reuse_sequence {
            self.superblock.reuse_sequence = tag;
            self.region.store_relaxed(REUSE_OFFSET, tag)?;
            if !self.lease.length().is_zero() {
                self.region.flush();
                self.lease.begin();
            }
        }
        self.region.release();
        Ok(())
    }

    /// When the lease of readers ends that do not know yet what was last raised, if that is to
    /// come.
    pub(crate) fn lease_ends_at(&mut self) -> Option<Instant> {
        if self.breaks(Sabotage::ReuseWithinLease) { None } else { self.lease.ends_at() }
    }

    /// Waits until all readers know what was last raised.
    pub(crate) fn wait_for_lease(&mut self) {
        if self.lease_ends_at().is_some() {
            self.lease.wait();
        }
    }

    /// Whether this is what is broken on purpose.
    #[inline(always)]
    pub(crate) fn breaks(&self, what: Sabotage) -> bool {
        what.is(self.sabotage)
    }
}
