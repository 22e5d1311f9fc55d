//! The change log: which segments were replaced by which, for readers to keep their directories current.
//!
//! ```text
//! 0 sequence u64 · 8 checksum u32 · 12 part u16 · 14 parts u16 · 16 last key of the replaced range u64 · 24 descriptor, 40 bytes
//! ```
//!
//! Record `n` lies at `n mod capacity` of a ring. A change that puts several segments in the place of what was there takes as
//! many records in a row, `part` counting from 0; the range that is replaced begins at the first part's `lo` and is the
//! same for all. The log head in the superblock is stored behind the last part: that commits the change.

use xxhash_rust::xxh3::xxh3_64;

use super::directory::{DESCRIPTOR_BYTES, Descriptor};
use super::{put, u16_at, u32_at, u64_at};

/// Bytes of a record of the change log.
pub const CHANGE_RECORD_BYTES: usize = 64;

/// One record of the change log: one new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Its number, counted from the region's beginning.
    pub sequence: u64,
    /// Which of the change's new segments this is, from 0.
    pub part: u16,
    /// How many new segments the change has.
    pub parts: u16,
    /// Last key of the replaced range.
    pub hi: u64,
    /// The new segment.
    pub descriptor: Descriptor,
}

impl ChangeRecord {
    /// The record's bytes.
    pub fn encode(&self) -> [u8; CHANGE_RECORD_BYTES] {
        let mut b = [0; CHANGE_RECORD_BYTES];
        put(&mut b, 0, self.sequence.to_le_bytes());
        put(&mut b, 12, self.part.to_le_bytes());
        put(&mut b, 14, self.parts.to_le_bytes());
        put(&mut b, 16, self.hi.to_le_bytes());
        self.descriptor.encode(&mut b[CHANGE_RECORD_BYTES - DESCRIPTOR_BYTES..]);
        let sum = checksum(&b);
        put(&mut b, 8, sum.to_le_bytes());
        b
    }

    /// Reads the record with the number `sequence`; `None` if that is not what the bytes are: overwritten by a later one, or
    /// damaged.
    pub fn decode(b: &[u8], sequence: u64) -> Option<Self> {
        let b: &[u8; CHANGE_RECORD_BYTES] = b.first_chunk()?;
        let (part, parts) = (u16_at(b, 12), u16_at(b, 14));
        let whole = u64_at(b, 0) == sequence && u32_at(b, 8) == checksum(b) && part < parts;
        whole.then(|| Self {
            sequence,
            part,
            parts,
            hi: u64_at(b, 16),
            descriptor: Descriptor::decode(&b[CHANGE_RECORD_BYTES - DESCRIPTOR_BYTES..]),
        })
    }

    /// Where the record with the number `sequence` lies in a log of `records` at `log`.
    pub const fn offset(log: u64, records: u64, sequence: u64) -> u64 {
        log + sequence % records * CHANGE_RECORD_BYTES as u64
    }
}

fn checksum(b: &[u8; CHANGE_RECORD_BYTES]) -> u32 {
    let mut covered = *b;
    covered[8..12].fill(0);
    xxh3_64(&covered) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::SegmentAddress;
    use fpcache_index::{Line, SegmentModel};

    fn record() -> ChangeRecord {
        let model = SegmentModel { origin: 11, line: Line::from_bits(1 << 40 | 77), cap: 200, epsilon: 32 };
        let address = SegmentAddress::new(1, 8192).expect("small offset");
        let descriptor = Descriptor { lo: 10, model, address, generation: 4 };
        ChangeRecord { sequence: 65, part: 1, parts: 2, hi: u64::MAX, descriptor }
    }

    #[test]
    fn records_round_trip_and_every_flipped_byte_is_seen() {
        let bytes = record().encode();
        assert_eq!(ChangeRecord::decode(&bytes, 65), Some(record()));
        assert_eq!(ChangeRecord::decode(&bytes, 1), None, "the record that was here before");
        assert_eq!(ChangeRecord::decode(&bytes[..63], 65), None);
        for at in 0..CHANGE_RECORD_BYTES {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert_eq!(ChangeRecord::decode(&bad, 65), None, "byte {at}");
        }
    }

    #[test]
    fn records_lie_in_a_ring() {
        assert_eq!(
            [0, 1, 63, 64, 129].map(|n| ChangeRecord::offset(4096, 64, n)),
            [4096, 4160, 8128, 4096, 4160]
        );
    }

    #[test]
    fn a_record_has_the_drawn_order() {
        let b = record().encode();
        assert_eq!((u64_at(&b, 0), u16_at(&b, 12), u16_at(&b, 14), u64_at(&b, 16)), (65, 1, 2, u64::MAX));
        assert_eq!((u64_at(&b, 24), u64_at(&b, 32), u64_at(&b, 48)), (10, 11, 1 << 48 | 8192));
    }
}
