//! The record keys of YCSB.

use crate::progress::Progress;
use crate::requests::fnv64;

/// What every key begins with.
const PREFIX: &[u8] = b"user";
/// Decimal digits of the greatest hash, which is at most 2^63.
const DIGITS: usize = 19;
/// The least length to which all keys can be padded.
pub const LEAST_PADDED: usize = PREFIX.len() + DIGITS;

/// Records hashed between two reports of progress.
const STEP: u64 = 1 << 18;

/// The keys of YCSB's first records, ascending: `user` and the record number's FNV-1a hash in
/// decimal, as its core workload makes them. Where a length is given, the digits have zeros in
/// front of them, as YCSB's `zeropadding` has it.
///
/// Only the hashes are held, 8 bytes per key; a key is written when it is asked for.
#[derive(Clone, Debug)]
pub struct YcsbKeys {
    /// In the order of the keys.
    hashes: Vec<u64>,
    /// Digits of every key, where they are padded.
    digits: Option<usize>,
}

impl YcsbKeys {
    /// The keys of the records 0 to `count`; in the rare case that two have the same hash, of some
    /// more. Of `bytes` bytes each, at least [`LEAST_PADDED`], where that is given. `None` without
    /// memory for them.
    ///
    /// There is no seed: YCSB has none here. Costs one sort of numbers, below 100 ns per key.
    pub fn new(count: usize, bytes: Option<usize>, progress: Option<&dyn Progress>) -> Option<Self> {
        let mut hashes = Vec::new();
        hashes.try_reserve_exact(count).ok()?;
        if let Some(progress) = progress {
            progress.begin("generating", count as u64);
        }
        let mut record = 0u64;
        while hashes.len() < count {
            while hashes.len() < count {
                hashes.push(fnv64(record));
                record += 1;
                if let Some(progress) = progress.filter(|_| record.is_multiple_of(STEP)) {
                    progress.advance(hashes.len() as u64);
                }
            }
            hashes.sort_unstable();
            hashes.dedup();
        }
        let digits = bytes.map(|bytes| bytes.saturating_sub(PREFIX.len()).max(DIGITS));
        if digits.is_none() {
            order_as_text(&mut hashes)?;
        }
        if let Some(progress) = progress {
            progress.end();
        }
        Some(Self { hashes, digits })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Bytes of the key at index `i`, which must be below their number.
    pub fn length(&self, i: usize) -> usize {
        PREFIX.len() + self.digits.unwrap_or(digits(self.hashes[i]))
    }

    /// Appends the key at index `i`, which must be below their number.
    #[inline]
    pub fn write(&self, i: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFIX);
        let mut text = [b'0'; DIGITS];
        let mut rest = self.hashes[i];
        let mut first = DIGITS;
        while rest > 0 {
            first -= 1;
            // A digit.
            text[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        match self.digits {
            Some(digits) => out.resize(out.len() + digits - DIGITS, b'0'),
            // Zero has a digit as well.
            None => return out.extend_from_slice(&text[first.min(DIGITS - 1)..]),
        }
        out.extend_from_slice(&text);
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> u64 {
        self.hashes.capacity() as u64 * 8
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// The number with zeros after it up to 19 digits: where two texts first differ, so do these
/// numbers.
fn scaled(number: u64) -> u64 {
    // At most 19 digits, which fit.
    number * 10u64.pow((DIGITS - digits(number)) as u32)
}

/// Brings ascending numbers into the order of their decimal texts; `None` without memory for it.
///
/// Nine in ten hashes have all 19 digits and are in order among themselves; the others, which are
/// in front, are taken out, sorted and merged with them.
fn order_as_text(numbers: &mut [u64]) -> Option<()> {
    let short = numbers.partition_point(|&number| digits(number) < DIGITS);
    let mut taken: Vec<(u64, u64)> = Vec::new();
    taken.try_reserve_exact(short).ok()?;
    // Of two texts, one of which begins the other, the shorter and lesser number comes first.
    taken.extend(numbers[..short].iter().map(|&number| (scaled(number), number)));
    taken.sort_unstable();
    let (mut next, mut written) = (short, 0);
    for entry in taken {
        while numbers.get(next).is_some_and(|&number| (number, number) < entry) {
            numbers[written] = numbers[next];
            written += 1;
            next += 1;
        }
        numbers[written] = entry.1;
        written += 1;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(keys: &YcsbKeys) -> Vec<String> {
        let key = |i| {
            let mut key = Vec::new();
            keys.write(i, &mut key);
            assert_eq!(keys.length(i), key.len());
            String::from_utf8(key).unwrap()
        };
        (0..keys.len()).map(key).collect()
    }

    #[test]
    fn keys_are_those_of_ycsbs_first_records() {
        let three = YcsbKeys::new(3, None, None).unwrap();
        assert_eq!(
            keys(&three),
            ["user1820151046732198393", "user6284781860667377211", "user8517097267634966620"]
        );
    }

    #[test]
    fn padded_keys_have_one_length_and_the_order_of_their_numbers() {
        for bytes in [LEAST_PADDED, 24, 128] {
            let keys = keys(&YcsbKeys::new(500, Some(bytes), None).unwrap());
            assert!(keys.is_sorted() && keys.iter().all(|key| key.len() == bytes), "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_ordered_as_their_texts(numbers in prop::collection::vec((any::<u64>(), 0u32..64), 0..60)) {
            let mut numbers: Vec<u64> = numbers.into_iter().map(|(n, shift)| (n >> 1) >> shift).collect();
            numbers.extend([0, 1, 10, 100, 12, 120, 1 << 63, 999_999_999_999_999_999, 10u64.pow(18)]);
            numbers.sort_unstable();
            numbers.dedup();
            let mut texts: Vec<String> = numbers.iter().map(|n| format!("user{n}")).collect();
            texts.sort();
            order_as_text(&mut numbers).unwrap();
            let made = YcsbKeys { hashes: numbers, digits: None };
            prop_assert_eq!(keys(&made), texts);
        }
    }
}
