//! Encoders of byte strings as numbers in the same order.
//!
//! # How a string becomes a number
//!
//! Arithmetic coding (Rissanen, IBM Journal 20(3), 1976; Witten, Neal and Cleary, CACM 30(6),
//! 1987), which keeps order if shares lie in the order of the symbols. A string is an interval: the
//! empty one is all of `0..2^32`, and each byte narrows the interval to its share in the context of
//! the bytes before it. The end of the string has the lowest share, so a string lies below its
//! extensions, and the number is the low end of the last interval. Numbers are spread evenly if the
//! shares are the bytes' true frequencies, and evenly spread numbers need few lines.
//!
//! Two strings pass through the same intervals up to the byte in which they differ, and there the
//! lower byte's interval lies below the other's; where an interval has become too narrow to be
//! divided both stop, with the same number. So numbers never decrease with the strings, whatever
//! the table says, and every string has one.
//!
//! # The table
//!
//! Contexts are states of an automaton: a row for each, and in it for each class of bytes where its
//! share begins and which row follows. One row without context gives base-256 numbers
//! ([`KeyEncoder::plain`]), ranks among the bytes seen or order-0 coding, as its shares are set;
//! see `train` for the contexts chosen. A byte seen in training is a class of its own, and so is
//! each run of unseen bytes between two of them, divided evenly.

/// Maps byte strings to coordinates that never decrease in lexicographic order.
///
/// A table with a row of shares for each of a few contexts; the same numbers on every processor.
/// Every byte string has a coordinate below 2^32; those of strings far apart differ, of close ones
/// they may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyEncoder {
    pub(super) classes: Classes,
    /// Rows of [`Classes::width`] cells.
    pub(super) cells: Box<[Cell]>,
}

/// One class of bytes in one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cell {
    /// Share of all that is below the class, in 1/65,536.
    pub(super) below: u16,
    /// First cell of the row that follows.
    pub(super) next: u16,
}

/// Which column of a row a byte has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Classes {
    /// The class of each byte, and [`RUN`] if others are of that class, too.
    pub(super) classes: [u16; 256],
    /// The place of each byte among those of its class, and how many others these are.
    places: [(u8, u8); 256],
    count: usize,
}

/// Marks a class of several bytes.
pub(super) const RUN: u16 = 1 << 15;

impl Classes {
    /// Each byte seen is a class, and each run of others between them.
    pub(super) fn new(seen: &[bool; 256]) -> Self {
        let (mut classes, mut places) = ([0; 256], [(0, 0); 256]);
        let (mut count, mut first) = (0, 0);
        while first < 256 {
            let run = seen[first..].iter().take_while(|seen| !**seen).count().max(1);
            for index in 0..run {
                classes[first + index] = if run > 1 { count | RUN } else { count };
                // At most 256 bytes.
                places[first + index] = (index as u8, (run - 1) as u8);
            }
            count += 1;
            first += run;
        }
        Self { classes, places, count: usize::from(count) }
    }

    /// Cells of a row: one for each class, and one that ends the last.
    pub(super) fn width(&self) -> usize {
        self.count + 1
    }

    /// The class of a byte.
    pub(super) fn of(&self, byte: u8) -> usize {
        usize::from(self.classes[usize::from(byte)] & !RUN)
    }

    /// The part of `range`, which is its class's, that a byte has: its beginning and its width.
    /// `range` is at most 2^32.
    #[cold]
    fn divide(&self, byte: u8, range: u64) -> (u64, u64) {
        let (index, others) = self.places[usize::from(byte)];
        let (index, of) = (u64::from(index), u64::from(others) + 1);
        let (below, above) = (range * index / of, range * (index + 1) / of);
        (below, above - below)
    }
}

/// The interval of the empty string has this many bits. Distances then stay where a line is fitted
/// in fast arithmetic; 56 bits gave fewer segments on no key set, and took longer to use up.
const BITS: u32 = 32;
/// An interval that is narrower is divided no further: what differs after it takes another skip to
/// tell.
const NARROWEST: u64 = 1 << 4;
/// Bytes after which a string is coded no further, however predictable they were.
const MAX_CODED: usize = 32;
/// Bytes before the first coded one that choose its context.
pub(super) const MAX_ORDER: usize = 2;
/// Most cells of a table, since a cell's number has 16 bits.
pub(super) const MAX_CELLS: usize = 1 << 16;
/// Shares are counted in this many parts; the last is never reached.
pub(super) const WHOLE: u16 = u16::MAX;

impl KeyEncoder {
    /// The greatest coordinate of a key that has what its segment skips.
    pub const MAX_CODE: u64 = (1 << BITS) - 1;

    pub(super) fn from_table(classes: Classes, cells: Vec<Cell>) -> Self {
        Self { classes, cells: cells.into() }
    }

    /// The coordinate of `key[skip..]`, with the bytes before it as context: below 2^32.
    ///
    /// Of keys that share their first `skip` bytes a greater one never has a lower coordinate. Of
    /// two that differ at byte `skip`, or of which one ends there, the greater has a greater one. A
    /// `skip` beyond the key's end is its end. About 2 ns per byte until the 32 bits are used up,
    /// after 6 to 12 bytes of most keys and 32 at most.
    #[inline]
    pub fn code(&self, key: &[u8], skip: usize) -> u64 {
        let (before, rest) = key.split_at(skip.min(key.len()));
        let mut row = 0;
        for &byte in &before[before.len().saturating_sub(MAX_ORDER)..] {
            row = usize::from(self.cells[row + self.classes.of(byte)].next);
        }
        let (mut low, mut range) = (0u64, 1u64 << BITS);
        for &byte in &rest[..rest.len().min(MAX_CODED)] {
            let class = self.classes.classes[usize::from(byte)];
            let column = row + usize::from(class & !RUN);
            let [cell, end] =
                *self.cells[column..].first_chunk().expect("a cell ends the last class of a row");
            let below = (range * u64::from(cell.below)) >> 16;
            low += below;
            range = ((range * u64::from(end.below)) >> 16) - below;
            if class & RUN != 0 {
                let (below, part) = self.classes.divide(byte, range);
                (low, range) = (low + below, part);
            }
            if range < NARROWEST {
                break;
            }
            row = usize::from(cell.next);
        }
        low
    }

    /// Bytes in memory.
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.cells[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_seen_and_runs_of_others_are_classes() {
        let mut seen = [false; 256];
        (b'a'..=b'z').step_by(2).for_each(|byte| seen[usize::from(byte)] = true);
        let classes = Classes::new(&seen);
        // 13 seen, 12 between, one run before and one after.
        assert_eq!(classes.count, 27);
        assert_eq!(
            [0, b'`', b'a', b'b', b'c', b'y', b'z', 255].map(|b| classes.of(b)),
            [0, 0, 1, 2, 3, 25, 26, 26]
        );
    }
}
