//! One segment as a compute node knows it.

use fpcache_index::{Line, SegmentModel};

use crate::layout::{Descriptor, SegmentAddress};

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
