//! The keys of a table that is created, for `create` and `import`.

use clap::{Args, ValueEnum};
use fpcache_client::KeyKind;

use crate::keys::{KeyLengths, Keys};
use crate::parameters::Length;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NewKeys {
    /// Kind of keys: u64, or bytes for byte strings of 1 B to 4 KiB [default: that of the table if
    /// it exists, else u64; bytes with --key-bytes]
    #[arg(long, value_enum, value_name = "KIND")]
    keys: Option<KeysArgument>,

    /// Bytes of every key, or vary. Keys of a fixed length need no length field in their slots
    /// [default: vary]
    #[arg(long, value_name = "BYTES")]
    key_bytes: Option<Length>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeysArgument {
    /// Integers
    U64,
    /// Byte strings
    Bytes,
}

impl NewKeys {
    /// The kind of keys, if given.
    pub(crate) fn kind(self) -> Option<KeyKind> {
        match (self.keys, self.key_bytes) {
            (Some(KeysArgument::U64), _) => Some(KeyKind::U64),
            (Some(KeysArgument::Bytes), _) | (None, Some(_)) => Some(KeyKind::Bytes),
            (None, None) => None,
        }
    }

    /// Their lengths, as far as they are known beforehand.
    pub(crate) fn lengths<K: Keys>(self) -> KeyLengths {
        match self.key_bytes {
            Some(Length::Bytes(bytes)) => KeyLengths::fixed(u16::try_from(bytes).unwrap_or(u16::MAX)),
            Some(Length::Vary) => KeyLengths { every: None, ..K::LENGTHS },
            None => K::LENGTHS,
        }
    }
}
