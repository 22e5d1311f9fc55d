//! Names of tables.

use std::fmt;
use std::str::FromStr;

/// The name of a table of a memory node: 1 to 64 ASCII letters, digits, dots, underscores and
/// hyphens, the first of them no dot. Upper and lower case differ.
///
/// The ranges of a table over several memory nodes have names that no user gives:
/// `NAME@CREATION.NUMBER`, the creation number of the table's [map](crate::map) as 16 hexadecimal
/// digits. Such a name is never used again for another range.
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
        let is_whole = || match name.iter().position(|byte| *byte == b'@') {
            Some(at) => at <= Self::MAX_OVER_NODES && suffix(&name[at + 1..]).is_some(),
            None => true,
        };
        let plain = name.split(|byte| *byte == b'@').next().unwrap_or_default();
        let why = match name {
            [] => "it is empty",
            [b'.', ..] => "it begins with a dot",
            [b'@', ..] => "it has other characters",
            _ if name.len() > Self::MAX => "it is too long",
            _ if !plain.iter().copied().all(is_plain) || !is_whole() => "it has other characters",
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

    /// A name that is written in a program: one that no table can have does not compile, in a
    /// constant.
    ///
    /// ```
    /// # use fpcache::TableName;
    /// const SESSIONS: TableName = TableName::from_static("sessions");
    /// ```
    ///
    /// ```compile_fail
    /// # use fpcache::TableName;
    /// const SESSIONS: TableName = TableName::from_static("sessions of users");
    /// ```
    ///
    /// # Panics
    /// If it is no name of a table, or one of a range, where it is not computed by the compiler.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        let (name, mut bytes, mut at) = (name.as_bytes(), [0; Self::MAX], 0);
        assert!(!name.is_empty() && name.len() <= Self::MAX, "a table's name has 1 to 64 characters");
        assert!(name[0] != b'.', "a table's name does not begin with a dot");
        while at < name.len() {
            assert!(is_plain(name[at]), "a table's name has only A-Z a-z 0-9 . _ -");
            bytes[at] = name[at];
            at += 1;
        }
        // At most 64.
        Self { bytes, len: name.len() as u8 }
    }

    /// Most bytes of the name of a table over several memory nodes: the names of its ranges are
    /// longer.
    pub const MAX_OVER_NODES: usize = 40;

    /// The name of a range of the table over several memory nodes that has this name.
    ///
    /// # Errors
    /// If the name is too long for such a table, or is itself one of a range.
    pub fn of_range(&self, creation: u64, number: u32) -> Result<Self, TableNameError> {
        let why = match (self.as_range().is_some(), usize::from(self.len) > Self::MAX_OVER_NODES) {
            (true, _) => "it is that of a range",
            (_, true) => "a table over several memory nodes has at most 40 characters",
            _ => return Self::from_bytes(format!("{self}@{creation:016x}.{number}").as_bytes()),
        };
        Err(TableNameError { name: self.to_string(), why })
    }

    /// Of which table over several memory nodes it names a range, with the creation number of that
    /// one's map and the range's number; `None` if it is the name of a table.
    pub fn as_range(&self) -> Option<(Self, u64, u32)> {
        let (of, rest) = self.as_str().split_once('@')?;
        let (creation, number) = suffix(rest.as_bytes())?;
        Some((Self::from_bytes(of.as_bytes()).ok()?, creation, number))
    }
}

/// Whether names of tables may have this character.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Creation number and number of a range, as they stand after the `@`; `None` if they are written
/// in any other way.
fn suffix(text: &[u8]) -> Option<(u64, u32)> {
    let (creation, number) = std::str::from_utf8(text).ok()?.split_once('.')?;
    let is_hex = creation.len() == 16 && creation.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = !number.is_empty()
        && number.len() <= 6
        && number.bytes().all(|b| b.is_ascii_digit())
        && (number == "0" || !number.starts_with('0'));
    match is_hex && is_number {
        true => Some((u64::from_str_radix(creation, 16).ok()?, number.parse().ok()?)),
        false => None,
    }
}

impl Default for TableName {
    /// `default`: the table of those who name none.
    fn default() -> Self {
        Self::from_static("default")
    }
}

impl AsRef<str> for TableName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for TableName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for TableName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl TryFrom<&str> for TableName {
    type Error = TableNameError;

    fn try_from(name: &str) -> Result<Self, TableNameError> {
        name.parse()
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
        const WRITTEN: TableName = TableName::from_static("Orders_2026-01.v2");
        assert_eq!("Orders_2026-01.v2".parse(), Ok(WRITTEN));
        for bad in ["", ".a", "a b", "a@0000000000000001.0"] {
            assert!(std::panic::catch_unwind(|| TableName::from_static(bad)).is_err(), "{bad}");
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
    fn ranges_have_names_that_no_table_has() {
        let table: TableName = "orders-2".parse().expect("a name");
        let range = table.of_range(0x12ab, 7).expect("short enough");
        assert_eq!(range.as_str(), "orders-2@00000000000012ab.7");
        assert_eq!(range.as_range(), Some((table, 0x12ab, 7)));
        assert_eq!(range.as_str().parse(), Ok(range));
        assert_eq!((table.as_range(), range.of_range(1, 1).is_err()), (None, true));
        let longest: TableName = "x".repeat(TableName::MAX_OVER_NODES).parse().expect("a name");
        assert_eq!(longest.of_range(u64::MAX, 999_999).expect("it fits").as_str().len(), TableName::MAX);
        assert!("x".repeat(41).parse::<TableName>().expect("a name").of_range(1, 0).is_err());
        for bad in [
            "a@",
            "@00000000000012ab.7",
            "a@12ab.7",
            "a@00000000000012AB.7",
            "a@00000000000012ab",
            "a@00000000000012ab.",
            "a@00000000000012ab.07",
            "a@00000000000012ab.+7",
            "a@00000000000012ab.1234567",
            "a@00000000000012ab.7@00000000000012ab.7",
            "a/b@00000000000012ab.7",
        ] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_bytes() {
        let mut names =
            ["b", "a-b", "a", "ab", "B", "a.b"].map(|name| name.parse::<TableName>().expect(name));
        names.sort_unstable();
        assert_eq!(names.map(|name| name.to_string()), ["B", "a", "a-b", "a.b", "ab", "b"]);
    }
}
