//! Values that identify their key and the write that made them.
//!
//! A value begins with a check word, `mix(key) ^ mix(sequence)`, followed by the sequence number of
//! the write, and then repeats the check word to its end. So an answer itself shows whether it
//! belongs to its key, is whole, and is from a single write. Values below 16 bytes have the low
//! halves of both.

use crate::machine::split_mix;

/// Bytes of a word.
const WORD: usize = 8;

/// The bytes of check word and sequence in a value of `bytes` bytes.
const fn parts(bytes: usize) -> (usize, usize) {
    let check = bytes.div_ceil(2);
    let check = if check < WORD { check } else { WORD };
    let sequence = bytes - check;
    (check, if sequence < WORD { sequence } else { WORD })
}

fn mix(number: u64) -> u64 {
    let mut state = number;
    split_mix(&mut state)
}

/// What is left of a sequence number in a value of `bytes` bytes.
pub fn stored(sequence: u64, bytes: usize) -> u64 {
    match parts(bytes).1 {
        WORD => sequence,
        bytes => sequence & ((1 << (8 * bytes)) - 1),
    }
}

/// Fills in the value that the write of this sequence number gives a key; a load has the number 0.
pub fn write(key: u64, sequence: u64, out: &mut [u8]) {
    let (check, number) = parts(out.len());
    let stored = stored(sequence, out.len());
    let word = (mix(key) ^ mix(stored)).to_le_bytes();
    let (head, rest) = out.split_at_mut(check);
    head.copy_from_slice(&word[..check]);
    let (middle, tail) = rest.split_at_mut(number);
    middle.copy_from_slice(&stored.to_le_bytes()[..number]);
    for chunk in tail.chunks_mut(WORD) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The sequence number in a value, as [`stored`] has it; `None` if it is no whole value of this
/// key.
#[inline]
pub fn sequence(key: u64, value: &[u8]) -> Option<u64> {
    let (check, number) = parts(value.len());
    let (head, rest) = value.split_at(check);
    let (middle, tail) = rest.split_at(number);
    let mut bytes = [0; WORD];
    bytes[..number].copy_from_slice(middle);
    let sequence = u64::from_le_bytes(bytes);
    let word = (mix(key) ^ mix(sequence)).to_le_bytes();
    let is_whole = head == &word[..check] && tail.chunks(WORD).all(|chunk| chunk == &word[..chunk.len()]);
    is_whole.then_some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gives_the_sequence_back_and_refuses_other_keys_and_mixtures() {
        for bytes in [1, 2, 7, 8, 9, 15, 16, 17, 64, 100] {
            let mut value = vec![0xff; bytes];
            write(77, 12, &mut value);
            assert_eq!(sequence(77, &value), Some(stored(12, bytes)), "{bytes}");
            if bytes < 4 {
                continue;
            }
            assert_eq!(sequence(78, &value), None, "{bytes}");
            let mut other = vec![0; bytes];
            write(77, 13, &mut other);
            for cut in 1..bytes {
                let torn = [&value[..cut], &other[cut..]].concat();
                assert!(torn == value || torn == other || sequence(77, &torn).is_none(), "{bytes} {cut}");
            }
        }
    }

    #[test]
    fn small_values_keep_what_fits_of_the_sequence() {
        assert_eq!((stored(0x1_2345_6789, 8), stored(0x1_2345_6789, 16)), (0x2345_6789, 0x1_2345_6789));
        assert_eq!((stored(0x123, 1), stored(0x123, 2)), (0, 0x23));
    }
}
