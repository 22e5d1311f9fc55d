//! A segment: one model's records.
//!
//! ```text
//! 0        32                   32+pad8(cap·w)                        + cap·slot
//! ┌────────┬────────────────────┬──────────────────────────────────────┬─────────────────┐
//! │ header │ cap fingerprints   │ cap slots                            │ table of groups │
//! │        │ of w bytes, pad 8  │                                      │ if there is one │
//! └────────┴────────────────────┴──────────────────────────────────────┴─────────────────┘
//! header:  0 generation u32 · 4 cap u16 · 6 epsilon u16 · 8 boundary number of the range's first key · 16 of the key after it
//!          24 live records u32 · 28 checksum u32 (of the 28 bytes before it)
//! ```
//!
//! Fingerprint `i` belongs to slot `i`; a table can have none, and then slots follow the header.
//! The arrays are packed: at 8-byte keys and values, 8-bit fingerprints and fill 0.85 a record
//! costs 29.4 bytes, and aligning both arrays of a 169-record segment to cache lines would add a
//! third of a byte to that. Lookups never read the header; it lets a segment be understood without
//! its directory.

use fpcache_index::Window;
use xxhash_rust::xxh3::xxh3_64;

use super::{Corrupt, Grouping, RecordShape, SLOT_WORD_BYTES, put, u16_at, u32_at, u64_at};
use crate::fingerprint::FingerprintWidth;

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 32;

/// Sizes and offsets inside the segments of one table; everything that follows from its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGeometry {
    /// Width of the fingerprints by which windows are matched.
    pub width: FingerprintWidth,
    /// Whether segments hold them. If not, compute nodes read slots alone, and the memory node
    /// makes those of a window from its slots.
    pub stores_fingerprints: bool,
    /// Bytes from one slot to the next.
    pub slot_bytes: usize,
    /// The content of a slot after its word.
    pub shape: RecordShape,
    /// How slots are grouped, where each segment has a table of its groups after its slots.
    pub groups: Option<Grouping>,
}

impl SegmentGeometry {
    /// Segments with fingerprints of this width over records of this shape, without groups.
    pub const fn new(width: FingerprintWidth, shape: RecordShape) -> Self {
        let slot_bytes = SLOT_WORD_BYTES + shape.body_bytes();
        Self { width, stores_fingerprints: true, slot_bytes, shape, groups: None }
    }

    /// Bytes of `count` stored fingerprints.
    #[inline(always)]
    pub const fn fingerprint_bytes(&self, count: usize) -> usize {
        if self.stores_fingerprints { self.width.bytes_of(count) } else { 0 }
    }

    /// Bytes that are searched for a key's record in a window of `slots` slots: fingerprints, or
    /// slots where there are none.
    pub const fn searched_bytes(&self, slots: usize) -> usize {
        if self.stores_fingerprints { self.width.bytes_of(slots) } else { slots * self.slot_bytes }
    }

    /// Bytes of a segment of `cap` slots.
    pub const fn segment_bytes(&self, cap: u16) -> usize {
        self.table_offset(cap) + self.table_bytes(cap)
    }

    /// Bytes from the segment's start to the table of its groups.
    pub const fn table_offset(&self, cap: u16) -> usize {
        self.slots_offset(cap) + cap as usize * self.slot_bytes
    }

    /// Bytes of the table of its groups; 0 without groups.
    pub const fn table_bytes(&self, cap: u16) -> usize {
        match self.groups {
            Some(groups) => groups.table_bytes(cap),
            None => 0,
        }
    }

    /// Bytes from the segment's start to its slots.
    #[inline]
    pub const fn slots_offset(&self, cap: u16) -> usize {
        SEGMENT_HEADER_BYTES + whole_words(self.fingerprint_bytes(cap as usize))
    }

    /// Bytes from the segment's start to slot `index`.
    #[inline]
    pub const fn slot_offset(&self, cap: u16, index: u32) -> usize {
        self.slots_offset(cap) + index as usize * self.slot_bytes
    }

    /// The whole words that hold the fingerprints of `window`: bytes from the segment's start,
    /// length in bytes, and how many bytes of the first word lie before the window's first
    /// fingerprint.
    #[inline]
    pub const fn fingerprint_span(&self, window: Window) -> FingerprintSpan {
        let first = self.fingerprint_bytes(window.first as usize);
        let end = self.fingerprint_bytes(window.last as usize + 1);
        let start = first & !7;
        FingerprintSpan {
            offset: SEGMENT_HEADER_BYTES + start,
            len: whole_words(end) - start,
            skip: first - start,
            used: end - first,
        }
    }
}

