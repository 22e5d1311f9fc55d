//! Values for keys that have none.

/// Fills `out` with `number` in little-endian, repeated to its length: the value of a key is its
/// position in the data set, so that every answer of a lookup can be checked without a second copy
/// of the data.
pub fn write_value(number: u64, out: &mut [u8]) {
    let bytes = number.to_le_bytes();
    // Whole words first: long values are then written as fast as memory takes them.
    let mut words = out.chunks_exact_mut(bytes.len());
    for word in &mut words {
        word.copy_from_slice(&bytes);
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&bytes[..rest.len()]);
}

/// A number for a byte-string key, where what says whose a value is wants one: XXH3, which has
/// nothing in common with the hash that fingerprints are made of, so that keys of equal
/// fingerprints still differ in their values. Costs some nanoseconds for 128 bytes.
#[inline]
pub fn key_number(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_numbers_are_those_of_xxh3() {
        // The published value for no input, and any two keys differ.
        assert_eq!(key_number(b""), 0x2D06_8005_38D3_94C2);
        assert_ne!(key_number(b"a"), key_number(b"a\0"));
    }

    #[test]
    fn numbers_repeat_to_the_value_size() {
        let mut out = [0xff; 11];
        write_value(0x0102, &mut out);
        assert_eq!(out, [2, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0]);
        write_value(u64::MAX, &mut out[..3]);
        assert_eq!(out[..4], [255, 255, 255, 0]);
    }
}
