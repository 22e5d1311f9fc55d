//! Values on the command line: as integer, text or hexadecimal digits, or from a file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use fpcache_client::TableClient;
use serde_json::Value;

use crate::hex;
use crate::keys::{KeyFormat, Keys, escape, shortened};
use crate::numbers::number;
use crate::output::counted;

/// The longest value there may be.
pub(crate) const MAX_VALUE_BYTES: usize = 16 << 20;

/// What is wrong with a value that is no text.
const NOT_UTF8: &str = "is not UTF-8: use --format hex";

/// The format of values.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Format {
    /// Format of values [default: int up to 8 bytes, hex beyond, text if their length varies]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<ValueKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ValueKind {
    /// Little-endian integer of at most 8 bytes
    Int,
    /// UTF-8 text
    Text,
    /// Hexadecimal digits, first byte first
    Hex,
}

/// The format of the values of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableFormat {
    kind: ValueKind,
    /// Bytes of every value; `None` if they vary.
    len: Option<usize>,
    /// Whether it was given explicitly.
    is_explicit: bool,
}

impl Format {
    /// The format of the values of a client's table.
    pub(crate) fn in_table<K: Keys>(self, client: &TableClient<K>) -> anyhow::Result<TableFormat> {
        Ok(self.of(client.shape()?.value_bytes.map(|len| len as usize)))
    }

    /// Every one that can be asked for.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let told = ValueKind::value_variants().iter().map(|kind| Some(*kind));
        [None].into_iter().chain(told).map(|format| Self { format }).collect()
    }

    /// Whether it is that of integers.
    pub(crate) fn is_int(self) -> bool {
        self.format == Some(ValueKind::Int)
    }

    /// As it is given on the command line, if it was.
    pub(crate) fn argument(self) -> Option<String> {
        let name = self.format?.to_possible_value()?;
        Some(format!("--format {}", name.get_name()))
    }

    /// The format of values of this length, or of any.
    pub(crate) fn of(self, len: Option<usize>) -> TableFormat {
        let default = match len {
            None => ValueKind::Text,
            Some(1..=8) => ValueKind::Int,
            Some(_) => ValueKind::Hex,
        };
        TableFormat { kind: self.format.unwrap_or(default), len, is_explicit: self.format.is_some() }
    }
}

impl TableFormat {
    /// Parses a value. An integer has eight bytes if lengths vary.
    pub(crate) fn parse(self, text: &str) -> anyhow::Result<Vec<u8>> {
        let value = match self.kind {
            ValueKind::Int => {
                let number = number(text).map_err(|why| self.no_number(text, &why))?;
                let bytes = number.to_le_bytes();
                let len = self.len.unwrap_or(8);
                let (low, high) = bytes.split_at(len.min(8));
                ensure!(high.iter().all(|b| *b == 0), "value {text} does not fit the table's {len} bytes");
                low.to_vec()
            }
            ValueKind::Text => text.as_bytes().to_vec(),
            ValueKind::Hex => hex::bytes(text).with_context(|| {
                format!(
                    "`{}` is not hexadecimal: write two digits per byte, or use --format int or text",
                    shortened(text.to_owned())
                )
            })?,
        };
        if let Some(len) = self.len {
            let got = value.len();
            ensure!(
                got == len,
                "the value has {}, but all values of this table have {len}",
                counted(got as u64, "byte")
            );
        }
        Ok(value)
    }

    /// A text where a number was expected. Where values have another fixed length than it, another
    /// format would be refused for the length, so that it is no remedy.
    fn no_number(self, text: &str, why: &str) -> anyhow::Error {
        let bytes = text.len();
        let text = shortened(text.to_owned());
        match self.len {
            Some(len) if len == bytes => anyhow!(
                "value `{text}`: {why}; values of {} are read as numbers here: for texts of that length use --format text",
                counted(len as u64, "byte")
            ),
            Some(len) if !text.starts_with(|c: char| c.is_ascii_digit()) => anyhow!(
                "value `{text}` is not a number; values of this table have {}: pass a number, or create a table for texts \
                 with `fpcache-cli create --table NAME --value-bytes vary`",
                counted(len as u64, "byte")
            ),
            Some(_) => anyhow!("value `{text}`: {why}"),
            None => {
                anyhow!("value `{text}`: {why}; use --format text or hex for a value that is not a number")
            }
        }
    }

