//! Memory set aside for the next directory.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache::layout::DirectoryPage;
use fpcache::models::Segment;
use fpcache_index::Directory;

use crate::space::{Extent, Space};

/// Memory for the next directory, kept from segments: without a directory that lacks it, no memory
/// could be used again.
#[derive(Debug, Default)]
pub(super) struct DirectoryReserve {
    pub(super) pages: Vec<Extent>,
    pub(super) root: Option<Extent>,
}

/// What a directory takes of the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryRoom {
    pages: u64,
    root_bytes: u64,
}

impl DirectoryRoom {
    /// Bytes that [`DirectoryReserve::fill`] takes where it has nothing yet, for pages of
    /// `page_bytes` bytes.
    pub(crate) fn bytes(self, page_bytes: u64) -> u64 {
        self.pages * page_bytes + with_some_more(self.root_bytes).next_multiple_of(8)
    }
}

/// Bytes to take for a root, so that it does not move with every page.
fn with_some_more(root_bytes: u64) -> u64 {
    root_bytes + root_bytes / 4
}

/// Where separators vary in length: what those of a directory take in its pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeparatorBytes {
    /// Bytes that each does not share with the one before.
    own: u64,
    /// Bytes of the longest there has been.
    longest: u64,
}

impl SeparatorBytes {
    pub(crate) fn of<K: BuildKeys>(directory: &Directory<K::Key, Segment<K>>) -> Self {
        let mut separators = Self::default();
        if K::FIXED_BYTES.is_none() {
            separators.own = separators.measure::<K>(None, directory.iter().map(|(start, _)| start));
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
        for start in all {
            let shared = before.as_ref().map_or(0, |before| K::shared(before.borrow(), start.borrow()));
            let bytes = K::encoded_len(start.borrow());
            own += (bytes - shared) as u64;
            self.longest = self.longest.max(bytes as u64);
            before = Some(start);
        }
        own
    }

    /// Takes note that separators of a directory that come after `before` give way to others; each
    /// side ends with the one after them all, if there is one.
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

    /// What the next directory takes at most, if this one has that many segments: there may be a
    /// quarter more by the time it is written.
    pub(crate) fn directory_room<K: BuildKeys>(&self, segments: u64) -> DirectoryRoom {
        let segments = segments + segments / 4;
        let (pages, entry) = match K::FIXED_BYTES {
            Some(bytes) => (segments / DirectoryPage::most_descriptors::<K>() as u64 + 2, bytes as u64 + 8),
            None => self.pages::<K>(segments),
        };
        DirectoryRoom { pages, root_bytes: pages * entry }
    }

    /// Most pages that `segments` segments take with separators like these, and most bytes of a
    /// page's entry in the root.
    fn pages<K: BuildKeys>(&self, segments: u64) -> (u64, u64) {
        /// Bytes of a descriptor beside its separator's own ones.
        const DESCRIPTOR: u64 = 40;
        let own = self.own + self.own / 4;
        // A page repeats what its first separator shares with the one before, and may end before
        // one that does not fit.
        let usable = (K::PAGE_BYTES as u64 - 16).saturating_sub(2 * (DESCRIPTOR + self.longest));
        let pages = (segments * DESCRIPTOR + own) / usable.max(DESCRIPTOR) + 2;
        (pages, 16 + self.longest)
    }
}

impl DirectoryReserve {
    /// Adds what is missing for a directory, from free memory; `false` if there is not enough, and
    /// nothing is kept of what there was, which others may need to free more.
    pub(super) fn fill(&mut self, needed: DirectoryRoom, page_bytes: u64, space: &mut Space) -> bool {
        let before = self.pages.len();
        let is_filled = self.take_missing(needed, page_bytes, space);
        if !is_filled {
            // There may be fewer than before: those that were too many have gone.
            let kept = before.min(self.pages.len());
            self.pages.drain(kept..).for_each(|page| space.put(page));
        }
        is_filled
    }

