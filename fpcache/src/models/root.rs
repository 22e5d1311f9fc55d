//! The directory's top level: where each page of descriptors lies and which keys it is for.

use std::borrow::Borrow;
use std::mem::size_of_val;

use super::Segment;
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, Descriptor, DirectoryPage, RootEntry, SegmentGeometry, TableRecord};

/// First key and offset of every page, and what pages are checked against.
#[derive(Clone, Debug)]
pub(crate) struct Root<K: KeySpace> {
    firsts: Box<[K::Owned]>,
    offsets: Box<[u64]>,
    geometry: SegmentGeometry,
    encoders: K::Encoders,
    region_bytes: u64,
    /// The directory's checkpoint; pages of another one are refused.
    checkpoint: u64,
}

impl<K: KeySpace> Root<K> {
    /// Heap bytes of the top level of a directory of this many pages, without what separators have
    /// there.
    pub(crate) const fn heap_bytes(pages: usize) -> usize {
        pages.saturating_mul(size_of::<K::Owned>() + size_of::<u64>())
    }

    /// Checks a root, whose first keys ascend, against the table's record and the region: as many
    /// pages as segments need, inside the region.
    pub(crate) fn new(
        record: &TableRecord,
        entries: Vec<RootEntry<K>>,
        encoders: &K::Encoders,
        region_bytes: u64,
    ) -> Result<Self, Corrupt> {
        let damaged = |why: String| Corrupt::new("directory root", record.root, why);
        if entries.is_empty() || u32::try_from(entries.len()).is_err() {
            return Err(damaged(format!("it lists {} pages", entries.len())));
        }
        let pages = entries.len() as u64;
        if pages != record.pages {
            return Err(damaged(format!("it lists {pages} pages, the table has {}", record.pages)));
        }
        if record.segments < pages || record.segments > pages * DirectoryPage::most_descriptors::<K>() as u64
        {
            return Err(damaged(format!("it lists {pages} pages for {} segments", record.segments)));
        }
        let outside = |e: &&RootEntry<K>| {
            !e.page.is_multiple_of(8) || e.page.saturating_add(K::PAGE_BYTES as u64) > region_bytes
        };
        if let Some(entry) = entries.iter().find(outside) {
            return Err(damaged(format!("no page can lie at {:#x}", entry.page)));
        }
        let offsets = entries.iter().map(|e| e.page).collect();
        let firsts = entries.into_iter().map(|e| e.start).collect();
        let (geometry, checkpoint) = (record.parameters.geometry(), record.checkpoint);
        Ok(Self { firsts, offsets, geometry, encoders: encoders.clone(), region_bytes, checkpoint })
    }

    pub(crate) fn pages(&self) -> usize {
        self.offsets.len()
    }

