//! Separators in fewer bits, as compute nodes keep them.
//!
//! Separators ascend, so that they can be told as Elias and Fano tell ascending numbers (Elias,
//! JACM 1974; Fano, 1971): the low digits of each, one after the other, and the high ones in unary.
//! That takes two digits and an eighth each beside those of a block's quantiles, whatever ε is,
//! where as a distance each takes digits for 2ε slots.
//!
//! ```text
//! bits 0–15            distance of the separator of block 1; block 0 needs none
//! then  l each         low digits of the separators of blocks 2, 3, …, less that of block 1; l = F + ⌊log₂ stride⌋
//! then                 for each of these a one, after as many zeros as its high digits are more than the one's before it
//! ```

use super::separators::{BlockRun, MOST_BITS};

/// Bits of the first distance.
const FIRST: usize = 16;

/// The shape of the blocks that separators are of.
#[derive(Clone, Copy, Debug)]
struct BlockShape {
    bits: u8,
    stride: u16,
    blocks: u16,
}

impl BlockShape {
    fn new((bits, stride, blocks): (u8, u16, u16)) -> Self {
        Self { bits: bits.min(MOST_BITS), stride: stride.max(1), blocks }
    }

    /// Low digits of each.
    fn low(&self) -> u32 {
        u32::from(self.bits) + self.stride.ilog2()
    }

    /// How many there are after the first.
    fn others(&self) -> usize {
        usize::from(self.blocks).saturating_sub(2)
    }

    /// Where the high digits begin.
    fn high_at(&self) -> usize {
        FIRST + self.others() * self.low() as usize
    }

    /// Those of one of the others.
    #[inline]
    fn low_digits(&self, other: usize, word: impl Fn(usize) -> u32) -> u64 {
        let at = FIRST + other * self.low() as usize;
        let both = u64::from(word(at / 32)) | u64::from(word(at / 32 + 1)) << 32;
        (both >> (at % 32)) & ((1 << self.low()) - 1)
    }

    /// No high digits are more: distances have 16 bits.
    fn most_high(&self) -> u64 {
        let end = (u64::from(self.blocks) * u64::from(self.stride)) << self.bits;
        (end + (1 << 16)) >> self.low()
    }

    /// Where a block begins, in fractions of a slot.
    fn start(&self, block: usize) -> i64 {
        ((block * usize::from(self.stride)) as i64) << self.bits
    }
}

/// Appends the words of separators of `bits` bits, each of a block that begins `stride` slots after
/// the one before, whose distances these are; `false`, and nothing is appended, if they do not
/// ascend.
pub fn pack(bits: u8, stride: u16, distances: &[i16], out: &mut Vec<u32>) -> bool {
    // As many blocks as a u16 counts, or no table.
    let Ok(blocks) = u16::try_from(distances.len()) else { return false };
    let shape = BlockShape::new((bits, stride, blocks));
    let separator = |block: usize| shape.start(block) + i64::from(distances[block]);
    let ascends = (1..distances.len()).all(|block| separator(block - 1) <= separator(block));
    if !ascends || shape.bits != bits {
        return false;
    }
    let Some(first) = distances.get(1) else { return true };
    let begin = out.len();
    let mut set = |at: usize, value: u64| {
        let (word, shift) = (begin + at / 32, at % 32);
        // What is set has 26 bits at most.
        out.resize(out.len().max(word + 1 + usize::from((value << shift) >> 32 != 0)), 0);
        out[word] |= (value << shift) as u32;
        if (value << shift) >> 32 != 0 {
            out[word + 1] |= ((value << shift) >> 32) as u32;
        }
    };
    set(0, u64::from(first.cast_unsigned()));
    let low = shape.low();
    for other in 0..shape.others() {
        let value = separator(other + 2).abs_diff(separator(1));
        set(FIRST + other * low as usize, value & ((1 << low) - 1));
        set(shape.high_at() + other + (value >> low) as usize, 1);
    }
    true
}

