//! The separators between the blocks of a segment.

use super::hash::choose;
use crate::SegmentModel;

/// Most bits of a slot that separators tell apart.
pub(super) const MOST_BITS: u8 = 14;
/// How many they are tried with; segments whose separators do not fit the fewest have none.
const BITS_TRIED: [u8; 11] = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

/// The blocks between which a key's hash chooses: neighbours whose separators are the key's
/// quantile, and hardly ever more than one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRun {
    /// The first of them.
    pub first: u16,
    /// The last of them.
    pub last: u16,
}

impl BlockRun {
    /// That of a key of this hash.
    #[inline]
    #[must_use]
    pub fn of(self, hash: u64) -> u16 {
        match self.last - self.first {
            0 => self.last,
            // Of other bits than those that have most weight within blocks.
            others => self.first + choose(hash.rotate_left(16), others.saturating_add(1)),
        }
    }
}

/// Which of `blocks` blocks, each `stride` slots after the one before, keys belong to whose line
/// has this value, in fractions of [`finest`]; separators have `bits` bits, and `distance` tells
/// each, however they are kept. Below `blocks`, whatever they are, if there is a block.
#[inline]
#[must_use]
pub fn blocks_among(
    finest: i64,
    (bits, stride, blocks): (u8, u16, u16),
    distance: impl Fn(usize) -> i16,
) -> BlockRun {
    let bits = bits.min(MOST_BITS);
    let quantile = finest >> (MOST_BITS - bits);
    let separator = |block: usize| ((block as i64 * i64::from(stride)) << bits) + i64::from(distance(block));
    let last = usize::from(blocks.saturating_sub(1));
    let guess = (quantile >> bits).max(0) as u64 / u64::from(stride.max(1));
    let mut block = usize::try_from(guess).unwrap_or(last).min(last);
    while block < last && separator(block + 1) <= quantile {
        block += 1;
    }
    while block > 0 && separator(block) > quantile {
        block -= 1;
    }
    let mut first = block;
    if block > 0 && separator(block) == quantile {
        while first > 1 && separator(first - 1) == quantile {
            first -= 1;
        }
        // The first block of all has no separator that is kept.
        first -= usize::from(first == 1);
    }
    // There are fewer blocks than 2^16.
    BlockRun { first: first as u16, last: block as u16 }
}

/// The line's value at a coordinate in the finest fractions of a slot that separators tell apart:
/// 2^14 of them.
#[inline]
#[must_use]
pub fn finest(model: &SegmentModel, x: u64) -> i64 {
    model.line.fraction(x.saturating_sub(model.origin), MOST_BITS)
}

/// For each block the least prediction of its keys, in fractions of a slot, as the distance from
/// where the block begins.
///
/// With `F` [bits](Self::bits) a coordinate's *quantile* is
/// `q(x) = floor(2^F (line's value at x))`, and the separator of block `b`, which begins at slot
/// `b·s`, is `q(first key of b) - b·s·2^F`, in 16 bits, two's complement. `F` is as large as it
/// takes for even blocks, as far as all of a segment's separators fit. A key's block is the last
/// whose separator is not above its quantile, or the first. Where several have the key's quantile
/// itself for a separator, its [hash chooses](BlockRun::of) between these; the first block of all
/// is one of them if the second is, so that it needs no separator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockSeparators {
    pub(super) bits: u8,
    /// Slots from one block to the next.
    pub(super) stride: u16,
    pub(super) distances: Vec<i16>,
}

impl BlockSeparators {
    /// Separators with these values; `None` if there are none, or a slot has more fractions than
    /// 2^14.
    #[must_use]
    pub fn from_parts(bits: u8, stride: u16, distances: Vec<i16>) -> Option<Self> {
        let is_valid = bits <= MOST_BITS && !distances.is_empty() && u16::try_from(distances.len()).is_ok();
        is_valid.then_some(Self { bits, stride, distances })
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.distances.len()
    }

    /// Binary digits of a slot's fractions.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Slots from one block to the next.
    #[must_use]
    pub fn stride(&self) -> u16 {
        self.stride
    }

    /// The values, one for each block.
    #[must_use]
    pub fn distances(&self) -> &[i16] {
        &self.distances
    }

    /// The blocks of a key, by its coordinate: below [`blocks`](Self::blocks), whatever the values
    /// are. A few nanoseconds and one for each block between the guess and the answer.
    #[inline]
    #[must_use]
    pub fn blocks_of(&self, model: &SegmentModel, x: u64) -> BlockRun {
        // As many blocks as a u16 counts.
        let form = (self.bits, self.stride, self.distances.len() as u16);
        blocks_among(finest(model, x), form, |block| self.distances[block])
    }

