//! Bytes in hexadecimal digits.

use std::fmt::Write;

/// The byte of two digits.
pub(crate) fn byte(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    Some((high? * 16 + low?) as u8)
}

/// The bytes of digits, two each.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|pair| byte(*pair)).collect()
}

/// The digits of bytes, first byte first.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_bytes_belong_together() {
        assert_eq!(bytes("00ff2A"), Some(vec![0, 255, 42]));
        assert_eq!(digits(&[0, 255, 42]), "00ff2a");
        for bad in ["0", "0g", "+1", "ü"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
