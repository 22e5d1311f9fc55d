//! The table of groups, which lies after a segment's slots and tells the group of slots that a key
//! belongs to.
//!
//! ```text
//! 0 bits u8, all ones: no table · 1 the high seven bytes of XXH3-64 of what follows, seeded with generation and bits
//! 8 a separator i16 for each block · then, for each, its seed u8 or its pilots · zeros up to a multiple of eight
//! ```
//!
//! A block is a plain group, or several seeded ones, one of which a key's hash chooses, or several
//! slots, each a group of one, of which a pilot chooses. Group `g` begins at slot `g · stride`; a
//! READ for a key of it is of `reach` slots from there on. What separators mean is
//! [`fpcache_index::groups::BlockSeparators`], what seeds do
//! [`fpcache_index::groups::group_by_seed`], and what pilots do
//! [`fpcache_index::groups::slot_by_pilot`]. A table is written with its segment and never changes.

use fpcache_index::groups::{BlockForm, GroupTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{GroupForm, u64_at};

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
    /// Groups of a block, which share a separator.
    pub per_block: u8,
    /// Bytes by which hashes choose between the groups of a block: 0 where it has one, 1 for a
    /// seed, or the number of pilots.
    pub names: u8,
}

impl Grouping {
    /// The most bytes that a READ of a group's slots brings: about as much as a network card READs
    /// at the price of less.
    const READ_BYTES: usize = 256;
    /// Fewest slots of a READ. Separators of shorter groups take more than they save.
    const LEAST_REACH: usize = 4;
    /// Groups that share a seed: with more, few of all 256 seeds spread the keys of a block evenly
    /// enough.
    const PER_SEED: u8 = 6;
    /// Slots of a block with pilots, unless told otherwise.
    pub(super) const PILOT_SLOTS: u8 = 32;

    /// Plain groups, `stride` slots apart, of which a READ brings `reach` slots.
    #[must_use]
    pub const fn plain(stride: u8, reach: u8) -> Self {
        Self { stride, reach, per_block: 1, names: 0 }
    }

    /// Blocks of `groups` groups, of `reach` slots each.
    #[must_use]
    pub const fn seeded(groups: u8, reach: u8) -> Self {
        Self { stride: reach, reach, per_block: groups, names: 1 }
    }

    /// Blocks of `slots` slots, with `pilots` pilots, of each more than one.
    #[must_use]
    pub const fn pilots(slots: u8, pilots: u8) -> Self {
        Self { stride: 1, reach: 1, per_block: slots, names: pilots }
    }

    /// Blocks of `slots` slots, more than one, with as many pilots as these need: one for 3.7 keys
    /// or fewer at the fill of groups.
    #[must_use]
    pub const fn by_pilots(slots: u8) -> Self {
        Self::pilots(slots, (slots as u16 * 7).div_ceil(32) as u8)
    }

    /// Groups of this form for slots of `slot_bytes` bytes; `None` if those are too long for
    /// several to be READ at once, or too short.
    #[must_use]
    pub const fn for_slots(form: GroupForm, slot_bytes: usize) -> Option<Self> {
        if let GroupForm::Pilots = form {
            return Some(Self::by_pilots(Self::PILOT_SLOTS));
        }
        let reach = Self::READ_BYTES / if slot_bytes == 0 { 1 } else { slot_bytes };
        if reach < Self::LEAST_REACH || reach > 64 {
            return None;
        }
        let reach = reach as u8;
        Some(match form {
            GroupForm::Seeded => Self::seeded(Self::PER_SEED, reach),
            _ => Self::plain(reach - 1, reach),
        })
    }

    /// How they are told apart.
    #[inline]
    #[must_use]
    pub const fn name(self) -> GroupForm {
        match self.names {
            0 => GroupForm::Plain,
            1 => GroupForm::Seeded,
            _ => GroupForm::Pilots,
        }
    }

    /// The form of tables of such groups.
    #[inline]
    #[must_use]
    pub const fn form(self) -> BlockForm {
        let (stride, reach, per_block) = (self.stride as u16, self.reach as u16, self.per_block as u16);
        match self.name() {
            GroupForm::Plain => BlockForm::Plain { stride, reach },
            GroupForm::Seeded => BlockForm::Seeded { groups: per_block, reach },
            GroupForm::Pilots => BlockForm::Pilots { slots: per_block, buckets: self.names as u16 },
        }
    }

