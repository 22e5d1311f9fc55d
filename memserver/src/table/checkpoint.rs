//! The directory in the region, for readers that begin: written in steps, from a clone of the memory node's own, while
//! changes go on. The change log tells what happened since.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Descriptor, DirectoryPage, RootEntry, TableRecord, encode_root};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::Directory;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Table, TableError};
use crate::space::{Extent, Space};
use crate::superblock_writer::SuperblockWriter;

/// Pages written in one step: a few tens of microseconds.
const PAGES_PER_STEP: usize = 32;

/// The share of the memory in use that waits for the next directory at most, about.
const WAITING_SHARE: u64 = 32;

/// A directory that is being written.
#[derive(Debug)]
pub(super) struct Checkpoint<K: BuildKeys> {
    directory: Directory<K::Key, Segment<K>>,
    /// The log head when the directory was this.
    sequence: u64,
    keys: u64,
    at_home: u64,
    /// First key of the segments that are still to be written; `None` if all are.
    next: Option<K::Owned>,
    root: Vec<RootEntry<K>>,
    extents: Vec<Extent>,
}

/// Memory for the next directory, kept from segments: without a directory that lacks it, no memory could be used again.
#[derive(Debug, Default)]
pub(super) struct Aside {
    pages: Vec<Extent>,
    root: Option<Extent>,
}

/// Where separators vary in length: what those of a directory come to in its pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Separators {
    /// Bytes that each does not share with the one before.
    own: u64,
    /// Bytes of the longest there has been.
    longest: u64,
}

impl Separators {
    pub(crate) fn of<K: BuildKeys>(directory: &Directory<K::Key, Segment<K>>) -> Self {
        let mut separators = Self::default();
        if K::FIXED_BYTES.is_none() {
            separators.own = separators.measure::<K>(None, directory.iter().map(|(lo, _)| lo));
        }
        separators
    }

    /// Bytes that separators in order do not share with the one before each.
    fn measure<K: BuildKeys>(
        &mut self,
        before: Option<K::Owned>,
        all: impl Iterator<Item = K::Owned>,
    ) -> u64 {
        let (mut before, mut own) = (before, 0);
        for lo in all {
            let shared = before.as_ref().map_or(0, |before| K::shared(before.borrow(), lo.borrow()));
            let bytes = K::encoded_len(lo.borrow());
            own += (bytes - shared) as u64;
            self.longest = self.longest.max(bytes as u64);
            before = Some(lo);
        }
        own
    }

    /// Takes note that separators of a directory that come after `before` give way to others; each side ends with the one after
    /// them all, if there is one.
    pub(crate) fn replace<K: BuildKeys>(
        &mut self,
        before: Option<K::Owned>,
        old: impl Iterator<Item = K::Owned>,
        new: impl Iterator<Item = K::Owned>,
    ) {
        let old = self.measure::<K>(before.clone(), old);
        let new = self.measure::<K>(before, new);
        self.own = (self.own + new).saturating_sub(old);
    }

    /// Most pages that so many segments take with separators like these, and most bytes of a page's entry in the root.
    fn pages<K: BuildKeys>(&self, segments: u64) -> (u64, u64) {
        /// Bytes of a descriptor beside its separator's own ones.
        const DESCRIPTOR: u64 = 40;
        let own = self.own + self.own / 4;
        // A page repeats what its first separator shares with the one before, and may end before one that does not fit.
        let usable = (K::PAGE_BYTES as u64 - 16).saturating_sub(2 * (DESCRIPTOR + self.longest));
        let pages = (segments * DESCRIPTOR + own) / usable.max(DESCRIPTOR) + 2;
        (pages, 16 + self.longest)
    }
}

impl Aside {
    /// Makes up what is missing for a directory of so many pages, from the free memory; `false` if that has not enough.
    fn fill(&mut self, pages: u64, page_bytes: u64, root_bytes: u64, space: &mut Space) -> bool {
        while (self.pages.len() as u64) < pages {
            match space.take(page_bytes) {
                Some(page) => self.pages.push(page),
                None => return false,
            }
        }
        // Some more than needed, so that they are not taken and given back in turns.
        while self.pages.len() as u64 > 2 * pages {
            self.pages.pop().into_iter().for_each(|page| space.put(page));
        }
        let fits = self.root.is_some_and(|root| root.len >= root_bytes);
        if !fits || self.root.is_some_and(|root| root.len > 4 * root_bytes.max(64)) {
            // Some more, so that it does not move with every page.
            match space.take(root_bytes + root_bytes / 4) {
                Some(root) => self.root.replace(root).into_iter().for_each(|old| space.put(old)),
                None if fits => {}
                None => return false,
            }
        }
        true
    }

