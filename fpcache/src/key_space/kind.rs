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
