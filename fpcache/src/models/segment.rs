//! A segment as a compute node knows it.

use fpcache_index::{Line, SegmentModel};

use crate::key_space::KeySpace;
use crate::layout::{Descriptor, SegmentAddress, SegmentGeometry};

/// One segment as a compute node holds it: 32 bytes, 40 for byte strings, beside its first key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<K: KeySpace> {
    origin: u64,
    line: Line,
    address: SegmentAddress,
    generation: u32,
    cap: u16,
    epsilon: u16,
    tail: K::Tail,
}

impl<K: KeySpace> Segment<K> {
    /// Coordinate to window.
    #[inline]
    pub fn model(&self) -> SegmentModel {
        SegmentModel { origin: self.origin, line: self.line, cap: self.cap, epsilon: self.epsilon }
    }

    /// Where it lies.
    #[inline]
    pub fn address(&self) -> SegmentAddress {
        self.address
    }

    /// Seed of its slots' checksums.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The data that coordinates depend on beside the key.
    #[inline]
    pub fn tail(&self) -> K::Tail {
        self.tail
    }

    /// The coordinate of a key of its range, which shares `shared` bytes with its first key.
    #[inline]
    pub fn coordinate(&self, key: &K::Key, shared: usize, encoders: &K::Encoders) -> u64 {
        K::coordinate(key, shared, self.tail, encoders)
    }

    /// Whether a segment can be what a descriptor says: with slots, whole, inside the region, over
    /// encoders there are.
    pub(crate) fn is_plausible(
        d: &Descriptor<K>,
        geometry: &SegmentGeometry,
        region_bytes: u64,
        encoders: &K::Encoders,
    ) -> bool {
        let (start, cap) = (d.address.offset(), d.model.cap);
        let end = start.saturating_add(geometry.segment_bytes(cap) as u64);
        cap > 0 && start.is_multiple_of(8) && end <= region_bytes && K::knows(encoders, d.tail)
    }
}

impl<K: KeySpace> From<&Descriptor<K>> for Segment<K> {
    fn from(d: &Descriptor<K>) -> Self {
        Self {
            origin: d.model.origin,
            line: d.model.line,
            address: d.address,
            generation: d.generation,
            cap: d.model.cap,
            epsilon: d.model.epsilon,
            tail: d.tail,
        }
    }
}