/// The blocks of keys whose line has this value, in fractions of [`finest`](super::finest), by
/// packed separators of this many bits, stride and number: as [`blocks_among`](super::blocks_among)
/// tells them from what was packed. Below the number of blocks, whatever the words are.
#[inline]
#[must_use]
pub fn blocks_in_packed(finest: i64, shape: (u8, u16, u16), word: impl Fn(usize) -> u32) -> BlockRun {
    let one = |block: u16| BlockRun { first: block, last: block };
    let shape = BlockShape::new(shape);
    let others = shape.others();
    if shape.blocks < 2 {
        return one(0);
    }
    let first = shape.start(1) + i64::from(word(0) as i16);
    let quantile = finest >> (MOST_BITS - shape.bits);
    // A line of a damaged region may have any value.
    let Ok(beyond) = u64::try_from(quantile.saturating_sub(first)) else { return one(0) };
    let (high, low_digits) = (beyond >> shape.low(), beyond & ((1 << shape.low()) - 1));
    if high > shape.most_high() {
        return one(shape.blocks - 1);
    }
    let (mut at, mut ones, mut zeros) = (shape.high_at(), 0, 0);
    // Past the words before the one with the last zero that the high digits ask for.
    let mut rest = loop {
        let (len, some) = (32 - at % 32, word(at / 32) >> (at % 32));
        let some_ones = some.count_ones() as usize;
        if zeros + (len - some_ones) as u64 >= high {
            break some;
        }
        (at, ones, zeros) = (at + len, ones + some_ones, zeros + (len - some_ones) as u64);
        if ones >= others {
            return one(shape.blocks - 1);
        }
    };
    // Past that zero: what comes before it has fewer high digits.
    if high > zeros {
        let mut left = !rest;
        for _ in 1..high - zeros {
            left &= left.wrapping_sub(1);
        }
        let passed = left.trailing_zeros() as usize + 1;
        (at, ones) = (at + passed, ones + passed - (high - zeros) as usize);
        rest = rest.checked_shr(passed as u32).unwrap_or(0);
    }
    // Those with the same high digits, one after the other, and how many are the key's quantile
    // itself.
    let mut equal = 0;
    while ones < others {
        if at % 32 == 0 {
            rest = word(at / 32);
        }
        if rest & 1 == 0 {
            break;
        }
        let low = shape.low_digits(ones, &word);
        if low > low_digits {
            break;
        }
        equal += usize::from(low == low_digits);
        (at, ones, rest) = (at + 1, ones + 1, rest >> 1);
    }
    // At most all the others, and the first.
    let last = ones.min(others) + 1;
    // That of block 1 is where the others are counted from; block 0 goes with it.
    let first = if beyond == 0 { 0 } else { last - equal.saturating_sub(1).min(last) };
    BlockRun { first: first as u16, last: last as u16 }
}

/// The value of the line, in fractions of [`finest`](super::finest), at which the keys of a block
/// begin by packed separators: that of its first slot for block 0, whose separator is not kept, and
/// for one past the last.
#[must_use]
pub fn separator_in_packed(block: u16, shape: (u8, u16, u16), word: impl Fn(usize) -> u32) -> i64 {
    let shape = BlockShape::new(shape);
    let in_finest = |separator: i64| separator << (MOST_BITS - shape.bits);
    if block == 0 || block >= shape.blocks {
        return in_finest(shape.start(block.into()));
    }
    let first = shape.start(1) + i64::from(word(0) as i16);
    let Some(other) = usize::from(block).checked_sub(2) else { return in_finest(first) };
    // To the one that is its own, past those of others.
    let (mut at, mut left) = (shape.high_at(), other);
    let end = at + other + shape.most_high() as usize;
    while at < end {
        let mut some = word(at / 32) >> (at % 32);
        match left.checked_sub(some.count_ones() as usize) {
            Some(rest) => (at, left) = (at + 32 - at % 32, rest),
            None => {
                (0..left).for_each(|_| some &= some.wrapping_sub(1));
                at += some.trailing_zeros() as usize;
                break;
            }
        }
    }
    let high = (at.min(end) - shape.high_at()).saturating_sub(other) as u64;
    in_finest(first + (high << shape.low() | shape.low_digits(other, word)) as i64)
}