    /// Separators of `blocks` blocks with about equally many keys in each, and the rank of the
    /// first key of each, or of its run of equal separators; `None` if some key lies farther from
    /// its prediction than separators say. Keys of one quantile belong to one block, or to a run of
    /// them.
    ///
    /// They have as few bits as leave no block with more than a key above the even number: each bit
    /// more takes one more of every block where separators are kept. Where no bits that fit do
    /// that, those with the fewest keys too many.
    pub(super) fn fit(
        model: &SegmentModel,
        xs: &[u64],
        blocks: u16,
        stride: u16,
    ) -> Option<(Self, Vec<usize>)> {
        let most = xs.len().div_ceil(usize::from(blocks.max(1))) + 1;
        let mut best: Option<(usize, Self, Vec<usize>)> = None;
        for bits in BITS_TRIED {
            let Some((separators, firsts)) = Self::with_bits(model, xs, (bits, stride, blocks)) else {
                break;
            };
            let runs = firsts.chunk_by(|a, b| a == b);
            let ends = runs.clone().skip(1).map(|run| run[0]).chain([xs.len()]);
            let beyond = |(run, end): (&[usize], usize)| (end - run[0]).saturating_sub(most * run.len());
            let too_many: usize = runs.zip(ends).map(beyond).sum();
            if best.as_ref().is_none_or(|(least, ..)| too_many < *least) {
                best = Some((too_many, separators, firsts));
            }
            if too_many == 0 {
                break;
            }
        }
        best.map(|(_, separators, firsts)| (separators, firsts))
    }

    /// The same with `bits` bits; `None` if some separator does not fit then.
    fn with_bits(
        model: &SegmentModel,
        xs: &[u64],
        (bits, stride, blocks): (u8, u16, u16),
    ) -> Option<(Self, Vec<usize>)> {
        let quantile_at = |rank: usize| match xs.get(rank) {
            Some(x) => quantile(model, *x, bits),
            // Of blocks without keys after the last key's.
            None => xs.last().map_or(0, |x| quantile(model, *x, bits).saturating_add(1)),
        };
        let firsts = first_ranks(xs.len(), blocks, quantile_at);
        let distance = |(block, first): (i64, &usize)| {
            let start = (block * i64::from(stride)) << bits;
            i16::try_from(quantile_at(*first).saturating_sub(start)).ok()
        };
        let distances = (0..).zip(&firsts).map(distance).collect::<Option<Vec<_>>>()?;
        Some((Self { bits, stride, distances }, firsts))
    }
}

/// The line's value at a coordinate, in `2^bits` fractions of a slot.
#[inline]
fn quantile(model: &SegmentModel, x: u64, bits: u8) -> i64 {
    finest(model, x) >> (MOST_BITS - bits)
}

/// The rank of each block's first key: equally many for each block, but for keys of one quantile,
/// which stay together, or have several blocks, all with the same first, if they are more than a
/// block has.
fn first_ranks(keys: usize, blocks: u16, quantile_at: impl Fn(usize) -> i64) -> Vec<usize> {
    let parts = |rank: usize| rank == 0 || rank >= keys || quantile_at(rank - 1) < quantile_at(rank);
    let blocks = usize::from(blocks);
    let mut firsts = Vec::with_capacity(blocks);
    // Blocks are even from this one on, which begins with this rank: the first after those of many
    // keys of one quantile.
    let (mut from, mut rank) = ((0, 0), 0);
    // The nearest ranks on either side of the last even one between which keys part. They stay the
    // nearest until that has passed the second, so that no key is looked at for more than one
    // block, however many have one quantile.
    let (mut before, mut after) = (0, 0);
    while firsts.len() < blocks {
        firsts.push(rank);
        let (even_blocks, even_keys) = (blocks - from.0, keys - from.1);
        let even = (from.1 + (firsts.len() - from.0) * even_keys / even_blocks).max(rank);
        if even >= after {
            before = (after..=even).rev().find(|rank| parts(*rank)).unwrap_or(after);
            after = (even..=keys).find(|rank| parts(*rank)).unwrap_or(keys);
        }
        let (each, tied) = (even_keys.div_ceil(even_blocks), after - before);
        rank = match (before > rank, tied > each) {
            // Their blocks begin with them.
            (true, true) => before,
            (true, false) if even - before <= after - even => before,
            (_, false) => after,
            (false, true) => {
                let own = (tied + each / 2) / each.max(1);
                firsts.extend(std::iter::repeat_n(rank, own.saturating_sub(1).min(blocks - firsts.len())));
                from = (firsts.len(), after);
                after
            }
        };
    }
    firsts
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn blocks_of_keys_of_one_quantile_are_found_without_looking_at_these_for_every_block() {
        // Runs of keys of one quantile, as long as many blocks together.
        const KEYS: usize = 60_000;
        for run in [1, 7, 1000, 25_000, KEYS] {
            let looks = Cell::new(0);
            let firsts = first_ranks(KEYS, 7000, |rank| {
                looks.set(looks.get() + 1);
                (rank / run) as i64
            });
            assert!(looks.get() <= 6 * KEYS, "{} looks at {KEYS} keys in runs of {run}", looks.get());
            assert!(firsts.is_sorted() && firsts.iter().all(|first| first % run == 0 || *first == KEYS));
        }
    }

    #[test]
    fn blocks_begin_where_keys_part_nearest_to_even_and_many_of_one_quantile_have_several() {
        let quantiles = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 4];
        let firsts = first_ranks(quantiles.len(), 6, |rank| quantiles[rank]);
        assert_eq!(firsts, [0, 0, 3, 5, 6, 6]);
    }

    /// Regions hold what these lead to: another block for a hash makes tables that are there
    /// unreadable.
    #[test]
    fn golden_blocks_of_a_run() {
        let hashes = [1u64, 2, 3, 51].map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(hashes.map(|hash| BlockRun { first: 3, last: 7 }.of(hash)), [5, 7, 5, 4]);
    }
}
