//! The separator between key and value in a line of a file.

use std::str::FromStr;

use crate::hex;
use crate::keys::unescaped;

/// A text that parts a key from its value, and begins with a character that no shown key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separator(String);

impl Default for Separator {
    fn default() -> Self {
        Self("\t".to_owned())
    }
}

impl FromStr for Separator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let separator = unescaped(text).and_then(|bytes| String::from_utf8(bytes).ok());
        let is_of_keys = |c: char| c.is_ascii_alphanumeric() || matches!(c, '\\' | '\n' | '\r');
        match separator {
            Some(separator) if !separator.is_empty() && !separator.contains(is_of_keys) => {
                Ok(Self(separator))
            }
            _ => Err("write a comma, \\t for a tab, or another text without letters, digits, backslashes and line breaks"
                .to_owned()),
        }
    }
}

impl Separator {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As messages show it, and [`from_str`](Self::from_str) reads it.
    pub(crate) fn shown(&self) -> String {
        self.0.replace('\t', "\\t")
    }

    /// Key and value of a line: what lies before the first separator, and what lies after.
    pub(crate) fn split<'l>(&self, line: &'l [u8]) -> Option<(&'l [u8], &'l [u8])> {
        let separator = self.0.as_bytes();
        let at = line.windows(separator.len()).position(|window| window == separator)?;
        Some((&line[..at], &line[at + separator.len()..]))
    }

    /// A key's text, in which what the separator begins with is escaped: the first separator of the
    /// line is then the one after it.
    pub(crate) fn guard(&self, key: String) -> String {
        let Some(first) = self.0.chars().next().filter(|first| key.contains(*first)) else { return key };
        let bytes =
            first.to_string().bytes().map(|byte| format!("\\x{}", hex::digits(&[byte]))).collect::<String>();
        key.replace(first, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyFormat, Keys};
    use fpcache_client::ByteKeys;

    #[test]
    fn a_line_is_parted_where_the_key_ends() {
        let format = KeyFormat { is_hex: false };
        for separator in [",", "::", "\\t", " ", "'", "ü", "-->", ":x20"] {
            let Ok(separator) = separator.parse::<Separator>() else {
                assert_eq!(separator, ":x20", "letters are in keys");
                continue;
            };
            for key in ["a", ":", "a:", "a,b", "x' ü-", "\\", "tab\t"] {
                for value in ["", ":", ",b", "\tb", " ü", "->"] {
                    let text = separator.guard(ByteKeys::text(key.as_bytes(), format));
                    let line = [text.as_str(), separator.as_str(), value].concat();
                    let (parsed, rest) = separator.split(line.as_bytes()).expect("it has a separator");
                    let parsed = ByteKeys::parse(str::from_utf8(parsed).expect("text"), format);
                    assert_eq!(parsed.expect("as shown"), key.as_bytes(), "{line:?}");
                    assert_eq!(rest, value.as_bytes(), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn what_could_be_of_a_key_parts_none() {
        for text in ["", "x", "1", "\\\\", "\\n", "\\q", "\\xff"] {
            assert!(text.parse::<Separator>().is_err_and(|why| why.contains("\\t")), "{text}");
        }
        assert_eq!("\\t".parse(), Ok(Separator::default()));
    }
}
