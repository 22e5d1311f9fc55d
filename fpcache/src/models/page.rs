//! One page of the directory, decoded.

use std::borrow::Borrow;

use crate::key_space::KeySpace;
use crate::layout::Descriptor;

use super::Segment;

/// The segments of one directory page, by first key. Never empty, and exactly as large as they need.
#[derive(Debug)]
pub struct Page<K: KeySpace> {
    /// Apart from the segments, so that a search touches few cache lines.
    separators: Box<[K::Owned]>,
    segments: Box<[Segment<K>]>,
}

impl<K: KeySpace> Page<K> {
    /// A page of descriptors that were checked: at least one, ascending.
    pub(super) fn new(descriptors: &[Descriptor<K>]) -> Self {
        debug_assert!(!descriptors.is_empty(), "a page that was checked has segments");
        Self {
            separators: descriptors.iter().map(|d| d.lo.clone()).collect(),
            segments: descriptors.iter().map(Segment::from).collect(),
        }
    }

    /// The segment whose range holds `key`, a key of this page: that with the greatest first key at or below it, or the
    /// first; and how many bytes the key shares with its first key. A binary search.
    #[inline]
    pub fn find_shared(&self, key: &K::Key) -> (&Segment<K>, usize) {
        // Inside: a page holds a segment, and as many segments as separators.
        let at = self.position(key);
        (&self.segments[at], K::shared(key, self.separators[at].borrow()))
    }

    /// The segment whose range holds `key` and those after it in the page, with their first keys.
    pub fn range_from(&self, key: &K::Key) -> impl Iterator<Item = (&K::Owned, &Segment<K>)> {
        self.separators.iter().zip(&self.segments).skip(self.position(key))
    }

    /// The segment whose range holds `key` and those before it in the page, in descending order, with their first keys.
    pub fn range_back_from(&self, key: &K::Key) -> impl Iterator<Item = (&K::Owned, &Segment<K>)> {
        let many = (self.position(key) + 1).min(self.len());
        self.separators[..many].iter().zip(&self.segments[..many]).rev()
    }

    /// The last segment of the page, with its first key.
    pub fn last(&self) -> Option<(&K::Owned, &Segment<K>)> {
        self.separators.last().zip(self.segments.last())
    }

    #[inline]
    fn position(&self, key: &K::Key) -> usize {
        self.separators.partition_point(|separator| separator.borrow() <= key).saturating_sub(1)
    }

    /// Segments in the page.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Heap bytes of its separators, beside themselves.
    pub(super) fn separators_bytes(&self) -> usize {
        self.separators.iter().map(K::heap_bytes).sum()
    }

    /// Bytes of a shared page of this many segments: it, its two arrays, and the two counts of its references; without
    /// what separators have on the heap.
    pub(super) const fn shared_bytes(segments: usize) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        COUNTS + size_of::<Self>() + segments * (size_of::<K::Owned>() + size_of::<Segment<K>>())
    }
}
