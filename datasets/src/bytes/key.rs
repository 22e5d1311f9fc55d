//! Byte-string keys: their maximum length, shared prefixes, and order as numbers.

use std::cmp::Ordering;

/// The maximum length of a key; the minimum is 1.
pub const MAX_KEY_BYTES: usize = 4096;

/// The length of the common prefix of two keys.
pub(crate) fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first eight bytes of a key as a number of the same order, padded with zeros.
pub(crate) fn number(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => key.iter().rev().fold(0, |sum, &byte| sum >> 8 | u64::from(byte) << 56),
    }
}

/// Where a key is among `len` ascending ones, or where it would be, by how each compares with it.
///
/// # Errors
/// The index of the first greater key, if it is not there.
pub(super) fn search(len: usize, mut compare: impl FnMut(usize) -> Ordering) -> Result<usize, usize> {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(middle) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_order_and_pad_with_zeros() {
        assert_eq!(number(b""), 0);
        assert_eq!(number(b"\x01"), 1 << 56);
        assert_eq!(number(b"abc"), number(b"abc\0\0"));
        assert_eq!(number(b"abcdefghi"), 0x6162_6364_6566_6768);
        assert_eq!((shared(b"abc", b"abd"), shared(b"ab", b"abd"), shared(b"", b"x")), (2, 2, 0));
    }
}