    /// Whether values are printed as text by default: their length varies, and no other format was
    /// given.
    pub(crate) fn is_plain(self) -> bool {
        self.len.is_none() && self.kind == ValueKind::Text && !self.is_explicit
    }

    /// The value as one line of text.
    pub(crate) fn text(self, value: &[u8]) -> anyhow::Result<String> {
        Ok(match self.kind {
            ValueKind::Int => integer(value)?.to_string(),
            ValueKind::Text => visible(value),
            ValueKind::Hex => hex::digits(value),
        })
    }

    /// The value as [`parse`](Self::parse) reads it back from one line of a file; else why that
    /// cannot be.
    pub(crate) fn exact(self, value: &[u8]) -> Result<String, String> {
        let text = self.exactly(value)?;
        let breaks = |c: char| c.is_control() && c != '\t';
        match self.kind == ValueKind::Text && text.contains(breaks) {
            true => {
                Err("has a line break or another control character: use --as jsonl, or --format hex".into())
            }
            false => Ok(text),
        }
    }

    /// The value in JSON as [`parse_json`](Self::parse_json) reads it back; else why that cannot
    /// be.
    pub(crate) fn exact_json(self, value: &[u8]) -> Result<Value, String> {
        self.exactly(value)?;
        self.json(value).map_err(|error| error.to_string())
    }

    /// The value's text, if no other value has the same.
    fn exactly(self, value: &[u8]) -> Result<String, String> {
        match self.kind {
            ValueKind::Text => str::from_utf8(value).map(ToOwned::to_owned).map_err(|_| NOT_UTF8.to_owned()),
            ValueKind::Int if self.len.is_none() && value.len() != 8 => Err(format!(
                "has {} and not the eight of an integer: use --format text or hex",
                counted(value.len() as u64, "byte")
            )),
            ValueKind::Int => {
                integer(value).map(|number| number.to_string()).map_err(|error| error.to_string())
            }
            ValueKind::Hex => Ok(hex::digits(value)),
        }
    }

    /// Reads a value from JSON: a string, or a number where values are integers.
    pub(crate) fn parse_json(self, value: &Value) -> anyhow::Result<Vec<u8>> {
        match value {
            Value::String(text) => self.parse(text),
            Value::Number(number) if self.kind == ValueKind::Int => self.parse(&number.to_string()),
            Value::Number(number) => bail!(
                "the value {number} is a number, but values are read as {}: use --format int (of a table that is there, \
                 if its values are integers), or write it as a string",
                if self.kind == ValueKind::Text { "texts" } else { "hexadecimal digits" }
            ),
            _ => bail!("the value is neither a string nor a whole number of 0 or more"),
        }
    }

    /// The value of a key in JSON; an error names the key.
    pub(crate) fn json_of<K: Keys>(
        self,
        key: &K::Key,
        value: &[u8],
        key_format: KeyFormat,
    ) -> anyhow::Result<Value> {
        self.json(value).with_context(|| format!("the value of key {}", K::short(key, key_format)))
    }

    /// The value in JSON: a number, or a string. Bytes that no string of JSON has are refused: in
    /// another's place they would be read back as other values.
    fn json(self, value: &[u8]) -> anyhow::Result<Value> {
        Ok(match self.kind {
            ValueKind::Int => integer(value)?.into(),
            ValueKind::Text => str::from_utf8(value).map_err(|_| anyhow!("it {NOT_UTF8}"))?.into(),
            ValueKind::Hex => hex::digits(value).into(),
        })
    }
}

