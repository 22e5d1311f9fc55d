//! One page of the directory, decoded.

use crate::key_space::KeySpace;
use crate::layout::Descriptor;

use super::Segment;

/// The segments of one directory page, by first key. Never empty, and exactly as large as they need.
#[derive(Debug)]
pub struct Page<K: KeySpace> {
    /// Apart from the segments, so that a search touches few cache lines.
    separators: Box<[K::Key]>,
    segments: Box<[Segment]>,
}

impl<K: KeySpace> Page<K> {
    /// A page of descriptors that were checked: at least one, ascending.
    pub(super) fn new(descriptors: &[Descriptor]) -> Self {
        debug_assert!(!descriptors.is_empty(), "a page that was checked has segments");
        Self {
            separators: descriptors.iter().map(|d| K::from_coordinate(d.lo)).collect(),
            segments: descriptors.iter().map(Segment::from).collect(),
        }
    }

    /// The segment whose range holds `key`, a key of this page: that with the greatest first key at or below it, or the
    /// first. A binary search.
    #[inline]
    pub fn locate(&self, key: &K::Key) -> &Segment {
        // Inside: a page holds a segment, and as many segments as separators.
        &self.segments[self.position(key)]
    }

    /// The segment whose range holds `key` and those after it in the page, with their first keys.
    pub fn range_from(&self, key: &K::Key) -> impl Iterator<Item = (&K::Key, &Segment)> {
        self.separators.iter().zip(&self.segments).skip(self.position(key))
    }

    #[inline]
    fn position(&self, key: &K::Key) -> usize {
        self.separators.partition_point(|separator| separator <= key).saturating_sub(1)
    }

    /// Segments in the page.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of a shared page of this many segments: it, its two arrays, and the two counts of its references.
    pub(super) const fn shared_bytes(segments: usize) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        COUNTS + size_of::<Self>() + segments * (size_of::<K::Key>() + size_of::<Segment>())
    }
}
