//! The end of a load: its last segments, and its directory, page by page.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Descriptor, DirectoryPage, RootEntry, TableRecord, encode_root};
use fpcache_fabric::NodeMemory;
use xxhash_rust::xxh3::xxh3_64;

use super::{LoadError, Loader};
use crate::allocator::Exhausted;
use crate::space::Extent;
use crate::table::extents::ExternalValues;

/// The directory of a load, being written.
#[derive(Debug)]
pub(super) struct Finishing<K: BuildKeys> {
    root: Vec<RootEntry<K>>,
    published: Vec<Extent>,
    /// The next descriptor.
    next: usize,
}

impl<K: BuildKeys> Default for Finishing<K> {
    fn default() -> Self {
        Self { root: Vec::new(), published: Vec::new(), next: 0 }
    }
}

/// What a finished load leaves behind.
#[derive(Debug)]
pub(crate) struct Finished<K: BuildKeys> {
    pub(crate) record: TableRecord,
    pub(crate) descriptors: Vec<Descriptor<K>>,
    pub(crate) encoders: K::Encoders,
    /// Where the directory lies.
    pub(crate) published: Vec<Extent>,
    /// End of the bytes in use.
    pub(crate) used: u64,
    pub(crate) next_generation: u32,
    pub(crate) external: ExternalValues,
}

impl<K: BuildKeys> Loader<K> {
    /// Writes some more of what ends the load: the last segments, then pages of the directory; `true` if all is written.
    pub(crate) fn step_finish(&mut self, region: &impl NodeMemory) -> Result<bool, LoadError> {
        /// Pages of one step: a hundred microseconds.
        const PAGES: usize = 16;
        let Some(mut finishing) = self.finishing.take() else {
            K::finish(&mut self.cutter, &mut self.cut);
            if self.cut.is_empty() {
                self.cut.push(Self::empty_segment());
            }
            self.write_cut(region, true)?;
            self.finishing = Some(Finishing::default());
            return Ok(false);
        };
        for _ in 0..PAGES {
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
            finishing.root.push(RootEntry { lo: next[0].lo.clone(), page: offset });
            finishing.next += count;
        }
        let is_whole = finishing.next == self.descriptors.len();
        self.finishing = Some(finishing);
        Ok(is_whole)
    }

    /// Ends the load: writes what is still to be written of the last segments and the directory, and returns the record to publish,
    /// the allocator after it, and the next unused generation.
    pub(crate) fn finish(mut self, region: &impl NodeMemory) -> Result<Finished<K>, LoadError> {
        while !self.step_finish(region)? {}
        let Finishing { root, mut published, .. } = self.finishing.take().unwrap_or_default();
        let bytes = encode_root::<K>(&root);
        let offset = self.allocator.allocate(bytes.len()).map_err(|Exhausted| self.full())?;
        region.write_bytes(offset, &bytes)?;
        published.push(Extent::new(offset, bytes.len() as u64));
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
        Ok(Finished {
            record,
            descriptors: self.descriptors,
            encoders: self.encoders,
            published,
            used: self.allocator.used(),
            next_generation: self.next_generation,
            external: self.external,
        })
    }
}