    fn take_missing(&mut self, needed: DirectoryRoom, page_bytes: u64, space: &mut Space) -> bool {
        let DirectoryRoom { pages, root_bytes } = needed;
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
            match space.take(with_some_more(root_bytes)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::{ByteKeys, ByteTail};
    use fpcache::layout::{Descriptor, DirectoryPage, RootEntry, SegmentAddress, encode_root};
    use fpcache_index::{Line, SegmentModel};
    use proptest::prelude::*;

    fn descriptor_of(start: &[u8]) -> Descriptor<ByteKeys> {
        let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap: 16, epsilon: 4 };
        let address = SegmentAddress::from_bits(0);
        Descriptor { start: start.to_vec(), tail: ByteTail::default(), model, address, generation: 1 }
    }

    fn directory_of(starts: &[Vec<u8>]) -> Directory<[u8], Segment<ByteKeys>> {
        let entry = |start: &Vec<u8>| (start.clone(), Segment::from(&descriptor_of(start)));
        Directory::from_sorted(starts.iter().map(entry).collect()).expect("in order")
    }

    /// Pages and bytes of the root that the directory takes.
    fn written(starts: &[Vec<u8>]) -> (u64, u64) {
        let descriptors: Vec<_> = starts.iter().map(|start| descriptor_of(start)).collect();
        let (mut root, mut next) = (Vec::new(), 0);
        while next < starts.len() {
            root.push(RootEntry { start: starts[next].clone(), page: 0 });
            next += DirectoryPage::encode(&descriptors[next..], 0).1;
        }
        (root.len() as u64, encode_root::<ByteKeys>(&root).len() as u64)
    }

    #[test]
    fn what_cannot_be_had_whole_is_left_to_others() {
        const PAGE: u64 = 4096;
        let free = Extent { offset: 0, len: 5 * PAGE };
        let (mut aside, mut space) = (DirectoryReserve::default(), Space::new([free]));
        let needed = |pages, root_bytes| DirectoryRoom { pages, root_bytes };
        assert!(aside.fill(needed(2, 64), PAGE, &mut space));
        let left = space.free_bytes();
        // Too many pages; and room for all of these, but not for the root.
        assert!(!aside.fill(needed(6, 64), PAGE, &mut space));
        assert!(!aside.fill(needed(4, 2 * PAGE), PAGE, &mut space));
        assert_eq!((space.free_bytes(), aside.pages.len()), (left, 2));
        assert!(aside.fill(needed(4, 64), PAGE, &mut space));
    }

    /// Those beyond twice as many as are needed had gone when the root found no room.
    #[test]
    fn too_many_pages_may_be_set_aside_where_the_root_finds_no_room() {
        const PAGE: u64 = 4096;
        let pages = (0..9).map(|at| Extent { offset: 2 * at * PAGE, len: PAGE }).collect();
        let (mut aside, mut space) = (DirectoryReserve { pages, root: None }, Space::new([]));
        let needed = DirectoryRoom { pages: 2, root_bytes: 2 * PAGE };
        assert!(!aside.fill(needed, PAGE, &mut space));
        assert_eq!((aside.pages.len(), space.free_bytes()), (4, 5 * PAGE));
    }

    fn separators() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let start = (0..3usize, 0..4000usize, prop::collection::vec(any::<u8>(), 1..60))
            .prop_map(|(kind, deep, rest)| [&vec![b'x'; [0, 40, deep][kind]][..], &rest].concat());
        prop::collection::btree_set(start, 1..400).prop_map(|starts| starts.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn what_is_set_aside_for_separators_of_any_length_is_enough(
            starts in separators(), from in any::<prop::sample::Index>(), gone in 0..20usize, come in separators(),
        ) {
            let mut separators = SeparatorBytes::of::<ByteKeys>(&directory_of(&starts));
            let enough = |separators: &SeparatorBytes, starts: &[Vec<u8>]| {
                let (pages, entry) = separators.pages::<ByteKeys>(starts.len() as u64);
                let (needed, root) = written(starts);
                prop_assert!(needed <= pages && root <= pages * entry, "{needed} pages and {root} bytes, not {pages}");
                Ok(())
            };
            enough(&separators, &starts)?;
            // Some give way to others, as in a change.
            let from = from.index(starts.len());
            let end = (from + gone).min(starts.len());
            let is_between = |new: &&Vec<u8>| {
                (from == 0 || **new > starts[from - 1]) && starts.get(end).is_none_or(|end| *new < end)
            };
            let come: Vec<Vec<u8>> = come.iter().filter(is_between).cloned().collect();
            let old = starts[from..].iter().take(end - from + 1).cloned();
            let new = come.iter().chain(starts.get(end)).cloned();
            let before = from.checked_sub(1).map(|before| starts[before].clone());
            separators.replace::<ByteKeys>(before, old, new);
            let now = [&starts[..from], &come, &starts[end..]].concat();
            prop_assert_eq!(separators.own, SeparatorBytes::of::<ByteKeys>(&directory_of(&now)).own);
            enough(&separators, &now)?;
        }
    }
}
