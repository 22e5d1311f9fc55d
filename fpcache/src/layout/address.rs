//! Addresses of segments and extents: the memory node, and the place in its region.

use std::fmt;

/// Address of a segment or an extent: 16 bits of memory node, 48 bits of offset in that node's
/// region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentAddress(u64);

impl SegmentAddress {
    const OFFSET_BITS: u32 = 48;
    /// Greatest offset an address can hold.
    pub const MAX_OFFSET: u64 = (1 << Self::OFFSET_BITS) - 1;

    /// The address of the segment at `offset` in memory node `node`; `None` above
    /// [`Self::MAX_OFFSET`].
    pub fn new(node: u16, offset: u64) -> Option<Self> {
        (offset <= Self::MAX_OFFSET).then_some(Self(u64::from(node) << Self::OFFSET_BITS | offset))
    }

    /// From the encoded form; every pattern is an address.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The encoded form.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The memory node.
    #[inline]
    pub const fn node(self) -> u16 {
        (self.0 >> Self::OFFSET_BITS) as u16
    }

    /// Bytes from the start of that node's region.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & Self::MAX_OFFSET
    }
}

impl fmt::Display for SegmentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} offset {:#x}", self.node(), self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_and_offset_share_eight_bytes() {
        let a = SegmentAddress::new(0xabcd, 0x1234_5678_9abc).expect("offset fits 48 bits");
        assert_eq!(a.to_bits(), 0xabcd_1234_5678_9abc);
        assert_eq!((a.node(), a.offset()), (0xabcd, 0x1234_5678_9abc));
        assert_eq!(SegmentAddress::new(0, 1 << 48), None);
    }
}
