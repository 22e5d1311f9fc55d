//! The directory in the region, for readers that begin: written in steps, from a clone of the memory node's own, while
//! changes go on. The change log tells what happened since.

use fpcache::key_space::KeySpace;
use fpcache::layout::{
    DESCRIPTORS_PER_PAGE, Descriptor, DirectoryPage, PAGE_BYTES, ROOT_ENTRY_BYTES, RootEntry, TableRecord,
    encode_root,
};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::Directory;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Table, TableError};
use crate::front::Front;
use crate::space::{Extent, Space};

/// Pages written in one step: a few tens of microseconds.
const PAGES_PER_STEP: usize = 32;

/// A directory that is being written.
#[derive(Debug)]
pub(super) struct Checkpoint<K: KeySpace> {
    directory: Directory<K::Key, Segment>,
    /// The log head when the directory was this.
    sequence: u64,
    keys: u64,
    at_home: u64,
    /// First key of the segments that are still to be written; `None` if all are.
    next: Option<K::Key>,
    root: Vec<RootEntry>,
    extents: Vec<Extent>,
}

/// Memory for the next directory, kept from segments: without a directory that lacks it, no memory could be used again.
#[derive(Debug, Default)]
pub(super) struct Aside {
    pages: Vec<Extent>,
    root: Option<Extent>,
}

impl Aside {
    /// Makes up what is missing for a directory of so many segments, from the free memory; `false` if that has not enough.
    fn fill(&mut self, segments: u64, space: &mut Space) -> bool {
        // Room for a quarter more segments by the time it is written.
        let pages = (segments + segments / 4) / DESCRIPTORS_PER_PAGE as u64 + 2;
        let root_bytes = pages * ROOT_ENTRY_BYTES as u64;
        while (self.pages.len() as u64) < pages {
            match space.take(PAGE_BYTES as u64) {
                Some(page) => self.pages.push(page),
                None => return false,
            }
        }
        if self.root.is_none_or(|root| root.len < root_bytes) {
            // Some more, so that it does not move with every page.
            let Some(root) = space.take(root_bytes + root_bytes / 4) else { return false };
            if let Some(old) = self.root.replace(root) {
                space.put(old);
            }
        }
        true
    }
}

impl<K: KeySpace> Table<K> {
    /// Whether the memory that the next directory needs is there.
    pub(super) fn set_aside(&mut self) -> bool {
        self.aside.fill(self.directory.len() as u64, &mut self.space)
    }

    /// Whether a new directory is due: one is begun, half of the log was used since the last, or memory waits for one.
    pub(super) fn wants_checkpoint<M>(&self, front: &Front<K, M>) -> bool
    where
        M: NodeMemory,
    {
        let since = front.superblock().log_head - self.record.checkpoint;
        // Memory in quarantine can be used again only when a directory without it is there.
        let pressed = self.space.quarantined_bytes() > self.space.free_bytes() / 2
            && self.space.newest_tag(self.record.checkpoint).is_none()
            && since > 0;
        self.checkpoint.is_some()
            || self.directory_wanted && since > 0
            || since > self.record.log_records / 2
            || pressed
    }

    /// Writes some more of a new directory; the last step publishes it.
    pub(super) fn step_checkpoint<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
    ) -> Result<(), TableError> {
        let mut checkpoint = match self.checkpoint.take() {
            Some(checkpoint) => checkpoint,
            None => self.begin_checkpoint(front),
        };
        match self.write_pages(front, &mut checkpoint) {
            Ok(()) if checkpoint.next.is_some() => self.checkpoint = Some(checkpoint),
            Ok(()) => self.publish_checkpoint(front, checkpoint)?,
            Err(error) => {
                checkpoint.extents.iter().for_each(|extent| self.space.put(*extent));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes a directory that contains every change so far, at once.
    pub(crate) fn finish_checkpoint<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
    ) -> Result<(), TableError> {
        let head = front.superblock().log_head;
        while self.record.checkpoint < head {
            // One that was begun before may be too old by now: then another follows.
            self.step_checkpoint(front)?;
        }
        Ok(())
    }

    fn begin_checkpoint<M>(&self, front: &Front<K, M>) -> Checkpoint<K>
    where
        M: NodeMemory,
    {
        Checkpoint {
            directory: self.directory.clone(),
            sequence: front.superblock().log_head,
            keys: self.keys,
            at_home: self.at_home,
            next: self.directory.iter().next().map(|(lo, _)| *lo),
            root: Vec::new(),
            extents: Vec::new(),
        }
    }

    fn write_pages<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        checkpoint: &mut Checkpoint<K>,
    ) -> Result<(), TableError> {
        let Some(from) = checkpoint.next.take() else { return Ok(()) };
        let wanted = PAGES_PER_STEP * DESCRIPTORS_PER_PAGE;
        let mut entries = checkpoint.directory.range_from(&from).peekable();
        let descriptors: Vec<_> = entries.by_ref().take(wanted).map(descriptor::<K>).collect();
        let next = entries.peek().map(|(lo, _)| **lo);
        for page in descriptors.chunks(DESCRIPTORS_PER_PAGE) {
            let extent = match self.aside.pages.pop() {
                Some(extent) => extent,
                None => self.allocate(front, PAGE_BYTES as u64)?,
            };
            checkpoint.extents.push(extent);
            front.region.write_bytes(extent.offset, &DirectoryPage::encode(page, checkpoint.sequence))?;
            checkpoint.root.push(RootEntry { lo: page[0].lo, page: extent.offset });
        }
        checkpoint.next = next;
        Ok(())
    }

    fn publish_checkpoint<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        mut checkpoint: Checkpoint<K>,
    ) -> Result<(), TableError> {
        let bytes = encode_root(&checkpoint.root);
        let aside = self.aside.root.take_if(|root| root.len >= bytes.len() as u64);
        let root = match aside.map_or_else(|| self.allocate(front, bytes.len() as u64), Ok) {
            Ok(extent) => extent,
            Err(error) => {
                checkpoint.extents.iter().for_each(|extent| self.space.put(*extent));
                return Err(error);
            }
        };
        checkpoint.extents.push(root);
        front.region.write_bytes(root.offset, &bytes)?;
        let record = TableRecord {
            keys: checkpoint.keys,
            segments: checkpoint.directory.len() as u64,
            root: root.offset,
            pages: checkpoint.root.len() as u64,
            root_checksum: xxh3_64_with_seed(&bytes, checkpoint.sequence),
            used: self.space.used_end(front.superblock().region_bytes),
            at_home: checkpoint.at_home.min(checkpoint.keys),
            checkpoint: checkpoint.sequence,
            ..self.record
        };
        front.publish(record)?;
        self.record = record;
        self.directory_wanted = false;
        self.counters.checkpoints += 1;
        // A reader that begins with the old one is told by the reuse sequence, which exceeds the old one's then.
        for extent in std::mem::replace(&mut self.published, checkpoint.extents) {
            self.space.retire(checkpoint.sequence, extent);
        }
        Ok(())
    }
}

fn descriptor<K: KeySpace>((lo, segment): (&K::Key, &Segment)) -> Descriptor {
    let (model, address, generation) = (segment.model(), segment.address(), segment.generation());
    Descriptor { lo: K::coordinate(lo), model, address, generation }
}