/// The next multiple of eight, of what is far below the greatest.
const fn whole_words(bytes: usize) -> usize {
    (bytes + 7) & !7
}

/// Where a window's fingerprints lie; see [`SegmentGeometry::fingerprint_span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintSpan {
    /// Bytes from the segment's start, a multiple of eight.
    pub offset: usize,
    /// Bytes to read, a multiple of eight.
    pub len: usize,
    /// Bytes read before the first fingerprint of the window.
    pub skip: usize,
    /// Bytes of the window's fingerprints.
    pub used: usize,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Seeds the checksums of the segment's slots; no two segments of a region share one at a time.
    pub generation: u32,
    /// Slots.
    pub cap: u16,
    /// Half-width of the windows, in slots.
    pub epsilon: u16,
    /// [`boundary_id`](crate::key_space::KeySpace::boundary_id) of the first key of the segment's
    /// range.
    pub start: u64,
    /// The same of the first key after the range, all ones if it has no end.
    pub end: u64,
    /// Live records when the header was written.
    pub live: u32,
}

impl SegmentHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut b = [0; SEGMENT_HEADER_BYTES];
        put(&mut b, 0, self.generation.to_le_bytes());
        put(&mut b, 4, self.cap.to_le_bytes());
        put(&mut b, 6, self.epsilon.to_le_bytes());
        put(&mut b, 8, self.start.to_le_bytes());
        put(&mut b, 16, self.end.to_le_bytes());
        put(&mut b, 24, self.live.to_le_bytes());
        let checksum = xxh3_64(&b[..28]) as u32;
        put(&mut b, 28, checksum.to_le_bytes());
        b
    }

    /// Reads a header found at `offset` of the region.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<Self, Corrupt> {
        let damaged = |why: &str| Corrupt::new("segment header", offset, why);
        let b = bytes.get(..SEGMENT_HEADER_BYTES).ok_or_else(|| damaged("cut short"))?;
        if u32_at(b, 28) != xxh3_64(&b[..28]) as u32 {
            return Err(damaged("its checksum does not match"));
        }
        Ok(Self {
            generation: u32_at(b, 0),
            cap: u16_at(b, 4),
            epsilon: u16_at(b, 6),
            start: u64_at(b, 8),
            end: u64_at(b, 16),
            live: u32_at(b, 24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_damage_is_seen() {
        let header =
            SegmentHeader { generation: 1, cap: 200, epsilon: 32, start: 5, end: u64::MAX, live: 170 };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, 4096), Ok(header));
        bytes[9] ^= 1;
        assert!(SegmentHeader::decode(&bytes, 4096).is_err());
        assert!(SegmentHeader::decode(&bytes[..31], 4096).is_err());
    }

    #[test]
    fn a_window_of_epsilon_32_has_three_lines_of_16_bit_fingerprints() {
        const LINE: usize = 64;
        let g = SegmentGeometry::new(FingerprintWidth::Bits16, RecordShape::fixed(8, 8));
        // Segments begin at whole words, and so anywhere in a line.
        for segment in (0..LINE).step_by(8) {
            for first in 0..64 {
                let span = g.fingerprint_span(Window { first, last: first + 64 });
                let begin = segment + span.offset;
                let lines = (begin + span.len).div_ceil(LINE) - begin / LINE;
                assert_eq!(lines, 3, "of a window from slot {first} on, of a segment at {segment}");
            }
        }
    }

    #[test]
    fn a_window_of_narrow_fingerprints_is_read_in_whole_words() {
        let g = SegmentGeometry::new(FingerprintWidth::Bits8, RecordShape::fixed(8, 8));
        let span = g.fingerprint_span(Window { first: 13, last: 77 });
        assert_eq!(span, FingerprintSpan { offset: 32 + 8, len: 72, skip: 5, used: 65 });
        assert_eq!(g.slots_offset(169), 32 + 176);
        assert_eq!(g.slot_offset(169, 2), 32 + 176 + 48);
        assert_eq!(g.segment_bytes(169), 32 + 176 + 169 * 24);
    }

    #[test]
    fn reading_a_window_never_leaves_the_segment() {
        for width in FingerprintWidth::ALL {
            let g = SegmentGeometry::new(width, RecordShape::fixed(8, 8));
            for cap in 1..60u16 {
                for first in 0..u32::from(cap) {
                    let span = g.fingerprint_span(Window { first, last: u32::from(cap) - 1 });
                    assert!(span.offset + span.len <= g.slots_offset(cap));
                    assert_eq!((span.offset % 8, span.len % 8), (0, 0));
                    assert!(span.skip + span.used <= span.len);
                }
            }
        }
    }
}