    /// Gives back what meets bytes that are being emptied.
    pub(super) fn leave(&mut self, emptied: &Range<u64>, space: &mut Space) {
        let (leaving, staying) = self.pages.drain(..).partition(|page| page.meets(emptied));
        self.pages = staying;
        let leaving: Vec<Extent> = leaving;
        let root = self.root.take_if(|root| root.meets(emptied));
        leaving.into_iter().chain(root).for_each(|extent| space.put(extent));
    }
}

impl<K: BuildKeys> Table<K> {
    /// Whether the memory that the next directory needs is there.
    pub(super) fn set_aside(&mut self) -> bool {
        // Room for a quarter more segments by the time it is written.
        let segments = self.directory.len() as u64;
        let segments = segments + segments / 4;
        let (pages, entry) = match K::FIXED_BYTES {
            Some(bytes) => (segments / DirectoryPage::most_descriptors::<K>() as u64 + 2, bytes as u64 + 8),
            None => self.publication.separators.pages::<K>(segments),
        };
        self.publication.aside.fill(pages, K::PAGE_BYTES as u64, pages * entry, &mut self.space)
    }

    /// Whether a new directory is due: one is begun, half of the log was used since the last, or memory waits for one.
    pub(super) fn wants_checkpoint<M>(&self, superblock: &SuperblockWriter<K, M>) -> bool
    where
        M: NodeMemory,
    {
        let since = superblock.current().log_head - self.record.checkpoint;
        // Memory in quarantine can be used again only when a directory without it is there.
        let (waiting, free) = (self.space.quarantined_bytes(), self.space.free_bytes());
        let in_use = superblock.grant.reach().saturating_sub(free + waiting);
        let pressed = waiting > (free / 2).min(in_use / WAITING_SHARE)
            && self.space.newest_tag(self.record.checkpoint).is_none()
            && since > 0;
        self.publication.checkpoint.is_some()
            || self.publication.wanted && since > 0
            || since > self.record.log_records / 2
            || pressed
    }

    /// Writes some more of a new directory; the last step publishes it.
    pub(super) fn step_checkpoint<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<(), TableError> {
        let mut checkpoint = match self.publication.checkpoint.take() {
            Some(checkpoint) => checkpoint,
            None => self.begin_checkpoint(superblock),
        };
        match self.write_pages(superblock, &mut checkpoint) {
            Ok(()) if checkpoint.next.is_some() => self.publication.checkpoint = Some(checkpoint),
            Ok(()) => self.publish_checkpoint(superblock, checkpoint)?,
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
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<(), TableError> {
        let head = superblock.current().log_head;
        while self.record.checkpoint < head {
            // One that was begun before may be too old by now: then another follows.
            self.step_checkpoint(superblock)?;
        }
        Ok(())
    }

    fn begin_checkpoint<M>(&self, superblock: &SuperblockWriter<K, M>) -> Checkpoint<K>
    where
        M: NodeMemory,
    {
        Checkpoint {
            directory: self.directory.clone(),
            sequence: superblock.current().log_head,
            keys: self.keys,
            at_home: self.at_home,
            next: self.directory.iter().next().map(|(lo, _)| lo),
            root: Vec::new(),
            extents: Vec::new(),
        }
    }

    fn write_pages<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        checkpoint: &mut Checkpoint<K>,
    ) -> Result<(), TableError> {
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
                None => self.allocate(superblock, K::PAGE_BYTES as u64)?,
            };
            checkpoint.extents.push(extent);
            superblock.region.write_bytes(extent.offset, &page)?;
            checkpoint.root.push(RootEntry { lo: descriptors[0].lo.clone(), page: extent.offset });
            descriptors.drain(..count);
        }
        let next = descriptors.into_iter().next().map(|d| d.lo).or_else(|| entries.next().map(|(lo, _)| lo));
        checkpoint.next = next;
        Ok(())
    }

    fn publish_checkpoint<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        mut checkpoint: Checkpoint<K>,
    ) -> Result<(), TableError> {
        let bytes = encode_root::<K>(&checkpoint.root);
        let aside = self.publication.aside.root.take_if(|root| root.len >= bytes.len() as u64);
        let root = match aside.map_or_else(|| self.allocate(superblock, bytes.len() as u64), Ok) {
            Ok(extent) => extent,
            Err(error) => {
                checkpoint.extents.iter().for_each(|extent| self.space.put(*extent));
                return Err(error);
            }
        };
        checkpoint.extents.push(root);
        superblock.region.write_bytes(root.offset, &bytes)?;
        let record = TableRecord {
            keys: checkpoint.keys,
            segments: checkpoint.directory.len() as u64,
            root: root.offset,
            pages: checkpoint.root.len() as u64,
            root_checksum: xxh3_64_with_seed(&bytes, checkpoint.sequence),
            root_bytes: bytes.len() as u64,
            used: self.space.used_end(superblock.grant.end()),
            at_home: checkpoint.at_home.min(checkpoint.keys),
            checkpoint: checkpoint.sequence,
            ..self.record
        };
        superblock.publish(record)?;
        self.record = record;
        self.publication.wanted = false;
        self.counters.checkpoints += 1;
        // A reader that begins with the old one is told by the reuse sequence, which exceeds the old one's then.
        for extent in std::mem::replace(&mut self.publication.published, checkpoint.extents) {
            self.space.retire(checkpoint.sequence, extent);
        }
        Ok(())
    }
}

