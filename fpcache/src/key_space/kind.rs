//! The kinds of key spaces, for callers that learn only at run time which one a table has.

use std::fmt;
use std::str::FromStr;

use super::{ByteKeys, KeySpace, U64Keys};

/// The kind of a table's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Integers: [`U64Keys`].
    U64,
    /// Byte strings: [`ByteKeys`].
    Bytes,
}

impl KeyKind {
    /// All kinds there are.
    pub const ALL: [Self; 2] = [Self::U64, Self::Bytes];

    /// The kind's name, as `--keys` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U64 => U64Keys::NAME,
            Self::Bytes => ByteKeys::NAME,
        }
    }

    /// The kind's number in regions and messages.
    pub const fn id(self) -> u32 {
        match self {
            Self::U64 => U64Keys::ID,
            Self::Bytes => ByteKeys::ID,
        }
    }

    /// The kind of this number.
    pub fn of_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// The kind of the keys of `K`.
    pub fn of<K: KeySpace>() -> Self {
        if Self::U64.is::<K>() { Self::U64 } else { Self::Bytes }
    }

    /// Whether these are the keys of `K`.
    pub fn is<K: KeySpace>(self) -> bool {
        self.id() == K::ID
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no kind of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of keys: the kinds are u64 and bytes")]
pub struct UnknownKeyKind(String);

/// By its [`name`](KeyKind::name).
impl FromStr for KeyKind {
    type Err = UnknownKeyKind;

    fn from_str(text: &str) -> Result<Self, UnknownKeyKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownKeyKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_shown() {
        for kind in KeyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let unknown = "u32".parse::<KeyKind>().unwrap_err();
        assert!(unknown.to_string().contains("`u32`") && unknown.to_string().contains("u64 and bytes"));
    }
}
