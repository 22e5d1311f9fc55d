//! Which group of a segment's slots a key belongs to: the table that lies after the slots.
//!
//! ```text
//! 0 bits u8, all ones: no table · 1 the high seven bytes of XXH3-64 of what follows, seeded with generation and bits
//! 8 a separator i16 for each group, zeros up to a multiple of eight
//! ```
//!
//! Group `g` begins at slot `g · stride`; a READ for a key of it is of `reach` slots from there on. What separators mean
//! is [`fpcache_index::groups::Separators`]. A table is written with its segment and never changes.

use fpcache_index::groups::{Form, Separators};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::u64_at;

/// Bytes before the separators.
const HEADER_BYTES: usize = 8;
/// In the place of the bits where the keys of a segment are in no groups.
const NONE: u8 = u8::MAX;
/// Most bits of separators.
const MOST_BITS: u8 = 14;

/// How the slots of a table's segments are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grouping {
    /// Slots from one group to the next.
    pub stride: u8,
    /// Slots that are READ: the group's, and the next one's first.
    pub reach: u8,
}

impl Grouping {
    /// What a READ of a group's slots brings at most, in bytes: about as much as a network card READs at the price of less.
    const READ_BYTES: usize = 256;
    /// Fewest slots of a READ. Separators of shorter groups take more than they save.
    const LEAST_REACH: usize = 4;

    /// Groups of slots of so many bytes; `None` if those are too long for groups to pay.
    #[must_use]
    pub const fn for_slots(slot_bytes: usize) -> Option<Self> {
        let reach = Self::READ_BYTES / if slot_bytes == 0 { 1 } else { slot_bytes };
        if reach < Self::LEAST_REACH || reach > 64 {
            return None;
        }
        Some(Self { stride: reach as u8 - 1, reach: reach as u8 })
    }

    /// The form of tables of such groups.
    #[must_use]
    pub const fn form(self) -> Form {
        Form::Plain { stride: self.stride as u16, reach: self.reach as u16 }
    }

    /// Whether there are such groups.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.form().is_valid()
    }

    /// The greatest ε of a segment whose keys are in groups, in a table of this ε: keys of which each group has as many are 1/fill
    /// times as far from the line in slots as they are in ranks, fill is rarely below a half, and half a group is what rounding takes.
    #[must_use]
    pub const fn most_epsilon(self, epsilon: u32) -> u32 {
        2 * (epsilon + self.reach as u32)
    }

    /// How many groups a segment of `cap` slots has.
    #[inline]
    #[must_use]
    pub const fn count(self, cap: u16) -> u16 {
        let (stride, reach) = (self.stride as u16, self.reach as u16);
        if cap <= reach {
            return 1;
        }
        (cap - (reach - stride)).div_ceil(stride)
    }

    /// Bytes of the table of a segment of `cap` slots.
    #[must_use]
    pub const fn table_bytes(self, cap: u16) -> usize {
        HEADER_BYTES + (2 * self.count(cap) as usize).next_multiple_of(8)
    }

    /// The slots of a group, of a segment of `cap` slots: the first, and how many.
    #[inline]
    #[must_use]
    pub const fn run(self, group: u16, cap: u16) -> (u32, u32) {
        let first = group as u32 * self.stride as u32;
        let left = (cap as u32).saturating_sub(first);
        let reach = self.reach as u32;
        (first, if reach < left { reach } else { left })
    }
}

/// Writes the table of a segment of this generation; `None`: its keys are in no groups.
///
/// # Panics
/// If `out` has not as many bytes as the table.
pub fn encode_groups(generation: u32, separators: Option<&Separators>, out: &mut [u8]) {
    out.fill(0);
    let bits = separators.map_or(NONE, Separators::bits);
    let (head, rest) = out.split_at_mut(HEADER_BYTES);
    for (to, from) in rest.chunks_exact_mut(2).zip(separators.map_or(&[][..], |s| s.distances())) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    head.copy_from_slice(&first_word(generation, bits, rest).to_le_bytes());
}

/// The first eight bytes of a table.
fn first_word(generation: u32, bits: u8, separators: &[u8]) -> u64 {
    let seed = u64::from(generation) << 8 | u64::from(bits);
    xxh3_64_with_seed(separators, seed) & !0xff | u64::from(bits)
}

