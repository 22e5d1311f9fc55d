//! Checkpoints: the directory in the region, for readers that connect. It is written in steps from
//! a clone of the memory node's directory, while changes go on; the change log has what happened
//! since.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Descriptor, DirectoryPage, RootEntry, TableRecord, encode_root};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::super::error::TableError;
use super::super::segments::Segments;
use super::Room;
use super::publication::Checkpoint;

/// Pages written in one step: a few tens of microseconds.
const PAGES_PER_STEP: usize = 32;

/// The share of the memory in use that waits for the next directory at most, about.
const WAITING_SHARE: u64 = 32;

impl<K: BuildKeys, M: NodeMemory> Room<K, M> {
    /// Reserves the memory that the next directory needs; whether it is there.
    pub(crate) fn reserve_directory(&mut self, segments: &Segments<K, M>) -> bool {
        let needed = self.publication.separators.directory_room::<K>(segments.directory.len() as u64);
        self.publication.aside.fill(needed, K::PAGE_BYTES as u64, &mut self.space)
    }

    /// Whether a new directory is due: one is begun, half of the log was used since the last, or
    /// memory waits for one.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let since = self.log_head() - self.record.checkpoint;
        // Memory in quarantine can be used again only when a directory without it is there.
        let (waiting, free) = (self.space.quarantined_bytes(), self.space.free_bytes());
        let in_use = self.superblock.grant.reach().saturating_sub(free + waiting);
        let pressed = waiting > (free / 2).min(in_use / WAITING_SHARE)
            && self.space.newest_tag(self.record.checkpoint).is_none()
            && since > 0;
        self.publication.checkpoint.is_some()
            || self.publication.wanted.is_some() && since > 0
            || since > self.record.log_records / 2
            || pressed
    }

    /// Writes some more of a new directory; the last step publishes it.
    pub(crate) fn step_checkpoint(&mut self, segments: &Segments<K, M>) -> Result<(), TableError> {
        let mut checkpoint = match self.publication.checkpoint.take() {
            Some(checkpoint) => checkpoint,
            None => Checkpoint::begin(self.log_head(), segments),
        };
        let stepped = match self.write_pages(&mut checkpoint) {
            Ok(()) if checkpoint.next.is_some() => {
                self.publication.checkpoint = Some(checkpoint);
                Ok(())
            }
            Ok(()) => self.publish_checkpoint(checkpoint),
            Err(error) => Err(self.interrupt(checkpoint, error)),
        };
        self.publication.lacks_room |= matches!(stepped, Err(TableError::NoRoom { .. }));
        stepped
    }

    /// Keeps a directory that lacks memory until a lease has ended, and gives up any other that
    /// fails.
    fn interrupt(&mut self, checkpoint: Checkpoint<K>, error: TableError) -> TableError {
        match error {
            TableError::Leased => self.publication.checkpoint = Some(checkpoint),
            _ => checkpoint.extents.iter().for_each(|extent| self.space.put(*extent)),
        }
        error
    }

    /// Writes a directory that contains every change so far, at once.
    pub(crate) fn finish_checkpoint(&mut self, segments: &Segments<K, M>) -> Result<(), TableError> {
        let head = self.log_head();
        while self.record.checkpoint < head {
            // One that was begun before may be too old by now: then another follows.
            self.step_checkpoint(segments)?;
        }
        Ok(())
    }

    fn write_pages(&mut self, checkpoint: &mut Checkpoint<K>) -> Result<(), TableError> {
        let Some(from) = checkpoint.next.take() else { return Ok(()) };
        let most = DirectoryPage::most_descriptors::<K>();
        let mut entries = checkpoint.directory.range_from(from.borrow());
        let mut descriptors = Vec::new();
        for _ in 0..PAGES_PER_STEP {
            descriptors.extend(entries.by_ref().take(most - descriptors.len()).map(descriptor::<K>));
            let (page, count) = DirectoryPage::encode(&descriptors, checkpoint.sequence);
            if count == 0 {
                break;
            }
            let extent = match self.publication.aside.pages.pop() {
                Some(extent) => extent,
                None => self.allocate(K::PAGE_BYTES as u64).inspect_err(|_| {
                    // From this page on it may go on.
                    checkpoint.next = descriptors.first().map(|d| d.start.clone());
                })?,
            };
            checkpoint.extents.push(extent);
            self.superblock.region.write_bytes(extent.offset, &page)?;
            checkpoint.root.push(RootEntry { start: descriptors[0].start.clone(), page: extent.offset });
            descriptors.drain(..count);
        }
        let next = descriptors
            .into_iter()
            .next()
            .map(|d| d.start)
            .or_else(|| entries.next().map(|(start, _)| start));
        checkpoint.next = next;
        Ok(())
    }

    fn publish_checkpoint(&mut self, mut checkpoint: Checkpoint<K>) -> Result<(), TableError> {
        let bytes = encode_root::<K>(&checkpoint.root);
        let aside = self.publication.aside.root.take_if(|root| root.len >= bytes.len() as u64);
        let root = match aside.map_or_else(|| self.allocate(bytes.len() as u64), Ok) {
            Ok(extent) => extent,
            Err(error) => return Err(self.interrupt(checkpoint, error)),
        };
        checkpoint.extents.push(root);
        self.superblock.region.write_bytes(root.offset, &bytes)?;
        let record = TableRecord {
            keys: checkpoint.keys,
            segments: checkpoint.directory.len() as u64,
            root: root.offset,
            pages: checkpoint.root.len() as u64,
            root_checksum: xxh3_64_with_seed(&bytes, checkpoint.sequence),
            root_bytes: bytes.len() as u64,
            used: self.space.used_end(self.superblock.grant.end()),
            at_home: checkpoint.at_home.min(checkpoint.keys),
            checkpoint: checkpoint.sequence,
            ..self.record
        };
        self.superblock.publish(record)?;
        self.record = record;
        self.publication.wanted.take_if(|head| *head <= checkpoint.sequence);
        self.publication.lacks_room = false;
        // A reader that begins with the old one is told by the reuse sequence, which exceeds the
        // old one's then.
        for extent in std::mem::replace(&mut self.publication.published, checkpoint.extents) {
            self.space.retire(checkpoint.sequence, extent);
        }
        Ok(())
    }
}

fn descriptor<K: BuildKeys>((start, segment): (K::Owned, &Segment<K>)) -> Descriptor<K> {
    let (tail, model) = (segment.tail(), segment.model());
    Descriptor { start, tail, model, address: segment.address(), generation: segment.generation() }
}
