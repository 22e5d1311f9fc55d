//! Human-readable counts: `16M`, `1.5K`, `200000`. K, M and G are decimal: 10³, 10⁶, 10⁹.

/// Reads a count: a decimal number, optionally with a fraction and one of the suffixes K, M, G
/// (either case). `None` if it is not one, is not whole (`1.5`, `0.0001K`), or exceeds `u64`.
pub fn parse(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000u64),
        b'm' | b'M' => (&text[..text.len() - 1], 1_000_000),
        b'g' | b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (digits, ""),
    };
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut count = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes().map(|b| u64::from(b - b'0')) {
        // A digit below one whole key: only a zero leaves the count whole.
        if place < 10 && digit != 0 {
            return None;
        }
        place /= 10;
        count = count.checked_add(digit * place)?;
    }
    Some(count)
}

/// Writes a count exactly, with the largest suffix that needs at most three decimals: `16M`,
/// `1.5K`, `385602`. [`parse`] reads it back to the same number.
pub fn format(count: u64) -> String {
    for (unit, suffix) in [(1_000_000_000u64, 'G'), (1_000_000, 'M'), (1_000, 'K')] {
        if count >= unit && count.is_multiple_of(unit / 1_000 * 10) {
            let (whole, thousandths) = (count / unit, count % unit / (unit / 1_000));
            let fraction = format!("{thousandths:03}");
            return match fraction.trim_end_matches('0') {
                "" => format!("{whole}{suffix}"),
                fraction => format!("{whole}.{fraction}{suffix}"),
            };
        }
    }
    count.to_string()
}

/// Writes a count for reading, rounded to three digits: `386 K`, `90.4 M`.
pub fn human(count: u64) -> String {
    scaled(count as f64, 1_000.0, &["", " K", " M", " G", " T", " P", " E"])
}

/// Writes a number of bytes for reading, in binary units: `1.49 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1_024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_are_decimal_and_fractions_exact() {
        for (text, count) in [
            ("16M", 16_000_000),
            ("1.5M", 1_500_000),
            ("0.25k", 250),
            ("200000", 200_000),
            ("1.000000001G", 1_000_000_001),
            ("2.50", 2),
        ] {
            let expected = if text == "2.50" { None } else { Some(count) };
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_whole_count_is_refused() {
        for text in
            ["", "M", ".5M", "1.", "1.M", "-1", "+1", "1e6", "1.5", "1.0001K", "16MB", "1 M", "99999999999G"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse("18446744073709551616"), None);
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(human(385_602), "386 K");
        assert_eq!(human(90_437_011), "90.4 M");
        assert_eq!(human(999_999), "1.00 M");
        assert_eq!(human(7), "7");
        assert_eq!(human_bytes(1_600_000_008), "1.49 GiB");
    }

    proptest! {
        #[test]
        fn format_and_parse_are_inverse(count in any::<u64>(), shift in 0u32..64, zeros in 0u32..12) {
            let count = (count >> shift) / 10u64.pow(zeros) * 10u64.pow(zeros);
            prop_assert_eq!(parse(&format(count)), Some(count));
        }
    }
}
