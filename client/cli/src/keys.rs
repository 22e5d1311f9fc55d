//! Keys on the command line: their syntax, and the data sets of their kind.

use std::fmt::Write;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use fpcache_client::{AsKey, BuildKeys, ByteKeys, U64Keys};
use fpcache_datasets::{ByteDataset, Dataset, KeySet, OpenOptions, Spec};
use serde_json::Value;

use crate::hex;
use crate::numbers::number;

/// The format of keys.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct KeyFormat {
    /// Read and print keys in hexadecimal
    #[arg(long = "hex")]
    pub(crate) is_hex: bool,
}

/// Keys in a sample to train the encoders on.
pub(crate) const SAMPLE: usize = 50_000;

/// The lengths of the keys of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyLengths {
    /// The length of every key, if all have the same.
    pub(crate) every: Option<u16>,
    /// The longest that must fit.
    pub(crate) longest: u32,
    /// The default room of slots.
    pub(crate) usual: u32,
}

impl KeyLengths {
    pub(crate) const fn fixed(bytes: u16) -> Self {
        Self { every: Some(bytes), longest: bytes as u32, usual: bytes as u32 }
    }
}

/// A kind of keys.
pub(crate) trait Keys: BuildKeys<Owned: AsKey<Self>> {
    /// Its data sets.
    type Set: KeySet;

    /// Reads a key.
    fn parse(text: &str, format: KeyFormat) -> anyhow::Result<Self::Owned>;

    /// The key as [`parse`](Self::parse) reads it, without spaces.
    fn text(key: &Self::Key, format: KeyFormat) -> String;

    /// The key in messages to people: only its beginning if it is long.
    fn short(key: &Self::Key, format: KeyFormat) -> String {
        shortened(Self::text(key, format))
    }

    /// The key in JSON.
    fn json(key: &Self::Key, format: KeyFormat) -> Value;

    /// Reads a prefix, as [`parse`](Self::parse) reads keys: the least key that it can begin, and
    /// the least above all that it does, if there is one.
    fn parse_prefix(text: &str, format: KeyFormat) -> anyhow::Result<(Self::Owned, Option<Self::Owned>)>;

    /// Reads or generates a data set.
    fn open(spec: &Spec, options: &OpenOptions<'_>) -> anyhow::Result<Self::Set>;

    /// The `i`-th key of a data set, perhaps in the buffer.
    fn at<'a>(set: &'a Self::Set, i: usize, buffer: &'a mut Vec<u8>) -> &'a Self::Key;

    /// A sample of keys from all over a data set, if that is of use.
    fn sample(set: &Self::Set) -> Vec<Self::Owned>;

    /// The lengths of a data set's keys.
    fn lengths(set: &Self::Set) -> KeyLengths;

    /// The lengths of unknown keys.
    const LENGTHS: KeyLengths;
}

impl Keys for U64Keys {
    type Set = Dataset;

    const LENGTHS: KeyLengths = KeyLengths::fixed(8);

    fn parse(text: &str, format: KeyFormat) -> anyhow::Result<u64> {
        let parsed = match text.strip_prefix("0x") {
            None if format.is_hex => number(&format!("0x{text}")),
            _ => number(text),
        };
        parsed.map_err(|why| anyhow!("`{}` is not a key of this table: {why}", shortened(text.to_owned())))
    }

    fn text(key: &u64, format: KeyFormat) -> String {
        if format.is_hex { format!("{key:#x}") } else { key.to_string() }
    }

    fn json(key: &u64, format: KeyFormat) -> Value {
        if format.is_hex { Self::text(key, format).into() } else { (*key).into() }
    }

    fn parse_prefix(_: &str, _: KeyFormat) -> anyhow::Result<(u64, Option<u64>)> {
        bail!("u64 keys have no prefixes: use --from and --to")
    }

    fn open(spec: &Spec, options: &OpenOptions<'_>) -> anyhow::Result<Dataset> {
        ensure!(options.key_bytes.is_none(), "the keys of {spec} are u64s of 8 bytes: omit --key-bytes");
        Ok(spec.open(options)?)
    }

    fn at<'a>(set: &'a Dataset, i: usize, _: &'a mut Vec<u8>) -> &'a u64 {
        &set.keys()[i]
    }

    fn sample(_: &Dataset) -> Vec<u64> {
        Vec::new()
    }

    fn lengths(_: &Dataset) -> KeyLengths {
        Self::LENGTHS
    }
}

impl Keys for ByteKeys {
    type Set = ByteDataset;

    const LENGTHS: KeyLengths = KeyLengths { every: None, longest: 1, usual: 64 };

    fn parse(text: &str, format: KeyFormat) -> anyhow::Result<Vec<u8>> {
        if format.is_hex {
            let wrong = || {
                anyhow!(
                    "`{}` is not hexadecimal: write two digits per byte, or omit --hex",
                    shortened(text.to_owned())
                )
            };
            return hex::bytes(text).ok_or_else(wrong);
        }
        unescaped(text).ok_or_else(|| {
            anyhow!(
                "`{}` has an invalid escape: write \\\\ for one, \\n, \\r, \\t, \\0, or \\xNN for any byte",
                shortened(text.to_owned())
            )
        })
    }

    fn text(key: &[u8], format: KeyFormat) -> String {
        if format.is_hex {
            return hex::digits(key);
        }
        let mut text = String::with_capacity(key.len());
        for chunk in key.utf8_chunks() {
            for c in chunk.valid().chars() {
                // Writing to a string cannot fail. A space would end the key.
                let _ = match c {
                    ' ' => write!(text, "\\x20"),
                    '\'' | '"' => write!(text, "{c}"),
                    _ if c.is_ascii() => write!(text, "{}", (c as u8).escape_ascii()),
                    // At the start of a file U+FEFF would be taken for its byte order mark.
                    _ if c.is_control() || c.is_whitespace() || c == '\u{feff}' => {
                        escape(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut text)
                    }
                    _ => write!(text, "{c}"),
                };
            }
            let _ = escape(chunk.invalid(), &mut text);
        }
        text
    }

