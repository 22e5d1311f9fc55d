//! Heads: eight bytes that stand for a byte string among others that begin alike.

pub(super) use crate::strings::common_prefix;
use std::hint::select_unpredictable;

/// Bytes of the string that a head holds.
pub(super) const HEAD_BYTES: usize = 7;

/// Last byte of the heads of strings that go on after what the head holds.
const LONG: u64 = HEAD_BYTES as u64 + 1;

/// Head of room that is not used. No search counts it.
pub(super) const UNUSED: u64 = u64::MAX;

/// Above every head of a string: stands for a key that lies above all strings with the prefix that
/// was cut off.
const BEYOND: u64 = u64::MAX - 1;

/// An item with a head.
pub trait HasHead {
    fn head(&self) -> u64;
}

impl HasHead for u64 {
    #[inline(always)]
    fn head(&self) -> u64 {
        *self
    }
}

impl<T> HasHead for (u64, T) {
    #[inline(always)]
    fn head(&self) -> u64 {
        self.0
    }
}

/// A byte string of which heads are wanted.
#[derive(Clone, Copy)]
pub(super) struct Headed<'a> {
    bytes: &'a [u8],
    /// Its bytes and zeros after, if it is shorter than a word.
    short: u64,
}

impl<'a> Headed<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let short = if bytes.len() < 8 { short_word(bytes) } else { 0 };
        Self { bytes, short }
    }

    /// As [`Headed::new`], where the word of a short string is known.
    #[inline(always)]
    pub(super) fn with_word(bytes: &'a [u8], short: u64) -> Self {
        Self { bytes, short }
    }

    pub(super) fn short(&self) -> u64 {
        self.short
    }

    /// The head of the string after its first `at` bytes, which it must have: seven bytes, with
    /// zeros after the end, and how many there are, or eight if there are more.
    ///
    /// Among strings that share those `at` bytes, heads do not descend as strings ascend, and equal
    /// heads without [`is_long`] are equal strings: a zero that is data counts, one after the end
    /// does not. This is the normalised prefix of G. Graefe and P.-Å. Larson, "B-tree indexes and
    /// CPU caches", ICDE 2001, §3, made exact for short keys.
    #[inline(always)]
    pub(super) fn head(&self, at: usize) -> u64 {
        let end = (at + 8).min(self.bytes.len());
        let (word, skipped) = if self.bytes.len() < 8 {
            (self.short, at)
        } else {
            // The last eight bytes of the string, if there are fewer from `at` on.
            let start = end.saturating_sub(8);
            let word = self.bytes.get(start..).and_then(|bytes| bytes.first_chunk());
            (word.map_or(0, |word| u64::from_be_bytes(*word)), at - start)
        };
        // In two steps, because all eight may be skipped. More are where the string is too short.
        let half = 4 * skipped as u32;
        (word.wrapping_shl(half).wrapping_shl(half) & !0xFF) | end.wrapping_sub(at) as u64
    }

    /// As [`Headed::head`], if the string has the prefix of `at` bytes. Without it, and above a
    /// string that has it, it lies above all that have it.
    #[inline(always)]
    pub(super) fn head_after(&self, at: usize, has_prefix: bool) -> u64 {
        select_unpredictable(has_prefix, self.head(at), BEYOND)
    }
}

/// The bytes of a string shorter than eight, and zeros after. No jump depends on the length.
fn short_word(bytes: &[u8]) -> u64 {
    let Some(last) = bytes.len().checked_sub(1) else { return 0 };
    let at = |i: usize| select_unpredictable(i <= last, bytes[i.min(last)], 0);
    u64::from_be_bytes(std::array::from_fn(at))
}

/// Whether the string goes on after what the head holds.
#[inline(always)]
pub(super) fn is_long(head: u64) -> bool {
    head & 0xFF == LONG
}

/// The bytes of the string that the head holds.
pub(super) fn bytes_of(head: u64) -> ([u8; 8], usize) {
    (head.to_be_bytes(), (head & 0xFF).min(HEAD_BYTES as u64) as usize)
}

/// How many bytes two strings of different heads share, or equal ones that are not long: the lower
/// head's, and one at or above it.
#[inline(always)]
pub(super) fn shared_bytes(low: u64, high: u64) -> usize {
    // Of the last byte no more is to be known than that the seven before are alike.
    let alike = ((low ^ high) | 1).leading_zeros() / 8;
    // Zeros after the end of the lower one are not shared.
    u64::from(alike).min(low & 0xFF) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few different bytes, so that strings share much.
    fn alike() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![8 => Just(0), 4 => Just(1), 1 => Just(255)], 0..24)
    }

    proptest! {
        #[test]
        fn heads_order_and_match_as_strings_do(mut pair in [alike(), alike()], most in 0usize..8) {
            pair.sort_unstable();
            let [a, b] = &pair;
            prop_assert_eq!(common_prefix(a, b), a.iter().zip(b).take_while(|(x, y)| x == y).count());
            let shared = common_prefix(a, b);
            // A head is of bytes after some that both strings share.
            let at = most.min(shared);
            let [low, high] = [a, b].map(|s| Headed::new(s).head(at));
            prop_assert!(low <= high && high < BEYOND);
            if low == high && !is_long(low) {
                prop_assert_eq!(a, b);
            }
            if low != high || !is_long(low) {
                prop_assert_eq!(at + shared_bytes(low, high), shared);
            }
            let (bytes, len) = bytes_of(low);
            prop_assert_eq!(&bytes[..len], &a[at..(at + 7).min(a.len())]);
        }
    }
}
