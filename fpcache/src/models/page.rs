//! A decoded page of the directory.

use std::borrow::Borrow;

use crate::key_space::{KeySpace, PageSeparators};
use crate::layout::Descriptor;

use super::Segment;

/// The segments of one directory page, by first key. Never empty, and exactly as large as they
/// need.
#[derive(Debug)]
pub struct Page<K: KeySpace> {
    /// Apart from the segments, so that a search touches few cache lines.
    separators: K::Separators,
    segments: Box<[Segment<K>]>,
}

impl<K: KeySpace> Page<K> {
    /// A page of descriptors that were checked: at least one, ascending.
    pub(super) fn new(descriptors: &[Descriptor<K>]) -> Self {
        debug_assert!(!descriptors.is_empty(), "a page that was checked has segments");
        Self {
            separators: K::Separators::of(descriptors.iter().map(|d| d.start.borrow())),
            segments: descriptors.iter().map(Segment::from).collect(),
        }
    }

    /// The segment whose range holds `key`, a key of this page: that with the greatest first key at
    /// or below it, or the first; and how many bytes the key shares with its first key. One search.
    #[inline]
    pub fn find_shared(&self, key: &K::Key) -> (&Segment<K>, usize) {
        // Inside: a page holds a segment, and as many segments as separators.
        let (at, shared) = self.separators.position(key);
        (&self.segments[at], shared)
    }

    /// The segment whose range holds `key` and those after it in the page, with their first keys.
    pub fn range_from(&self, key: &K::Key) -> impl Iterator<Item = (K::Owned, &Segment<K>)> {
        let at = self.position(key);
        self.separators.from(at).zip(self.segments.iter().skip(at))
    }

    /// The segment whose range holds `key`, with its first key.
    pub fn locate(&self, key: &K::Key) -> Option<(K::Owned, &Segment<K>)> {
        self.get(self.position(key))
    }

    /// The segment before that one, if it is in the page.
    pub fn before(&self, key: &K::Key) -> Option<(K::Owned, &Segment<K>)> {
        self.get(self.position(key).checked_sub(1)?)
    }

    /// The segment after that one, if it is in the page.
    pub fn after(&self, key: &K::Key) -> Option<(K::Owned, &Segment<K>)> {
        self.get(self.position(key) + 1)
    }

    /// The last segment of the page, with its first key.
    pub fn last(&self) -> Option<(K::Owned, &Segment<K>)> {
        self.get(self.len().checked_sub(1)?)
    }

    fn get(&self, at: usize) -> Option<(K::Owned, &Segment<K>)> {
        self.separators.get(at).zip(self.segments.get(at))
    }

    #[inline]
    fn position(&self, key: &K::Key) -> usize {
        self.separators.position(key).0
    }

    /// Segments in the page.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Heap bytes of what its separators say: no more than a page has.
    pub(super) fn separators_bytes(&self) -> usize {
        self.separators.text_bytes()
    }

    /// Bytes of a shared page of this many segments: it, its arrays, and the two counts of its
    /// references; without what separators say.
    pub(super) const fn shared_bytes(segments: usize) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        COUNTS + size_of::<Self>() + segments * (K::Separators::EACH + size_of::<Segment<K>>())
    }
}