    fn json(key: &[u8], format: KeyFormat) -> Value {
        Self::text(key, format).into()
    }

    fn parse_prefix(text: &str, format: KeyFormat) -> anyhow::Result<(Vec<u8>, Option<Vec<u8>>)> {
        let prefix = Self::parse(text, format)?;
        let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
        let end = kept.map(|at| [&prefix[..at], &[prefix[at] + 1]].concat());
        Ok((prefix, end))
    }

    fn open(spec: &Spec, options: &OpenOptions<'_>) -> anyhow::Result<ByteDataset> {
        Ok(spec.open_bytes(options)?)
    }

    fn at<'a>(set: &'a ByteDataset, i: usize, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        set.keys().get(i, buffer)
    }

    fn sample(set: &ByteDataset) -> Vec<Vec<u8>> {
        let (keys, mut buffer) = (set.keys(), Vec::new());
        let step = (keys.len() / SAMPLE).max(1);
        (0..keys.len()).step_by(step).map(|i| keys.get(i, &mut buffer).to_vec()).collect()
    }

    fn lengths(set: &ByteDataset) -> KeyLengths {
        // Keys have at most 4 KiB.
        let longest = set.keys().longest() as u32;
        KeyLengths { every: set.keys().every_length().map(|len| len as u16), longest, usual: longest }
    }
}

/// Characters of a text that messages show.
const SHOWN: usize = 80;

/// The beginning of a text that is too long to show.
pub(crate) fn shortened(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

/// Appends each byte as `\xNN`.
pub(crate) fn escape(bytes: &[u8], text: &mut String) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(text, "\\x{byte:02x}"))
}

/// Decodes a text with escapes.
pub(crate) fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escape {
            b'\\' | b'"' | b'\'' => *escape,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let (digits, after) = rest.split_first_chunk::<2>()?;
                rest = after;
                hex::byte(*digits)?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: KeyFormat = KeyFormat { is_hex: false };
    const HEX: KeyFormat = KeyFormat { is_hex: true };

    #[test]
    fn byte_strings_are_read_as_they_are_shown() {
        let all: Vec<u8> = (0..=255).collect();
        for key in [&b""[..], b"user42", b"a b", b"\\x20", "grün".as_bytes(), b"\n\r\t\0'\"", &all] {
            for format in [PLAIN, HEX] {
                let text = ByteKeys::text(key, format);
                assert!(!text.contains(|c: char| c.is_whitespace() || c.is_control()), "{text}");
                assert_eq!(ByteKeys::parse(&text, format).expect("as shown"), key, "{text}");
            }
        }
        assert_eq!(ByteKeys::text(b"a b\n", PLAIN), "a\\x20b\\n");
        assert_eq!(ByteKeys::text(b"a b\n", HEX), "6120620a");
        assert_eq!(ByteKeys::text("grün\u{2028}\u{85}".as_bytes(), PLAIN), "grün\\xe2\\x80\\xa8\\xc2\\x85");
        assert_eq!(ByteKeys::text("\u{feff}a".as_bytes(), PLAIN), "\\xef\\xbb\\xbfa");
        assert_eq!(ByteKeys::parse("grün \\0", PLAIN).expect("text"), "grün \0".as_bytes());
    }

    #[test]
    fn what_is_no_key_says_what_would_be() {
        for text in ["\\", "a\\q", "\\x", "\\x4", "\\xgg", "\\x+1"] {
            let error = ByteKeys::parse(text, PLAIN).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("\\xNN"), "{error}");
        }
        for text in ["1", "0x12", "gg"] {
            let error = ByteKeys::parse(text, HEX).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("two digits per byte"), "{error}");
        }
        let error = U64Keys::parse("seven", PLAIN).expect_err("a word").to_string();
        assert!(error.contains("seven") && error.contains("0x2a"), "{error}");
    }

    #[test]
    fn a_long_key_is_not_shown_whole() {
        let text = ByteKeys::short(&[b'k'; 4096], PLAIN);
        assert!(text.len() < 120 && text.ends_with("... (4096 characters)"), "{text}");
        assert_eq!(ByteKeys::short(b"key", PLAIN), "key");
        let error = U64Keys::parse(&"7".repeat(5000), PLAIN).expect_err("too long").to_string();
        assert!(error.len() < 400, "{error}");
    }

    #[test]
    fn numbers_are_read_as_they_are_shown() {
        for key in [0, 42, u64::MAX] {
            for format in [PLAIN, HEX] {
                assert_eq!(U64Keys::parse(&U64Keys::text(&key, format), format).expect("as shown"), key);
            }
        }
        assert_eq!(U64Keys::parse("2a", HEX).expect("digits"), 42);
        assert_eq!(U64Keys::parse("0x2a", PLAIN).expect("digits"), 42);
    }

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        let ends = |text| ByteKeys::parse_prefix(text, PLAIN).expect("bytes have prefixes");
        assert_eq!(ends("ab"), (b"ab".to_vec(), Some(b"ac".to_vec())));
        assert_eq!(ends("a\\xff\\xff"), (b"a\xff\xff".to_vec(), Some(b"b".to_vec())));
        assert_eq!((ends("\\xff").1, ends("").1), (None, None));
        for text in ["5", "user"] {
            let error = U64Keys::parse_prefix(text, PLAIN).expect_err(text).to_string();
            assert!(error.contains("--from and --to"), "{error}");
        }
    }
}