    /// Whether there are such groups.
    #[must_use]
    pub fn is_valid(self) -> bool {
        let is_whole = match self.name() {
            GroupForm::Plain => self.per_block == 1,
            GroupForm::Seeded => self.stride == self.reach,
            // More than one to a slot would make tables longer than what they lead to.
            GroupForm::Pilots => (self.stride, self.reach) == (1, 1) && self.names <= self.per_block,
        };
        is_whole && self.form().is_valid()
    }

    /// Slots from one block to the next: those of one separator.
    #[inline]
    #[must_use]
    pub const fn block(self) -> u16 {
        self.stride as u16 * self.per_block as u16
    }

    /// The greatest ε of a segment whose keys are in groups, in a table of this ε: keys of which
    /// each block has as many are 1/fill times as far from the line in slots as they are in ranks,
    /// fill is rarely below a half, and half a block is what rounding takes, and with hashes their
    /// order again.
    #[must_use]
    pub const fn most_epsilon(self, epsilon: u32) -> u32 {
        let (reach, half) = (self.reach as u32, self.block() as u32 / 2);
        2 * (epsilon + if reach > half { reach } else { half })
    }

    /// How many blocks a segment of `cap` slots has.
    #[inline]
    #[must_use]
    pub const fn count(self, cap: u16) -> u16 {
        let (block, overhang) = (self.block(), self.reach as u16 - self.stride as u16);
        if cap <= block + overhang {
            return 1;
        }
        (cap - overhang).div_ceil(block)
    }

    /// Bytes of a separator, with the seed or the pilots of its block.
    #[must_use]
    pub const fn bytes_per_block(self) -> usize {
        2 + self.names as usize
    }

    /// Bytes of the table of a segment of `cap` slots.
    #[must_use]
    pub const fn table_bytes(self, cap: u16) -> usize {
        HEADER_BYTES + (self.bytes_per_block() * self.count(cap) as usize).next_multiple_of(8)
    }

    /// The slots that the records of a block lie in, of a segment of `cap` slots, but for strays:
    /// the first, and how many.
    #[inline]
    #[must_use]
    pub fn slots_of_block(self, block: u16, cap: u16) -> (u32, u32) {
        let first = u32::from(block) * u32::from(self.block());
        let len = u32::from(self.block()) + u32::from(self.reach - self.stride);
        (first, len.min(u32::from(cap).saturating_sub(first)))
    }

    /// The slots whose marks, both of them, say that a record of a block lies, or lay, outside the
    /// block's slots, `len` of which begin with `first`. That of a group outside its own is on one
    /// of them at most, but for plain groups, which are blocks.
    #[inline]
    #[must_use]
    pub const fn marks_of_block(self, (first, len): (u32, u32)) -> [u32; 2] {
        match self.name() {
            _ if len < 2 => [first, first],
            GroupForm::Plain => [first, first],
            GroupForm::Seeded => [first + 1, first + 1],
            GroupForm::Pilots => [first, first + 1],
        }
    }

    /// See [`BlockForm::run`].
    #[inline]
    #[must_use]
    pub fn run(self, block: u16, hash: u64, cap: u16, name: impl FnOnce(usize) -> u8) -> (u32, u32) {
        self.form().run(block, hash, cap, name)
    }
}

/// Writes the table of a segment of this generation; `None`: its keys are in no groups.
///
/// # Panics
/// If `out` has not as many bytes as the table.
pub fn encode_groups(generation: u32, table: Option<&GroupTable>, out: &mut [u8]) {
    out.fill(0);
    let bits = table.map_or(NONE, |table| table.separators().bits());
    let (head, rest) = out.split_at_mut(HEADER_BYTES);
    let distances = table.map_or(&[][..], |table| table.separators().distances());
    for (to, from) in rest.chunks_exact_mut(2).zip(distances) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    let names = table.map_or(&[][..], GroupTable::names);
    rest.iter_mut().skip(2 * distances.len()).zip(names).for_each(|(to, from)| *to = *from);
    head.copy_from_slice(&first_word(generation, bits, rest).to_le_bytes());
}

/// The first eight bytes of a table.
fn first_word(generation: u32, bits: u8, rest: &[u8]) -> u64 {
    let seed = u64::from(generation) << 8 | u64::from(bits);
    xxh3_64_with_seed(rest, seed) & !0xff | u64::from(bits)
}

