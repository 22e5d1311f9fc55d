//! Which group of a segment's slots a key belongs to: the table that lies after the slots.
//!
//! ```text
//! 0 bits u8, all ones: no table · 1 the high seven bytes of XXH3-64 of what follows, seeded with generation and bits
//! 8 a separator i16 for each block · then, with seeded groups, a seed u8 for each · zeros up to a multiple of eight
//! ```
//!
//! A block is a plain group, or several seeded ones, one of which a key's hash chooses. Group `g` begins at slot `g · stride`; a
//! READ for a key of it is of `reach` slots from there on. What separators mean is [`fpcache_index::groups::Separators`], what seeds do
//! [`fpcache_index::groups::group_by_seed`]. A table is written with its segment and never changes.

use std::fmt::{self, Display};
use std::str::FromStr;

use fpcache_index::groups::{Form, GroupTable, group_by_seed};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::u64_at;

/// Bytes before the separators.
const HEADER_BYTES: usize = 8;
/// In the place of the bits where the keys of a segment are in no groups.
const NONE: u8 = u8::MAX;
/// Most bits of separators.
const MOST_BITS: u8 = 14;

/// How a table's groups are told apart.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum GroupForm {
    /// Each by a separator of its own.
    #[default]
    Plain,
    /// Those of a block, which have one separator, by the keys' hashes and a seed: a third of the bytes on the compute node, and of those
    /// keys that inserts put elsewhere somewhat more.
    Seeded,
}

impl GroupForm {
    /// As it is written on command lines and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Seeded => "seeded",
        }
    }
}

impl Display for GroupForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no form of groups has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown form of groups `{0}`: use plain or seeded")]
pub struct UnknownGroupForm(String);

impl FromStr for GroupForm {
    type Err = UnknownGroupForm;

    fn from_str(text: &str) -> Result<Self, UnknownGroupForm> {
        let named = [Self::Plain, Self::Seeded].into_iter().find(|form| form.name() == text);
        named.ok_or_else(|| UnknownGroupForm(text.to_owned()))
    }
}

/// How the slots of a table's segments are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grouping {
    /// Slots from one group to the next.
    pub stride: u8,
    /// Slots that are READ: the group's, and the next one's first.
    pub reach: u8,
    /// Groups of a block, which share a separator and a seed, by which hashes choose between them; 0: plain groups, each a block.
    pub per_seed: u8,
}

impl Grouping {
    /// What a READ of a group's slots brings at most, in bytes: about as much as a network card READs at the price of less.
    const READ_BYTES: usize = 256;
    /// Fewest slots of a READ. Separators of shorter groups take more than they save.
    const LEAST_REACH: usize = 4;
    /// Groups that share a seed: with more, few of all 256 seeds spread the keys of a block evenly enough.
    const PER_SEED: u8 = 6;

    /// Plain groups, of so many slots from one to the next and so many that are READ.
    #[must_use]
    pub const fn plain(stride: u8, reach: u8) -> Self {
        Self { stride, reach, per_seed: 0 }
    }

    /// Blocks of so many groups, of so many slots each.
    #[must_use]
    pub const fn seeded(per_seed: u8, reach: u8) -> Self {
        Self { stride: reach, reach, per_seed }
    }

    /// Groups of this form of slots of so many bytes; `None` if those are too long for groups to pay.
    #[must_use]
    pub const fn for_slots(form: GroupForm, slot_bytes: usize) -> Option<Self> {
        let reach = Self::READ_BYTES / if slot_bytes == 0 { 1 } else { slot_bytes };
        if reach < Self::LEAST_REACH || reach > 64 {
            return None;
        }
        let reach = reach as u8;
        Some(match form {
            GroupForm::Plain => Self::plain(reach - 1, reach),
            GroupForm::Seeded => Self::seeded(Self::PER_SEED, reach),
        })
    }

    /// How they are told apart.
    #[must_use]
    pub const fn name(self) -> GroupForm {
        if self.per_seed == 0 { GroupForm::Plain } else { GroupForm::Seeded }
    }

    /// The form of tables of such groups.
    #[must_use]
    pub const fn form(self) -> Form {
        let (stride, reach) = (self.stride as u16, self.reach as u16);
        match self.per_seed {
            0 => Form::Plain { stride, reach },
            groups => Form::Seeded { groups: groups as u16, reach },
        }
    }

    /// Whether there are such groups.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.form().is_valid() && (self.per_seed == 0 || self.stride == self.reach)
    }

    /// Slots from one block to the next: those of one separator.
    #[inline]
    #[must_use]
    pub const fn block(self) -> u16 {
        let groups = if self.per_seed == 0 { 1 } else { self.per_seed };
        self.stride as u16 * groups as u16
    }

    /// The greatest ε of a segment whose keys are in groups, in a table of this ε: keys of which each block has as many are 1/fill
    /// times as far from the line in slots as they are in ranks, fill is rarely below a half, and half a block is what rounding
    /// takes, and with seeds the order of hashes again.
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

    /// Bytes of a separator, with the seed of its block.
    #[must_use]
    pub const fn bytes_per_block(self) -> usize {
        if self.per_seed == 0 { 2 } else { 3 }
    }

    /// Bytes of the table of a segment of `cap` slots.
    #[must_use]
    pub const fn table_bytes(self, cap: u16) -> usize {
        HEADER_BYTES + (self.bytes_per_block() * self.count(cap) as usize).next_multiple_of(8)
    }

    /// The slots of the group that a key of this hash belongs to, in a block of a segment of `cap` slots: the first, and how many.
    /// `seed` tells the block's seed, and is asked where there are any.
    #[inline]
    #[must_use]
    pub fn run(self, block: u16, hash: u64, cap: u16, seed: impl FnOnce(usize) -> u8) -> (u32, u32) {
        let group = match self.per_seed {
            0 => 0,
            groups => {
                // Fewer in the only block of a segment with fewer slots.
                let there = u16::from(groups).min(cap / u16::from(self.stride.max(1)));
                group_by_seed(hash, seed(block.into()), there)
            }
        };
        let first = u32::from(block) * u32::from(self.block()) + u32::from(group) * u32::from(self.stride);
        (first, u32::from(self.reach).min(u32::from(cap).saturating_sub(first)))
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
    let seeds = table.map_or(&[][..], GroupTable::names);
    rest.iter_mut().skip(2 * distances.len()).zip(seeds).for_each(|(to, from)| *to = *from);
    head.copy_from_slice(&first_word(generation, bits, rest).to_le_bytes());
}

