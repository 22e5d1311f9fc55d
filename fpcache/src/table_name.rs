//! Names of tables.

use std::fmt;
use std::str::FromStr;

/// The name of a table of a memory node: 1 to 64 ASCII letters, digits, dots, underscores and hyphens, the first of them no
/// dot. Upper and lower case differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    // Zeros after the name, which has none: names are in the order of their bytes.
    bytes: [u8; Self::MAX],
    len: u8,
}

/// A text that no table can be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is no name of a table: {why}; a name has 1 to {max} of A-Z a-z 0-9 . _ - and does not begin with a dot",
    .name.escape_debug(),
    max = TableName::MAX
)]
pub struct TableNameError {
    name: String,
    why: &'static str,
}

impl TableName {
    /// Most bytes of a name.
    pub const MAX: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // Checked when it was made: ASCII.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Reads a name from bytes, as they come in a request.
    ///
    /// # Errors
    /// If no table can be called so.
    pub fn from_bytes(name: &[u8]) -> Result<Self, TableNameError> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let why = match name {
            [] => "it is empty",
            [b'.', ..] => "it begins with a dot",
            _ if name.len() > Self::MAX => "it is too long",
            _ if !name.iter().all(is_allowed) => "it has other characters",
            _ => {
                let mut bytes = [0; Self::MAX];
                bytes[..name.len()].copy_from_slice(name);
                // At most 64.
                return Ok(Self { bytes, len: name.len() as u8 });
            }
        };
        // As much as tells which one is meant.
        let shown = &name[..name.len().min(2 * Self::MAX)];
        Err(TableNameError { name: String::from_utf8_lossy(shown).into_owned(), why })
    }
}

impl Default for TableName {
    /// `default`: the table of those who name none.
    fn default() -> Self {
        let name = b"default";
        let mut bytes = [0; Self::MAX];
        bytes[..name.len()].copy_from_slice(name);
        Self { bytes, len: name.len() as u8 }
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(name: &str) -> Result<Self, TableNameError> {
        Self::from_bytes(name.as_bytes())
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for name in ["default", "a", "Orders_2026-01.v2", "-", "0", &"x".repeat(64)] {
            let read: TableName = name.parse().expect(name);
            assert_eq!((read.as_str(), read.to_string().as_str()), (name, name));
        }
        assert_eq!(TableName::default().as_str(), "default");
        assert_eq!(format!("[{:>4}]", "ab".parse::<TableName>().expect("a name")), "[  ab]");
    }

    #[test]
    fn what_is_no_name_says_why() {
        let long = "x".repeat(65);
        for (name, why) in [
            ("", "empty"),
            (".", "dot"),
            ("..", "dot"),
            (".new-a", "dot"),
            ("a/b", "other characters"),
            ("a b", "other characters"),
            ("grün", "other characters"),
            ("a\0", "other characters"),
            (&long, "too long"),
        ] {
            let error = name.parse::<TableName>().expect_err(name).to_string();
            assert!(error.contains(why) && error.contains("1 to 64 of A-Z"), "{error}");
        }
        assert!(TableName::from_bytes(&[0xff; 3]).is_err());
    }

    #[test]
    fn names_are_in_the_order_of_their_bytes() {
        let mut names =
            ["b", "a-b", "a", "ab", "B", "a.b"].map(|name| name.parse::<TableName>().expect(name));
        names.sort_unstable();
        assert_eq!(names.map(|name| name.to_string()), ["B", "a", "a-b", "a.b", "ab", "b"]);
    }
}
