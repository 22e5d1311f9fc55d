//! One segment as a compute node knows it.

use fpcache_index::{Line, SegmentModel};

use crate::layout::{Descriptor, SegmentAddress, SegmentGeometry};

/// One segment as a compute node holds it: 32 bytes, beside its first key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    origin: u64,
    line: Line,
    address: SegmentAddress,
    generation: u32,
    cap: u16,
    epsilon: u16,
}

impl Segment {
    /// Key to window.
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

    /// Whether a segment can be what a descriptor says: with slots, whole, inside the region.
    pub(crate) fn can_lie(d: &Descriptor, geometry: &SegmentGeometry, region_bytes: u64) -> bool {
        let (start, cap) = (d.address.offset(), d.model.cap);
        let end = start.saturating_add(geometry.segment_bytes(cap) as u64);
        cap > 0 && start.is_multiple_of(8) && end <= region_bytes
    }
}

impl From<&Descriptor> for Segment {
    fn from(d: &Descriptor) -> Self {
        Self {
            origin: d.model.origin,
            line: d.model.line,
            address: d.address,
            generation: d.generation,
            cap: d.model.cap,
            epsilon: d.model.epsilon,
        }
    }
}
