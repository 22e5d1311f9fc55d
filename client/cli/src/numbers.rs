//! Numbers, times and sizes on the command line.

use std::time::Duration;

use bytesize::ByteSize;

/// Reads a number, such as a `u64` key: decimal, or hexadecimal after `0x`.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard parser would take a second sign.
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16),
        _ => text.parse(),
    };
    parsed.map_err(|e| format!("{e}; numbers run from 0 to {}, in decimal or as in 0x2a", u64::MAX))
}

/// Reads a time such as `5s`, `1.5s` or `100ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| seconds);
    let parsed = match (number.trim_end().parse::<f64>(), seconds) {
        (Ok(number), Some(seconds)) => Duration::try_from_secs_f64(number * seconds).ok(),
        _ => None,
    };
    parsed
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write a number above zero and a unit: us, ms, s, m or h, as in 5s or 100ms".into())
}

/// Reads a number of bytes, such as `100`, `4KiB` or `17MiB`.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    let size = text
        .parse::<ByteSize>()
        .map_err(|_| "write a number of bytes, as in 100, 4KiB or 1MiB".to_owned())?;
    u32::try_from(size.as_u64()).map_err(|_| format!("{text} is more than any record has"))
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
            assert!(number(bad).is_err_and(|e| e.contains("0x2a")), "{bad}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("100 ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "s", "-1s", "0s", "5 years", "1e3s", "inf", "nan s", "9e99h"] {
            assert!(duration(bad).is_err_and(|e| e.contains("100ms")), "{bad}");
        }
    }

    #[test]
    fn sizes_may_have_units() {
        assert_eq!((bytes("8"), bytes("4KiB"), bytes("17MiB")), (Ok(8), Ok(4096), Ok(17 << 20)));
        for bad in ["", "-1", "eight", "5GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