/// The first eight bytes of a table.
fn first_word(generation: u32, bits: u8, rest: &[u8]) -> u64 {
    let seed = u64::from(generation) << 8 | u64::from(bits);
    xxh3_64_with_seed(rest, seed) & !0xff | u64::from(bits)
}

/// The bits, and the separators and seeds as bytes, in the table of a segment of this generation; `None` if its keys are in no groups, or
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

/// The word of a table that a block's separator lies in, in bytes from its beginning, and how many bits of the word come before.
#[inline]
#[must_use]
pub const fn separator_at(block: usize) -> (u64, u32) {
    word_of(HEADER_BYTES + 2 * block)
}

/// The same of a block's seed, in the table of so many blocks.
#[inline]
#[must_use]
pub const fn seed_at(block: usize, blocks: u16) -> (u64, u32) {
    word_of(HEADER_BYTES + 2 * blocks as usize + block)
}

#[inline]
const fn word_of(byte: usize) -> (u64, u32) {
    ((byte & !7) as u64, 8 * (byte as u32 & 7))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_index::groups::Separators;

    fn table(grouping: Grouping, cap: u16, bits: u8, distances: &[i16], seeds: &[u8]) -> GroupTable {
        let separators = Separators::from_parts(bits, grouping.block(), distances.to_vec()).expect("some");
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
    fn seeds_lie_behind_the_separators() {
        let grouping = Grouping::for_slots(GroupForm::Seeded, 24).expect("short slots");
        assert_eq!((grouping, grouping.count(180)), (Grouping::seeded(6, 10), 3));
        let mut bytes = vec![7; grouping.table_bytes(180)];
        encode_groups(77, Some(&table(grouping, 180, 9, &[-2, 3, 258], &[5, 0, 200])), &mut bytes);
        assert_eq!(bytes[8..], [0xfe, 0xff, 3, 0, 2, 1, 5, 0, 200, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(u64_at(&bytes, 0), 0x5475_748b_3835_a409);
        let byte = |(word, shift)| (u64_at(&bytes, word as usize) >> shift) as u8;
        assert_eq!([0, 1, 2].map(|block| byte(seed_at(block, 3))), [5, 0, 200]);
        assert_eq!(byte(separator_at(2)), 2);
        assert_eq!(decode_groups(77, &bytes).map(|(bits, _)| bits), Some(9));
    }

    #[test]
    fn no_bit_of_a_table_can_be_another() {
        let plain = (Grouping::plain(9, 10), 19, &[][..]);
        for (grouping, cap, seeds) in [plain, (Grouping::seeded(6, 10), 120, &[3, 255][..])] {
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
            |bytes| Grouping::for_slots(GroupForm::Seeded, bytes).map(|g| (g.per_seed, g.stride, g.reach));
        assert_eq!([24, 64, 72].map(of), [Some((6, 10, 10)), Some((6, 4, 4)), None]);
    }

    #[test]
    fn forms_are_named_and_others_are_refused() {
        for form in [GroupForm::Plain, GroupForm::Seeded] {
            assert_eq!(
                (form.to_string().parse(), Grouping::for_slots(form, 24).map(Grouping::name)),
                (Ok(form), Some(form))
            );
        }
        let error = "pilots".parse::<GroupForm>().expect_err("not in regions").to_string();
        assert!(error.contains("plain or seeded"), "{error}");
        for bad in [
            Grouping { stride: 9, reach: 10, per_seed: 6 },
            Grouping::seeded(65, 4),
            Grouping::seeded(6, 0),
            Grouping::plain(9, 19),
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }

    #[test]
    fn every_slot_of_a_segment_is_in_a_group_and_no_other() {
        let forms = [GroupForm::Plain, GroupForm::Seeded];
        let of = |bytes| forms.into_iter().filter_map(move |form| Grouping::for_slots(form, bytes));
        for grouping in (24..=64).step_by(8).flat_map(of) {
            for cap in 1..400 {
                let (blocks, slots) = grouping.form().blocks(cap).expect("few");
                if slots == cap {
                    assert_eq!(grouping.count(cap), blocks, "{grouping:?} of {cap}");
                }
                let last = grouping.count(cap) - 1;
                // Hashes of all the groups of a block.
                let ends = (0..64).map(|seed| {
                    let (first, len) = grouping.run(last, u64::MAX / 3, cap, |_| seed);
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