/// The bits and the separators, as bytes, in the table of a segment of this generation; `None` if its keys are in no groups, or
/// these are not its bytes.
#[must_use]
pub fn decode_groups(generation: u32, bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (head, separators) = bytes.split_at_checked(HEADER_BYTES)?;
    let bits = head[0];
    let is_whole = u64_at(head, 0) == first_word(generation, bits, separators);
    (is_whole && bits <= MOST_BITS).then_some((bits, separators))
}

/// Whether these are all the bytes of a table of a segment of this generation, be it one that says that its keys are in no groups.
#[must_use]
pub fn is_whole_table(generation: u32, bytes: &[u8]) -> bool {
    bytes.split_at_checked(HEADER_BYTES).is_some_and(|(head, separators)| {
        let is_whole = u64_at(head, 0) == first_word(generation, head[0], separators);
        is_whole && (head[0] <= MOST_BITS || head[0] == NONE)
    })
}

/// The bits of separators, by the first word of their table; `None` if the keys are in no groups. For who has written the table.
#[inline]
#[must_use]
pub const fn bits_of_groups(word: u64) -> Option<u8> {
    let bits = word as u8;
    if bits <= MOST_BITS { Some(bits) } else { None }
}

/// The word of a table that a group's separator lies in, in bytes from its beginning, and how many bits of the word come before.
#[inline]
#[must_use]
pub const fn separator_at(group: usize) -> (u64, u32) {
    let byte = HEADER_BYTES + 2 * group;
    ((byte & !7) as u64, 8 * (byte as u32 & 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_bytes_that_are_drawn() {
        let separators = Separators::from_parts(9, 9, vec![-2, 3, 258]).expect("three");
        let grouping = Grouping::for_slots(24).expect("short slots");
        assert_eq!((grouping, grouping.count(28)), (Grouping { stride: 9, reach: 10 }, 3));
        let mut bytes = vec![7; grouping.table_bytes(28)];
        encode_groups(77, Some(&separators), &mut bytes);
        assert_eq!((bytes[0], &bytes[8..]), (9, &[0xfe, 0xff, 3, 0, 2, 1, 0, 0][..]));
        assert_eq!(u64_at(&bytes, 0), 0x704a_8d00_0179_f709);
        assert_eq!(decode_groups(77, &bytes), Some((9, &[0xfe, 0xff, 3, 0, 2, 1, 0, 0][..])));
        assert_eq!(decode_groups(78, &bytes), None, "another segment's");
        assert!(is_whole_table(77, &bytes) && !is_whole_table(78, &bytes));
        encode_groups(77, None, &mut bytes);
        assert_eq!(decode_groups(77, &bytes), None);
        assert!(is_whole_table(77, &bytes) && !is_whole_table(77, &bytes[..7]));
    }

    #[test]
    fn no_bit_of_a_table_can_be_another() {
        let separators = Separators::from_parts(14, 9, vec![0, -1]).expect("two");
        let mut bytes = vec![0; Grouping { stride: 9, reach: 10 }.table_bytes(19)];
        encode_groups(5, Some(&separators), &mut bytes);
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_groups(5, &bytes), None, "bit {bit}");
            assert!(!is_whole_table(5, &bytes), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!((0..bytes.len()).all(|len| decode_groups(5, &bytes[..len]).is_none()));
    }

    #[test]
    fn groups_are_as_long_as_what_a_read_brings() {
        let of = |bytes| Grouping::for_slots(bytes).map(|g| (g.stride, g.reach));
        assert_eq!([24, 32, 40, 64].map(of), [Some((9, 10)), Some((7, 8)), Some((5, 6)), Some((3, 4))]);
        assert_eq!([0, 72, 136, 1 << 20].map(of), [None; 4]);
    }

    #[test]
    fn every_slot_of_a_segment_is_in_a_group_and_no_other() {
        for grouping in (24..=64).step_by(8).filter_map(Grouping::for_slots) {
            for cap in 1..400 {
                let (blocks, slots) = grouping.form().blocks(cap).expect("few");
                if slots == cap {
                    assert_eq!(grouping.count(cap), blocks, "{grouping:?} of {cap}");
                }
                let (first, len) = grouping.run(grouping.count(cap) - 1, cap);
                assert_eq!(first + len, cap.into(), "{grouping:?} of {cap}");
                assert_eq!(grouping.run(u16::MAX, cap).1, 0);
            }
        }
    }
}
