//! The end of a load: its last segments, and the directory, page by page.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{DirectoryPage, RootEntry, TableRecord, encode_root};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use xxhash_rust::xxh3::xxh3_64;

use super::finishing::{Finished, Finishing};
use super::{LoadError, Loader};
use crate::allocator::Exhausted;
use crate::space::Extent;
use crate::table::room::directory_reserve::SeparatorBytes;
use crate::table::room::fullness::kept_for_compaction_of;
use crate::uploads::Upload;

impl<K: BuildKeys> Loader<K> {
    /// Writes some more of what ends the load: the last segments, then pages of the directory;
    /// `true` if all is written.
    pub(crate) fn step_finish(&mut self, region: &impl NodeMemory) -> Result<bool, LoadError> {
        /// Bytes of pages of one step: a hundred microseconds.
        const BYTES: usize = 64 << 10;
        let Some(mut finishing) = self.finishing.take() else {
            K::finish(&mut self.cutter, &mut self.cut);
            if self.cut.is_empty() {
                self.cut.push(Self::empty_segment());
            }
            self.write_cut(region, true)?;
            self.finishing = Some(Finishing::default());
            return Ok(false);
        };
        let first = finishing.next;
        for _ in 0..BYTES / K::PAGE_BYTES {
            if finishing.next == self.descriptors.len() {
                break;
            }
            let next = &self.descriptors[finishing.next..];
            // A page has no room for more.
            let next = &next[..next.len().min(DirectoryPage::most_descriptors::<K>())];
            let (page, count) = DirectoryPage::encode(next, 0);
            let offset = self.allocator.allocate(K::PAGE_BYTES).map_err(|Exhausted| self.full())?;
            finishing.published.push(Extent::new(offset, K::PAGE_BYTES as u64));
            region.write_bytes(offset, &page)?;
            finishing.root.push(RootEntry { start: next[0].start.clone(), page: offset });
            finishing.next += count;
        }
        self.index(&mut finishing, first);
        let is_whole = finishing.next == self.descriptors.len();
        self.finishing = Some(finishing);
        Ok(is_whole)
    }

    /// Takes the segments whose descriptors were written, from `first` on, into the memory node's
    /// own directory.
    fn index(&self, finishing: &mut Finishing<K>, first: usize) {
        let written = &self.descriptors[first..finishing.next];
        let Some(start) = written.first().map(|d| &d.start) else { return };
        let entries: Vec<_> = written.iter().map(|d| (d.start.clone(), Segment::from(d))).collect();
        let bytes = |(_, segment): &(_, Segment<K>)| self.geometry.segment_bytes(segment.model().cap) as u64;
        finishing.segment_bytes += entries.iter().map(bytes).sum::<u64>();
        if K::FIXED_BYTES.is_none() {
            let before = first.checked_sub(1).map(|before| self.descriptors[before].start.clone());
            let new = written.iter().map(|d| d.start.clone());
            finishing.separators.replace::<K>(before, std::iter::empty(), new);
        }
        // A load's keys ascend, and so do the first keys of its segments.
        let placed = finishing.directory.replace(start.borrow(), None, &entries);
        placed.expect("segments in key order, after the others");
    }

    /// Ends the load: writes what is still to be written of the last segments and the directory,
    /// and returns the record to publish, the allocator after it, and the next unused generation.
    pub(crate) fn finish(&mut self, region: &impl NodeMemory) -> Result<Finished<K>, LoadError> {
        while !self.step_finish(region)? {}
        let Finishing { root, mut published, directory, separators, segment_bytes, .. } =
            self.finishing.take().unwrap_or_default();
        let bytes = encode_root::<K>(&root);
        let offset = self.allocator.allocate(bytes.len()).map_err(|Exhausted| self.full())?;
        region.write_bytes(offset, &bytes)?;
        published.push(Extent::new(offset, bytes.len() as u64));
        self.leave_room(&separators)?;
        let encoders = K::encode_encoders(&self.encoders);
        region.write_bytes(self.encoders_at, &encoders)?;
        let record = TableRecord {
            parameters: self.parameters,
            keys: self.keys,
            segments: self.descriptors.len() as u64,
            root: offset,
            pages: root.len() as u64,
            root_checksum: xxh3_64(&bytes),
            used: self.allocator.used(),
            at_home: self.at_home,
            checkpoint: 0,
            log: self.log,
            log_records: self.log_records,
            root_bytes: bytes.len() as u64,
            encoders: self.encoders_at,
            encoders_bytes: encoders.len() as u64,
            encoders_checksum: xxh3_64(&encoders),
        };
        let ahead = std::mem::take(&mut self.ahead);
        self.unused.extend(ahead.values().filter_map(Upload::memory));
        Ok(Finished {
            record,
            unused: std::mem::take(&mut self.unused),
            directory,
            separators,
            segment_bytes,
            encoders: std::mem::take(&mut self.encoders),
            published,
            used: self.allocator.used(),
            next_generation: self.next_generation,
            external: std::mem::take(&mut self.external),
        })
    }

    /// Whether there is the memory that replacing the table's segments needs to begin with: in a
    /// region that its load filled to the brim, not even what was deleted could ever be used again.
    fn leave_room(&self, separators: &SeparatorBytes) -> Result<(), LoadError> {
        let grant = self.allocator.grant();
        let directory = separators.directory_room::<K>(self.descriptors.len() as u64);
        let needed = directory.bytes(K::PAGE_BYTES as u64) + kept_for_compaction_of(grant.reach());
        // What is restored was there before, and is served as far as it can be.
        let has_room = self.allocator.used() + needed <= grant.reach() || grant.is_restoring();
        if has_room { Ok(()) } else { Err(self.full()) }
    }

    /// Drops some of the memory of an aborted load, for about a tenth of a millisecond; `true` if
    /// there is more.
    pub(crate) fn step_drop(&mut self) -> bool {
        const SEGMENTS: usize = 1024;
        if let Some(finishing) = &mut self.finishing {
            // Pages and segments of the directory, whose separators are as many allocations.
            finishing.root.truncate(finishing.root.len().saturating_sub(SEGMENTS));
            let kept = self.descriptors.len().saturating_sub(SEGMENTS);
            if let Some(from) = self.descriptors.get(kept).filter(|_| kept > 0)
                && kept < finishing.next
            {
                // Nothing in their place: that cannot be out of order.
                let _ = finishing.directory.replace(from.start.borrow(), None, &[]);
            }
        }
        self.descriptors.truncate(self.descriptors.len().saturating_sub(SEGMENTS));
        // The operating system takes a millisecond for what very many had, if it gets that back at
        // once.
        self.descriptors.shrink_to_fit();
        !self.descriptors.is_empty()
    }
}
