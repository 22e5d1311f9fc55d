//! Human-readable times: `50us`, `1.5s`, `10m`.

use std::time::Duration;

/// What is wrong with a text that is no time above zero.
const ABOVE_ZERO: &str = "write a number above zero and a unit: us, ms, s, m or h, as in 5s, 100ms or 1.5m";

/// Reads a time, zero included: a decimal number and one of the units `us`, `ms`, `s`, `m`, `h`.
///
/// # Errors
/// What to write instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| seconds);
    let parsed = number.trim_end().parse::<f64>().ok().zip(seconds);
    parsed
        .and_then(|(number, seconds)| Duration::try_from_secs_f64(number * seconds).ok())
        .ok_or_else(|| "write a number and a unit: us, ms, s, m or h, as in 0s, 50us or 1.5m".to_owned())
}

/// As [`parse`], of times above zero.
///
/// # Errors
/// What to write instead.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    let parsed = parse(text).ok().filter(|time| !time.is_zero());
    parsed.ok_or_else(|| ABOVE_ZERO.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        let texts = ["50us", "1.5ms", "100 ms", "2s", "10m", "1h", "0s"];
        let seconds = texts.map(|text| parse(text).expect("a time").as_secs_f64());
        assert_eq!(seconds, [5e-5, 1.5e-3, 0.1, 2.0, 600.0, 3600.0, 0.0]);
        for wrong in ["", "5", "s", "-1s", "5 years", "1e3s", "1d", "inf", "nan s", "9e99h"] {
            assert!(parse(wrong).is_err_and(|e| e.contains("50us")), "{wrong}");
            assert!(parse_positive(wrong).is_err_and(|e| e.contains("100ms")), "{wrong}");
        }
        assert!(parse_positive("0s").is_err());
        assert_eq!(parse_positive("250us"), Ok(Duration::from_micros(250)));
    }
}
