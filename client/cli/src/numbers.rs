//! Numbers and sizes on the command line.

use std::num::IntErrorKind;

use bytesize::ByteSize;

/// Reads a number, such as a `u64` key: decimal, or hexadecimal after `0x`.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard parser would take a second sign.
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16),
        _ => text.parse(),
    };
    parsed.map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow => "it is too large",
            _ => "it is no whole number of 0 or more",
        };
        format!("{why}; numbers run from 0 to {}, in decimal or as in 0x2a", u64::MAX)
    })
}

/// Reads a size of memory, such as `100`, `4KiB` or `17MiB`.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| "write a number of bytes, as in 100, 4KiB or 1MiB".to_owned())
}

/// Reads the length of a record or of a part of it, in bytes.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?.as_u64()).map_err(|_| format!("{text} exceeds the maximum of a record"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(number("0xffffffffffffffff"), Ok(u64::MAX));
        assert_eq!(number("0X2a"), Ok(42));
        for bad in ["", "0x", "-1", "0x+1", "1.5", "2a", "18446744073709551616", "1K"] {
            assert!(number(bad).is_err_and(|e| e.contains("0x2a") && e.starts_with("it is ")), "{bad}");
        }
    }

    #[test]
    fn sizes_may_have_units() {
        assert_eq!((bytes("8"), bytes("4KiB"), bytes("17MiB")), (Ok(8), Ok(4096), Ok(17 << 20)));
        for bad in ["", "-1", "eight", "5GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(size("5GiB"), Ok(ByteSize::gib(5)));
        for bad in ["", "-1", "lots", "1XB"] {
            assert!(size(bad).is_err_and(|why| why.contains("1MiB")), "{bad}");
        }
    }
}
