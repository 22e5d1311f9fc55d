//! Showing and reading values: as integer, text or hexadecimal digits.

use std::fmt::Write;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

/// How values are written.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Format {
    /// How values are written [default: int up to 8 bytes, else hex]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Little-endian integer of at most 8 bytes
    Int,
    /// UTF-8 text
    Text,
    /// Hexadecimal digits, first byte first
    Hex,
}

impl Format {
    fn of(self, len: usize) -> Kind {
        let default = if (1..=8).contains(&len) { Kind::Int } else { Kind::Hex };
        self.format.unwrap_or(default)
    }

    /// The value that a text stands for, in a table whose values have this length.
    pub(crate) fn parse(self, text: &str, len: usize) -> anyhow::Result<Vec<u8>> {
        let value = match self.of(len) {
            Kind::Int => {
                let number = crate::arguments::key(text).map_err(|why| anyhow::anyhow!("value `{text}`: {why}"))?;
                let bytes = number.to_le_bytes();
                let (low, high) = bytes.split_at(len.min(8));
                ensure!(high.iter().all(|b| *b == 0), "value {text} does not fit the table's {len} bytes");
                low.to_vec()
            }
            Kind::Text => text.as_bytes().to_vec(),
            Kind::Hex => digits(text).with_context(|| {
                format!("`{text}` is no value in hexadecimal digits: write two per byte, or use --format int or text")
            })?,
        };
        let got = value.len();
        ensure!(
            got == len,
            "the value has {got} bytes, the table's values have {len}: all must have that size"
        );
        Ok(value)
    }

    /// The value for people and scripts: one line.
    pub(crate) fn text(self, value: &[u8]) -> anyhow::Result<String> {
        Ok(match self.of(value.len()) {
            Kind::Int => integer(value)?.to_string(),
            Kind::Text => String::from_utf8_lossy(value).chars().fold(String::new(), push_visible),
            Kind::Hex => hex(value),
        })
    }

    /// The value in JSON: a number, or a string.
    pub(crate) fn json(self, value: &[u8]) -> anyhow::Result<Value> {
        Ok(match self.of(value.len()) {
            Kind::Int => integer(value)?.into(),
            Kind::Text => String::from_utf8_lossy(value).into(),
            Kind::Hex => hex(value).into(),
        })
    }
}

fn integer(value: &[u8]) -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    match bytes.get_mut(..value.len()) {
        Some(low) => low.copy_from_slice(value),
        None => bail!("a value of {} bytes is no integer of 8: use --format hex or text", value.len()),
    }
    Ok(u64::from_le_bytes(bytes))
}

/// The bytes of hexadecimal digits, two each.
fn digits(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |d: u8| char::from(d).to_digit(16);
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}

fn hex(value: &[u8]) -> String {
    value.iter().fold(String::with_capacity(2 * value.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Control characters would break the line, or the terminal.
fn push_visible(mut text: String, c: char) -> String {
    if c.is_control() {
        text.extend(c.escape_default())
    } else {
        text.push(c)
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(kind: impl Into<Option<Kind>>) -> Format {
        Format { format: kind.into() }
    }

    #[test]
    fn short_values_are_integers_and_long_ones_digits_unless_asked_otherwise() {
        assert_eq!(format(None).text(&300u64.to_le_bytes()).expect("8 bytes"), "300");
        assert_eq!(format(None).text(&[1, 1]).expect("2 bytes"), "257");
        assert_eq!(format(None).text(&[0xab; 9]).expect("hex"), "ababababababababab");
        assert_eq!(format(None).text(&[]).expect("empty"), "");
        assert_eq!(format(Kind::Hex).text(&[1, 0xff]).expect("hex"), "01ff");
        assert_eq!(format(Kind::Text).text("grün\n".as_bytes()).expect("text"), "grün\\n");
        assert_eq!(format(Kind::Text).text(&[0xff, b'a']).expect("text"), "\u{fffd}a");
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for value in [vec![7, 1], vec![1; 8], vec![0xab; 9], Vec::new()] {
            let text = format(None).text(&value).expect("shown");
            assert_eq!(format(None).parse(&text, value.len()).expect("read"), value);
        }
        assert_eq!(format(Kind::Text).parse("grün", 5).expect("text"), "grün".as_bytes());
        assert_eq!(format(None).parse("0xff", 1).expect("hexadecimal number"), [255]);
    }

    #[test]
    fn values_of_another_size_are_refused() {
        for (kind, text, len, part) in [
            (Some(Kind::Text), "four", 5, "4 bytes"),
            (Some(Kind::Hex), "0102", 3, "2 bytes"),
            (Some(Kind::Hex), "012", 3, "hexadecimal"),
            (Some(Kind::Hex), "0+", 1, "hexadecimal"),
            (None, "256", 1, "does not fit"),
            (Some(Kind::Int), "1", 9, "8 bytes"),
            (None, "one", 8, "one"),
        ] {
            let error = format(kind).parse(text, len).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn json_has_numbers_and_strings() {
        assert_eq!(format(None).json(&u64::MAX.to_le_bytes()).expect("int"), Value::from(u64::MAX));
        assert_eq!(format(Kind::Text).json(b"a\n").expect("text"), Value::from("a\n"));
    }

    #[test]
    fn a_long_value_as_integer_is_refused_with_what_to_use() {
        let error = format(Kind::Int).text(&[0; 9]).expect_err("9 bytes").to_string();
        assert!(error.contains("9 bytes") && error.contains("--format hex"), "{error}");
    }
}
