//! The names of segments' tables, and what is known from the tables.

use std::ops::AddAssign;

/// Bits of the first word that are no name: those of separators.
pub(super) const BITS: u32 = 0b1111;

/// The name of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentName {
    /// Offset of the segment in the region.
    pub address: u64,
    /// Its generation, which no two segments of a region share at a time.
    pub generation: u32,
    /// Its slots.
    pub cap: u16,
}

impl SegmentName {
    /// Word 0 of its table, with no bits.
    pub(super) fn head(&self) -> u32 {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let place = (self.address ^ u64::from(self.cap) << 48).wrapping_mul(MIX);
        // What the first factor has made of the low bits lies in the high ones.
        let hash = (place.rotate_right(32) ^ u64::from(self.generation)).wrapping_mul(MIX);
        (hash >> 32) as u32 & !BITS
    }
}

/// What a segment's table of groups tells of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known<T> {
    /// This.
    Here(T),
    /// Nothing: the segment's records are in no groups.
    Nothing,
    /// The table is not here.
    NotHere,
}

/// The bytes of tables of groups by use, when the tables of all segments are here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupBytes {
    /// Separators, and seeds or pilots.
    pub separators: u64,
    /// The other bytes of a table: its name, and the padding of its last word.
    pub names: u64,
    /// The index of tables, with all its room.
    pub index: u64,
    /// Room that no table of a present segment takes, or none alone.
    pub room: u64,
}

impl AddAssign for GroupBytes {
    fn add_assign(&mut self, other: Self) {
        self.separators += other.separators;
        self.names += other.names;
        self.index += other.index;
        self.room += other.room;
    }
}
