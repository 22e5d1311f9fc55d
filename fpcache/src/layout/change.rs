//! The change log: replacements of segments, by which readers keep their directories current.
//!
//! ```text
//! record:  0 sequence u64 · 8 checksum u32 · 12 part u16 · 14 parts u16 · 16 its share of the change, 48 bytes
//! change:  0 segments u16 · 2 has an end u16 (0 or 1) · 4 zero u32 · 8 descriptors, front to back · the end's separator
//! ```
//!
//! A change says that a range, from the first new segment's `start` up to its end, exclusive,
//! belongs to new segments. It takes several records in a row if it is long, `part` counting from
//! 0. Record `n` lies at `n mod capacity` of a ring. The log head in the superblock is stored after
//! the last part: that commits the change.

use std::borrow::Borrow;

use xxhash_rust::xxh3::xxh3_64;

use super::directory::Descriptor;
use super::{put, u16_at, u32_at, u64_at};
use crate::key_space::KeySpace;

/// Bytes of a record of the change log.
pub const CHANGE_RECORD_BYTES: usize = 64;

const RECORD_HEADER_BYTES: usize = 16;
const SHARE_BYTES: usize = CHANGE_RECORD_BYTES - RECORD_HEADER_BYTES;
const CHANGE_HEADER_BYTES: usize = 8;

/// Segments that take the place of those which owned their range before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReplacement<K: KeySpace> {
    /// The new segments, in order; the first one's `start` is where the range begins.
    pub with: Vec<Descriptor<K>>,
    /// First key after the range; `None` at the table's end.
    pub end: Option<K::Owned>,
}

impl<K: KeySpace> SegmentReplacement<K> {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // A rebuild makes a few segments of a few.
        out.extend((self.with.len() as u16).to_le_bytes());
        out.extend(u16::from(self.end.is_some()).to_le_bytes());
        out.resize(CHANGE_HEADER_BYTES, 0);
        let mut before = None;
        for descriptor in &self.with {
            descriptor.encode(before, &mut out);
            before = Some(descriptor.start.borrow());
        }
        if let Some(end) = &self.end {
            K::put_separator(end.borrow(), K::Tail::default(), before, &mut out);
        }
        out
    }

    /// Reads a change from the shares of its records, one after another; `None` if that is not what
    /// they are.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_at_checked(CHANGE_HEADER_BYTES)?;
        let mut with: Vec<Descriptor<K>> = Vec::new();
        for _ in 0..u16_at(head, 0) {
            let before = with.last().map(|d| d.start.borrow());
            let (descriptor, after) = Descriptor::decode(before, rest)?;
            with.push(descriptor);
            rest = after;
        }
        let last = with.last()?.start.borrow();
        let end = match u16_at(head, 2) {
            0 => None,
            _ => Some(K::take_separator(Some(last), rest)?.0),
        };
        Some(Self { with, end })
    }

    /// The records of the change, the first of which has the number `first`.
    pub fn records(&self, first: u64) -> Vec<ChangeRecord> {
        let bytes = self.encode();
        // The longest change there can be, of a few segments with separators of 4 KiB, has a few
        // hundred.
        let parts = bytes.len().div_ceil(SHARE_BYTES) as u16;
        let record = |(part, share): (u16, &[u8])| {
            let mut padded = [0; SHARE_BYTES];
            padded[..share.len()].copy_from_slice(share);
            ChangeRecord { sequence: first + u64::from(part), part, parts, share: padded }
        };
        (0..).zip(bytes.chunks(SHARE_BYTES)).map(record).collect()
    }
}

/// One record of the change log: a share of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Its number, counted from the region's beginning.
    pub sequence: u64,
    /// Which of the change's records this is, from 0.
    pub part: u16,
    /// How many records the change has.
    pub parts: u16,
    /// Its share of the change's bytes.
    pub share: [u8; SHARE_BYTES],
}

impl ChangeRecord {
    /// The record's bytes.
    pub fn encode(&self) -> [u8; CHANGE_RECORD_BYTES] {
        let mut b = [0; CHANGE_RECORD_BYTES];
        put(&mut b, 0, self.sequence.to_le_bytes());
        put(&mut b, 12, self.part.to_le_bytes());
        put(&mut b, 14, self.parts.to_le_bytes());
        put(&mut b, RECORD_HEADER_BYTES, self.share);
        let sum = checksum(&b);
        put(&mut b, 8, sum.to_le_bytes());
        b
    }

    /// Reads the record with the number `sequence`; `None` if that is not what the bytes are:
    /// overwritten by a later one, or damaged.
    pub fn decode(b: &[u8], sequence: u64) -> Option<Self> {
        let b: &[u8; CHANGE_RECORD_BYTES] = b.first_chunk()?;
        let (part, parts) = (u16_at(b, 12), u16_at(b, 14));
        let whole = u64_at(b, 0) == sequence && u32_at(b, 8) == checksum(b) && part < parts;
        whole.then(|| Self { sequence, part, parts, share: super::field(b, RECORD_HEADER_BYTES) })
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
    use crate::key_space::{ByteKeys, ByteTail, U64Keys};

    fn descriptor<K: KeySpace>(start: K::Owned, tail: K::Tail) -> Descriptor<K> {
        Descriptor::example(4, start, tail)
    }

    fn bytes_of(records: &[ChangeRecord]) -> Vec<u8> {
        records.iter().flat_map(|record| record.share).collect()
    }

    fn assert_round_trips<K: KeySpace>(change: &SegmentReplacement<K>) {
        let records = change.records(65);
        assert!(records.iter().zip(65..).all(|(record, sequence)| record.sequence == sequence));
        assert!(records.iter().all(|record| usize::from(record.parts) == records.len()));
        assert_eq!(SegmentReplacement::decode(&bytes_of(&records)).as_ref(), Some(change));
    }

    #[test]
    fn changes_round_trip_over_several_records() {
        for end in [None, Some(1000)] {
            let with = vec![descriptor::<U64Keys>(10, ()), descriptor(20, ())];
            assert_eq!(SegmentReplacement { with: with.clone(), end }.records(0).len(), 2);
            assert_round_trips(&SegmentReplacement { with, end });
        }
        let tail = ByteTail { skip: 3, encoder: 2 };
        let with = vec![descriptor::<ByteKeys>(b"/usr".to_vec(), tail), descriptor(vec![b'/'; 4096], tail)];
        assert_round_trips(&SegmentReplacement { with: with.clone(), end: Some(vec![0xff; 4000]) });
        assert_round_trips(&SegmentReplacement { with, end: None });
    }

    #[test]
    fn records_round_trip_and_every_flipped_byte_is_seen() {
        let record = ChangeRecord { sequence: 65, part: 1, parts: 2, share: [7; SHARE_BYTES] };
        let bytes = record.encode();
        assert_eq!(ChangeRecord::decode(&bytes, 65), Some(record));
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
    fn a_change_has_the_drawn_order() {
        let change = SegmentReplacement { with: vec![descriptor::<U64Keys>(10, ())], end: Some(99) };
        let bytes = bytes_of(&change.records(0));
        assert_eq!((u16_at(&bytes, 0), u16_at(&bytes, 2), u32_at(&bytes, 4)), (1, 1, 0));
        assert_eq!((u64_at(&bytes, 8), u64_at(&bytes, 16), u64_at(&bytes, 48)), (10, 4001, 99));
    }
}