/// The raw value in a file, or in standard input for `-`.
pub(crate) fn read_value(path: &Path) -> anyhow::Result<Vec<u8>> {
    /// One more than allowed, to detect excess.
    const MOST: u64 = MAX_VALUE_BYTES as u64 + 1;
    let mut value = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(MOST).read_to_end(&mut value),
        false => File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut value)),
    };
    read.with_context(|| format!("reading the value from {}", path.display()))?;
    ensure!(
        (value.len() as u64) < MOST,
        "{} has more than 16 MiB, the maximum of a value: split it into several records",
        path.display()
    );
    Ok(value)
}

fn integer(value: &[u8]) -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    match bytes.get_mut(..value.len()) {
        Some(low) => low.copy_from_slice(value),
        None => {
            bail!("a value of {} bytes is not an integer of 8 bytes: use --format hex or text", value.len())
        }
    }
    Ok(u64::from_le_bytes(bytes))
}

/// UTF-8 as it is, except for control characters, which would break the line or the terminal, and
/// backslashes, which would pass for theirs; these and other bytes as keys have them, `\n`, `\\` or
/// `\xNN`.
fn visible(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Writing to a string cannot fail.
            let _ = match c {
                '\0'..='\x1f' | '\x7f' | '\\' => write!(text, "{}", (c as u8).escape_ascii()),
                _ if c.is_control() => escape(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
                _ => write!(text, "{c}"),
            };
        }
        let _ = escape(chunk.invalid(), &mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of a table whose values have the length of this one.
    fn format(kind: impl Into<Option<ValueKind>>, value: &[u8]) -> TableFormat {
        Format { format: kind.into() }.of(Some(value.len()))
    }

    fn text(kind: impl Into<Option<ValueKind>>, value: &[u8]) -> String {
        format(kind, value).text(value).expect("it has such a text")
    }

    #[test]
    fn values_are_as_long_as_the_store_takes_them() {
        assert_eq!(MAX_VALUE_BYTES, fpcache::layout::MAX_VALUE_BYTES);
    }

    #[test]
    fn short_values_are_integers_and_long_ones_digits_unless_asked_otherwise() {
        assert_eq!(text(None, &300u64.to_le_bytes()), "300");
        assert_eq!(text(None, &[1, 1]), "257");
        assert_eq!(text(None, &[0xab; 9]), "ababababababababab");
        assert_eq!(text(None, &[]), "");
        assert_eq!(text(ValueKind::Hex, &[1, 0xff]), "01ff");
        assert_eq!(text(ValueKind::Text, "grün\n".as_bytes()), "grün\\n");
        assert_eq!(text(ValueKind::Text, &[0xff, b'a']), "\\xffa");
        assert_eq!(text(ValueKind::Text, br"v\x00"), r"v\\x00", "not what a zero byte is shown as");
        assert_eq!(text(ValueKind::Text, "\0\u{7f}\u{85}\t".as_bytes()), "\\x00\\x7f\\xc2\\x85\\t");
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for value in [vec![7, 1], vec![1; 8], vec![0xab; 9], Vec::new()] {
            let text = text(None, &value);
            assert_eq!(format(None, &value).parse(&text).expect("read"), value);
        }
        assert_eq!(format(ValueKind::Text, &[0; 5]).parse("grün").expect("text"), "grün".as_bytes());
        assert_eq!(format(None, &[0]).parse("0xff").expect("hexadecimal number"), [255]);
    }

    #[test]
    fn values_whose_length_varies_are_texts_unless_asked_otherwise() {
        let vary = |kind: Option<ValueKind>| Format { format: kind }.of(None);
        assert_eq!(vary(None).parse("any text").expect("text"), b"any text");
        assert_eq!(vary(None).parse("").expect("empty"), b"");
        assert_eq!(vary(None).text(b"7").expect("text"), "7");
        assert_eq!(vary(Some(ValueKind::Int)).parse("7").expect("integer"), 7u64.to_le_bytes());
        assert_eq!(vary(Some(ValueKind::Hex)).parse("00ff01").expect("digits"), [0, 255, 1]);
    }

    #[test]
    fn values_of_another_size_are_refused() {
        for (kind, text, len, part) in [
            (Some(ValueKind::Text), "four", 5, "4 bytes"),
            (Some(ValueKind::Hex), "0102", 3, "2 bytes"),
            (Some(ValueKind::Hex), "012", 3, "hexadecimal"),
            (Some(ValueKind::Hex), "0+", 1, "hexadecimal"),
            (None, "256", 1, "does not fit"),
            (Some(ValueKind::Int), "1", 9, "8 bytes"),
            (None, "one", 8, "one"),
        ] {
            let error = format(kind, &vec![0; len]).parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_text_where_numbers_are_is_told_what_tables_take_texts() {
        let refused = |len: Option<usize>, text: &str| {
            let format = Format { format: Some(ValueKind::Int) }.of(len);
            format.parse(text).expect_err(text).to_string()
        };
        let error = refused(Some(8), "hello");
        assert!(error.contains("8 bytes") && error.contains("--value-bytes vary"), "{error}");
        assert!(!error.contains("--format"), "it would fail for the length: {error}");
        // Of a text that has the length it was said that a table for texts is needed.
        let error = Format { format: None }.of(Some(3)).parse("abc").expect_err("no number").to_string();
        assert!(
            error.contains("`abc`") && error.contains("--format text") && !error.contains("create"),
            "{error}"
        );
        let error = refused(Some(8), "18446744073709551616");
        assert!(error.contains("too large") && !error.contains("texts"), "{error}");
        assert!(refused(None, "hello").contains("--format text"));
    }

    #[test]
    fn what_a_file_has_of_a_value_is_that_value_again_or_none() {
        let values =
            [&b""[..], b"a", b"a\tb", b"\\n", "grün".as_bytes(), b"a\nb", b"a\r", b"\xff", &[7; 8], &[7; 9]];
        for kind in [None, Some(ValueKind::Int), Some(ValueKind::Text), Some(ValueKind::Hex)] {
            for value in values {
                for len in [None, Some(value.len())] {
                    let format = Format { format: kind }.of(len);
                    if let Ok(line) = format.exact(value) {
                        assert!(!line.contains(['\n', '\r']), "{line}");
                        assert_eq!(format.parse(&line).expect("as written"), value, "{kind:?}");
                    }
                    if let Ok(json) = format.exact_json(value) {
                        assert_eq!(format.parse_json(&json).expect("as written"), value, "{kind:?}");
                    }
                }
                assert!(Format { format: Some(ValueKind::Hex) }.of(None).exact(value).is_ok());
            }
        }
        let texts = Format { format: None }.of(None);
        assert!(texts.exact(b"a\nb").is_err_and(|why| why.contains("--as jsonl")));
        assert!(texts.exact_json(b"a\nb").is_ok() && texts.exact_json(b"\xff").is_err());
        assert!(texts.parse_json(&7.into()).expect_err("a number").to_string().contains("--format int"));
    }

    #[test]
    fn json_has_numbers_and_strings() {
        let json = |kind: Option<ValueKind>, value: &[u8]| {
            format(kind, value).json(value).expect("it has such a text")
        };
        assert_eq!(json(None, &u64::MAX.to_le_bytes()), Value::from(u64::MAX));
        assert_eq!(json(Some(ValueKind::Text), b"a\n"), Value::from("a\n"));
        let error = format(ValueKind::Text, b"\xff").json(b"\xff").expect_err("no text").to_string();
        assert!(error.contains("--format hex"), "{error}");
    }

    #[test]
    fn a_long_value_as_integer_is_refused_with_what_to_use() {
        let error = format(ValueKind::Int, &[0; 9]).text(&[0; 9]).expect_err("9 bytes").to_string();
        assert!(error.contains("9 bytes") && error.contains("--format hex"), "{error}");
    }
}
