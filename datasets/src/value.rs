//! Values for keys that come without.

/// Fills `out` with `number` in little-endian, repeated to its length: the value of a key is its position in the data
/// set, so that every answer of a lookup can be checked without a second copy of the data.
pub fn write_value(number: u64, out: &mut [u8]) {
    let bytes = number.to_le_bytes();
    for chunk in out.chunks_mut(bytes.len()) {
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_repeat_to_the_value_size() {
        let mut out = [0xff; 11];
        write_value(0x0102, &mut out);
        assert_eq!(out, [2, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0]);
        write_value(u64::MAX, &mut out[..3]);
        assert_eq!(out[..4], [255, 255, 255, 0]);
    }
}
