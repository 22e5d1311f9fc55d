//! The key spaces there are, for whoever learns only at run time which one a table has.

use std::fmt;

use super::{ByteKeys, KeySpace, U64Keys};

/// What the keys of a table are.
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

    /// Whether these are the keys of `K`.
    pub fn is<K: KeySpace>(self) -> bool {
        let id = match self {
            Self::U64 => U64Keys::ID,
            Self::Bytes => ByteKeys::ID,
        };
        id == K::ID
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