fn descriptor<K: BuildKeys>((lo, segment): (K::Owned, &Segment<K>)) -> Descriptor<K> {
    let (tail, model) = (segment.tail(), segment.model());
    Descriptor { lo, tail, model, address: segment.address(), generation: segment.generation() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::{ByteKeys, ByteTail};
    use fpcache::layout::SegmentAddress;
    use fpcache_index::{Line, SegmentModel};
    use proptest::prelude::*;

    fn descriptor_of(lo: &[u8]) -> Descriptor<ByteKeys> {
        let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap: 16, epsilon: 4 };
        let address = SegmentAddress::from_bits(0);
        Descriptor { lo: lo.to_vec(), tail: ByteTail::default(), model, address, generation: 1 }
    }

    fn directory_of(los: &[Vec<u8>]) -> Directory<[u8], Segment<ByteKeys>> {
        let entry = |lo: &Vec<u8>| (lo.clone(), Segment::from(&descriptor_of(lo)));
        Directory::from_sorted(los.iter().map(entry).collect()).expect("in order")
    }

    /// Pages and bytes of the root that the directory takes.
    fn written(los: &[Vec<u8>]) -> (u64, u64) {
        let descriptors: Vec<_> = los.iter().map(|lo| descriptor_of(lo)).collect();
        let (mut root, mut next) = (Vec::new(), 0);
        while next < los.len() {
            root.push(RootEntry { lo: los[next].clone(), page: 0 });
            next += DirectoryPage::encode(&descriptors[next..], 0).1;
        }
        (root.len() as u64, encode_root::<ByteKeys>(&root).len() as u64)
    }

    fn separators() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let lo = (0..3usize, 0..4000usize, prop::collection::vec(any::<u8>(), 1..60))
            .prop_map(|(kind, deep, rest)| [&vec![b'x'; [0, 40, deep][kind]][..], &rest].concat());
        prop::collection::btree_set(lo, 1..400).prop_map(|los| los.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn what_is_set_aside_for_separators_of_any_length_is_enough(
            los in separators(), from in any::<prop::sample::Index>(), gone in 0..20usize, come in separators(),
        ) {
            let mut separators = Separators::of::<ByteKeys>(&directory_of(&los));
            let enough = |separators: &Separators, los: &[Vec<u8>]| {
                let (pages, entry) = separators.pages::<ByteKeys>(los.len() as u64);
                let (needed, root) = written(los);
                prop_assert!(needed <= pages && root <= pages * entry, "{needed} pages and {root} bytes, not {pages}");
                Ok(())
            };
            enough(&separators, &los)?;
            // Some give way to others, as in a change.
            let from = from.index(los.len());
            let end = (from + gone).min(los.len());
            let between = |lo: &&Vec<u8>| (from == 0 || **lo > los[from - 1]) && los.get(end).is_none_or(|end| *lo < end);
            let come: Vec<Vec<u8>> = come.iter().filter(between).cloned().collect();
            let old = los[from..].iter().take(end - from + 1).cloned();
            let new = come.iter().chain(los.get(end)).cloned();
            separators.replace::<ByteKeys>(from.checked_sub(1).map(|before| los[before].clone()), old, new);
            let now = [&los[..from], &come, &los[end..]].concat();
            prop_assert_eq!(separators.own, Separators::of::<ByteKeys>(&directory_of(&now)).own);
            enough(&separators, &now)?;
        }
    }
}