/// The bits, and the separators and what follows them as bytes, in the table of a segment of this
/// generation; `None` if its keys are in no groups, or these are not its bytes.
#[must_use]
pub fn decode_groups(generation: u32, bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (head, separators) = bytes.split_at_checked(HEADER_BYTES)?;
    let bits = head[0];
    let is_whole = u64_at(head, 0) == first_word(generation, bits, separators);
    (is_whole && bits <= MOST_BITS).then_some((bits, separators))
}

/// Whether these are all the bytes of a table of a segment of this generation, be it one that says
/// that its keys are in no groups.
#[must_use]
pub fn is_whole_table(generation: u32, bytes: &[u8]) -> bool {
    bytes.split_at_checked(HEADER_BYTES).is_some_and(|(head, separators)| {
        let is_whole = u64_at(head, 0) == first_word(generation, head[0], separators);
        is_whole && (head[0] <= MOST_BITS || head[0] == NONE)
    })
}

/// The bits of separators, by the first word of their table; `None` if the keys are in no groups.
/// For the writer of the table.
#[inline]
#[must_use]
pub const fn bits_of_groups(word: u64) -> Option<u8> {
    let bits = word as u8;
    if bits <= MOST_BITS { Some(bits) } else { None }
}

/// The word of a table that a block's separator lies in, in bytes from its beginning, and how many
/// bits of the word come before.
#[inline]
#[must_use]
pub const fn separator_at(block: usize) -> (u64, u32) {
    word_of(HEADER_BYTES + 2 * block)
}

/// The same of one of the bytes that choose between the groups of blocks, in the table of `blocks`
/// blocks.
#[inline]
#[must_use]
pub const fn name_at(at: usize, blocks: u16) -> (u64, u32) {
    word_of(HEADER_BYTES + 2 * blocks as usize + at)
}