    /// The numbers of all pages, in key order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + use<K> {
        // Fits: there are no more pages than a u32 counts.
        0..self.pages() as u32
    }

    /// The page for `key`: the last that begins at or below it, or the first.
    #[inline]
    pub(crate) fn page_of(&self, key: &K::Key) -> u32 {
        // Fits: there are no more pages than a u32 counts.
        self.firsts.partition_point(|first| first.borrow() <= key).saturating_sub(1) as u32
    }

    /// Where a page lies; past the region's end, where no READ reaches, if no page has this number.
    #[inline]
    pub(crate) fn address(&self, page: u32) -> u64 {
        self.offsets.get(page as usize).copied().unwrap_or(u64::MAX)
    }

    /// First key after a page.
    #[inline]
    pub(crate) fn first_after(&self, page: u32) -> Option<&K::Owned> {
        self.firsts.get(page as usize + 1)
    }

    /// Decodes the bytes of a page into `out`, which is emptied before. Segments must lie inside
    /// the region, and their first keys must ascend from the one the root gives the page to below
    /// that of the next page.
    pub(crate) fn decode(
        &self,
        page: u32,
        bytes: &[u8],
        out: &mut Vec<Descriptor<K>>,
    ) -> Result<(), Corrupt> {
        let offset = self.address(page);
        let damaged = |why: String| Corrupt::new("directory page", offset, why);
        out.clear();
        DirectoryPage::decode(bytes, offset, self.checkpoint, out)?;
        let begins = out.first().map(|d| &d.start);
        if begins.is_none() || begins != self.firsts.get(page as usize) {
            return Err(damaged("it does not begin at the key that the directory's root gives it".into()));
        }
        let ascending = out.is_sorted_by(|a, b| a.start < b.start);
        let last = out.last().map(|d| &d.start);
        let reaches_over = self.first_after(page).is_some_and(|end| last.is_some_and(|l| l >= end));
        if !ascending || reaches_over {
            return Err(damaged("its segments are out of order".into()));
        }
        match out
            .iter()
            .find(|d| !Segment::is_plausible(d, &self.geometry, self.region_bytes, &self.encoders))
        {
            Some(d) => Err(damaged(format!("the segment at {} cannot lie there", d.address))),
            None => Ok(()),
        }
    }

    /// Heap bytes.
    pub(crate) fn size_in_bytes(&self) -> usize {
        let separators: usize = self.firsts.iter().map(K::heap_bytes).sum();
        size_of_val(&*self.firsts) + size_of_val(&*self.offsets) + separators
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;
    use crate::layout::SegmentAddress;
    use fpcache_index::SegmentModel;

    const REGION_BYTES: u64 = 1 << 16;

    fn descriptor(start: u64) -> Descriptor<U64Keys> {
        Descriptor::example(1, start, ())
    }

    fn record() -> TableRecord {
        TableRecord { segments: 6, root: 4096, pages: 2, ..Default::default() }
    }

    fn entries() -> Vec<RootEntry<U64Keys>> {
        vec![RootEntry { start: 10, page: 8192 }, RootEntry { start: 50, page: 16384 }]
    }

    /// Two pages: keys from 10, and from 50 on.
    fn root() -> Root<U64Keys> {
        Root::new(&record(), entries(), &(), REGION_BYTES).expect("in order")
    }

    #[test]
    fn roots_that_contradict_the_tables_record_are_refused() {
        let refused =
            |record: TableRecord, entries| Root::<U64Keys>::new(&record, entries, &(), REGION_BYTES).is_err();
        assert!(refused(record(), vec![]) && refused(record(), entries()[..1].to_vec()));
        assert!(refused(TableRecord { pages: 3, ..record() }, entries()), "another number of pages");
        assert!(refused(TableRecord { segments: 1, ..record() }, entries()), "fewer segments than pages");
        assert!(refused(TableRecord { segments: 205, ..record() }, entries()), "more than pages hold");
        for page in [8196, REGION_BYTES, !7] {
            assert!(
                refused(record(), vec![RootEntry { start: 10, page: 8192 }, RootEntry { start: 50, page }]),
                "{page}"
            );
        }
    }

    #[test]
    fn pages_that_fit_the_root_are_taken() {
        let (root, mut out) = (root(), Vec::new());
        for (page, keys) in [(0, &[10, 11, 49][..]), (0, &[10]), (1, &[50, u64::MAX])] {
            let all: Vec<_> = keys.iter().map(|start| descriptor(*start)).collect();
            root.decode(page, &DirectoryPage::encode(&all, 0).0, &mut out).expect("in order");
            assert_eq!(out, all);
        }
    }

    #[test]
    fn pages_that_do_not_fit_the_root_are_refused() {
        let (root, mut out) = (root(), Vec::new());
        let keys: [(u32, &[u64]); 9] = [
            (0, &[]),
            (0, &[9]),
            (0, &[11]),
            (0, &[10, 10]),
            (0, &[10, 12, 11]),
            (0, &[10, 50]),
            (1, &[10]),
            (1, &[51]),
            (2, &[50]),
        ];
        for (page, keys) in keys {
            let all: Vec<_> = keys.iter().map(|start| descriptor(*start)).collect();
            let error =
                root.decode(page, &DirectoryPage::encode(&all, 0).0, &mut out).expect_err("out of place");
            assert_eq!(error.offset, root.address(page), "{keys:?}: {error}");
        }
    }

    #[test]
    fn segments_that_cannot_lie_where_they_are_said_to_are_refused() {
        let (root, good) = (root(), descriptor(10));
        let bytes = root.geometry.segment_bytes(good.model.cap) as u64;
        let at = |offset| Descriptor { address: SegmentAddress::from_bits(offset), ..good.clone() };
        let empty = Descriptor { model: SegmentModel { cap: 0, ..good.model }, ..good.clone() };
        let decode = |d| root.decode(0, &DirectoryPage::encode(&[d], 0).0, &mut Vec::new());
        assert_eq!(decode(at(REGION_BYTES - bytes)), Ok(()));
        for bad in [at(REGION_BYTES - bytes + 8), at(8196), at(SegmentAddress::MAX_OFFSET & !7), empty] {
            assert!(decode(bad.clone()).is_err_and(|e| e.offset == 8192), "{bad:?}");
        }
    }

    #[test]
    fn every_key_has_a_page_and_no_other_number_an_address() {
        let root = root();
        assert_eq!([0, 10, 49, 50, u64::MAX].map(|key| root.page_of(&key)), [0, 0, 0, 1, 1]);
        assert_eq!([0, 1, 2, u32::MAX].map(|page| root.address(page)), [8192, 16384, u64::MAX, u64::MAX]);
        assert_eq!([0, 1, u32::MAX].map(|page| root.first_after(page).copied()), [Some(50), None, None]);
    }
}