/// How many words packed separators take, of this many bits, stride and number.
#[must_use]
pub fn packed_words(shape: (u8, u16, u16), word: impl Fn(usize) -> u32) -> usize {
    let shape = BlockShape::new(shape);
    if shape.blocks < 2 {
        return 0;
    }
    let (mut at, mut left) = (shape.high_at(), shape.others());
    let end = at + left + shape.most_high() as usize;
    while left > 0 && at < end {
        let (len, some) = (32 - at % 32, word(at / 32) >> (at % 32));
        left = left.saturating_sub(some.count_ones() as usize);
        at += len;
    }
    at.div_ceil(32)
}

#[cfg(test)]
mod tests {
    use super::super::separators::blocks_among;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_separators_name_the_blocks_that_they_named(
            bits in 0u8..=14, stride in 1u16..=64, steps in vec(prop_oneof![Just(0u32), 0u32..3000], 0..200), far in any::<i16>(),
            looks in vec(any::<(u16, i8)>(), 40), wide in any::<i64>(),
        ) {
            // As they come from keys that lie unevenly, as far as distances reach.
            let mut at = i64::from(far);
            let separators: Vec<i64> = (0..=steps.len()).map(|block| {
                if block > 0 {
                    at += i64::from(steps[block - 1] << bits >> 6);
                }
                at
            }).collect();
            let start = |block: usize| ((block * usize::from(stride)) as i64) << bits;
            let distances: Vec<i16> = (0..).zip(&separators)
                .map_while(|(block, separator)| i16::try_from(separator - start(block)).ok()).collect();
            let blocks = distances.len() as u16;
            let mut words = vec![7];
            prop_assert!(pack(bits, stride, &distances, &mut words));
            let shape = (bits, stride, blocks);
            let word = |at: usize| words[1..].get(at).copied().unwrap_or(u32::MAX);
            prop_assert_eq!(packed_words(shape, word), words.len() - 1);
            for (block, separator) in (0..blocks).zip(&separators).skip(1) {
                prop_assert_eq!(separator_in_packed(block, shape, word), separator << (14 - bits));
            }
            for (which, beside) in looks {
                let near = separators[usize::from(which) % separators.len()] + i64::from(beside / 16);
                for finest in [near << (14 - bits), wide >> (which % 64)] {
                    let expected = blocks_among(finest, shape, |block| distances[block]);
                    prop_assert_eq!(blocks_in_packed(finest, shape, word), expected);
                }
            }
        }

        #[test]
        fn whatever_the_words_are_blocks_are_there_and_looking_ends(
            bits in 0u8..=14, stride in 1u16..=64, blocks: u16, words in vec(any::<u32>(), 0..40), finest: i64, rest: u32,
        ) {
            let word = |at: usize| words.get(at).copied().unwrap_or(rest);
            for rest in [finest, finest >> 40, i64::MAX >> 1] {
                let run = blocks_in_packed(rest, (bits, stride, blocks), word);
                prop_assert!(run.first <= run.last && run.last < blocks.max(1));
            }
            prop_assert!(packed_words((bits, stride, blocks), word) < 1 << 17);
            let _ = separator_in_packed(rest as u16, (bits, stride, blocks), word);
        }
    }

    #[test]
    fn separators_that_fall_are_not_packed() {
        let mut words = Vec::new();
        assert!(!pack(0, 9, &[0, 0, -10], &mut words) && words.is_empty());
        assert!(!pack(15, 9, &[0], &mut words));
        assert!(pack(0, 9, &[5], &mut words) && words.is_empty(), "one block has no separators");
    }

    #[test]
    fn a_separator_takes_little_more_than_the_digits_of_a_block() {
        let distances: Vec<i16> = (0..400).map(|block| ((block * 7919) % 300) as i16).collect();
        let mut words = Vec::new();
        assert!(pack(7, 9, &distances, &mut words));
        let each = 32.0 * words.len() as f64 / distances.len() as f64;
        assert!((11.9..12.4).contains(&each), "{each} bits");
    }
}