#[inline]
const fn word_of(byte: usize) -> (u64, u32) {
    ((byte & !7) as u64, 8 * (byte as u32 & 7))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_index::groups::BlockSeparators;

    fn table(grouping: Grouping, cap: u16, bits: u8, distances: &[i16], seeds: &[u8]) -> GroupTable {
        let separators =
            BlockSeparators::from_parts(bits, grouping.block(), distances.to_vec()).expect("some");
        GroupTable::from_parts(grouping.form(), cap, separators, seeds.to_vec()).expect("parts that fit")
    }

    #[test]
    fn a_table_is_the_bytes_that_are_drawn() {
        let grouping = Grouping::for_slots(GroupForm::Plain, 24).expect("short slots");
        assert_eq!((grouping, grouping.count(28)), (Grouping::plain(9, 10), 3));
        let groups = table(grouping, 28, 9, &[-2, 3, 258], &[]);
        let mut bytes = vec![7; grouping.table_bytes(28)];
        encode_groups(77, Some(&groups), &mut bytes);
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
    fn seeds_lie_after_the_separators() {
        let grouping = Grouping::for_slots(GroupForm::Seeded, 24).expect("short slots");
        assert_eq!((grouping, grouping.count(180)), (Grouping::seeded(6, 10), 3));
        let mut bytes = vec![7; grouping.table_bytes(180)];
        encode_groups(77, Some(&table(grouping, 180, 9, &[-2, 3, 258], &[5, 0, 200])), &mut bytes);
        assert_eq!(bytes[8..], [0xfe, 0xff, 3, 0, 2, 1, 5, 0, 200, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(u64_at(&bytes, 0), 0x5475_748b_3835_a409);
        let byte = |(word, shift)| (u64_at(&bytes, word as usize) >> shift) as u8;
        assert_eq!([0, 1, 2].map(|block| byte(name_at(block, 3))), [5, 0, 200]);
        assert_eq!(byte(separator_at(2)), 2);
        assert_eq!(decode_groups(77, &bytes).map(|(bits, _)| bits), Some(9));
    }

    #[test]
    fn no_bit_of_a_table_can_be_another() {
        let plain = (Grouping::plain(9, 10), 19, &[][..]);
        let seeded = (Grouping::seeded(6, 10), 120, &[3, 255][..]);
        let pilots = (Grouping::pilots(8, 3), 16, &[3, 255, 0, 7, 7, 254][..]);
        for (grouping, cap, seeds) in [plain, seeded, pilots] {
            let mut bytes = vec![0; grouping.table_bytes(cap)];
            encode_groups(5, Some(&table(grouping, cap, 14, &[0, -1], seeds)), &mut bytes);
            assert!(is_whole_table(5, &bytes));
            for bit in 0..8 * bytes.len() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode_groups(5, &bytes), None, "bit {bit}");
                assert!(!is_whole_table(5, &bytes), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            assert!((0..bytes.len()).all(|len| decode_groups(5, &bytes[..len]).is_none()));
        }
    }

    #[test]
    fn groups_are_as_long_as_what_a_read_brings() {
        let of = |bytes| Grouping::for_slots(GroupForm::Plain, bytes).map(|g| (g.stride, g.reach));
        assert_eq!([24, 32, 40, 64].map(of), [Some((9, 10)), Some((7, 8)), Some((5, 6)), Some((3, 4))]);
        assert_eq!([0, 72, 136, 1 << 20].map(of), [None; 4]);
        let of =
            |bytes| Grouping::for_slots(GroupForm::Seeded, bytes).map(|g| (g.per_block, g.stride, g.reach));
        assert_eq!([24, 64, 72].map(of), [Some((6, 10, 10)), Some((6, 4, 4)), None]);
        let of = |bytes| Grouping::for_slots(GroupForm::Pilots, bytes);
        assert_eq!([24, 72, 1 << 20].map(of), [Some(Grouping::pilots(32, 7)); 3]);
        for form in GroupForm::ALL {
            assert_eq!(Grouping::for_slots(form, 24).map(Grouping::name), Some(form));
        }
    }

    #[test]
    fn the_marks_of_a_block_are_where_readers_and_memory_nodes_expect_them() {
        let marks = |grouping: Grouping, block, cap| {
            let slots = grouping.slots_of_block(block, cap);
            (slots, grouping.marks_of_block(slots))
        };
        assert_eq!(marks(Grouping::plain(9, 10), 2, 28), ((18, 10), [18, 18]));
        assert_eq!(marks(Grouping::seeded(6, 10), 1, 120), ((60, 60), [61, 61]));
        assert_eq!(marks(Grouping::pilots(32, 7), 3, 128), ((96, 32), [96, 97]));
        // Of a segment with fewer slots than a block.
        assert_eq!(marks(Grouping::pilots(32, 7), 0, 1), ((0, 1), [0, 0]));
        assert_eq!(marks(Grouping::seeded(6, 10), 0, 10), ((0, 10), [1, 1]));
    }

    #[test]
    fn groups_that_contradict_themselves_are_none() {
        for bad in [
            Grouping { per_block: 6, ..Grouping::plain(9, 10) },
            Grouping { per_block: 0, ..Grouping::plain(9, 10) },
            Grouping { reach: 10, ..Grouping::seeded(6, 9) },
            Grouping { reach: 2, ..Grouping::pilots(64, 14) },
            Grouping { stride: 0, ..Grouping::pilots(64, 14) },
            Grouping::pilots(0, 14),
            Grouping::pilots(13, 14),
            Grouping::seeded(65, 4),
            Grouping::seeded(6, 0),
            Grouping::plain(9, 19),
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }

    #[test]
    fn every_slot_of_a_segment_is_in_a_group_and_no_other() {
        let of = |bytes| GroupForm::ALL.into_iter().filter_map(move |form| Grouping::for_slots(form, bytes));
        for grouping in (24..=64).step_by(8).flat_map(of) {
            for cap in 1..400 {
                let (blocks, slots) = grouping.form().blocks(cap).expect("few");
                if slots == cap {
                    assert_eq!(grouping.count(cap), blocks, "{grouping:?} of {cap}");
                }
                let last = grouping.count(cap) - 1;
                // Hashes and seeds that lead to all the groups of a block.
                let ends = (0..1024u64).map(|n| {
                    let (hash, seed) = (n / 64 * (u64::MAX / 17), n as u8 % 64);
                    let (first, len) = grouping.run(last, hash, cap, |_| seed);
                    assert!(len == 0 || first + len <= cap.into(), "{grouping:?} of {cap}");
                    first + len
                });
                let end = ends.max();
                assert!(slots != cap || end == Some(cap.into()), "{grouping:?} of {cap}: {end:?}");
                assert_eq!(grouping.run(u16::MAX, 1, cap, |_| 0).1, 0);
            }
        }
    }
}
