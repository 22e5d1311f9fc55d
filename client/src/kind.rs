//! What the keys of a memory node's table are, for whoever does not know.

use std::fmt;

use fpcache::key_space::{ByteKeys, KeySpace, U64Keys};
use fpcache::layout::{Corrupt, SUPERBLOCK_BYTES, Superblock, SuperblockError};
use fpcache::snapshot::OpenError;
use fpcache_fabric::{Batch, Endpoint, RemoteAddr};

/// How often a superblock that is being changed is read again before giving up.
const ATTEMPTS: u32 = 10_000;

/// What the keys of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Integers: [`Client`](crate::Client).
    U64,
    /// Byte strings: [`ByteClient`](crate::ByteClient).
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

    /// Whether a client for `K` reads tables of this kind.
    pub(crate) fn is<K: KeySpace>(self) -> bool {
        let id = match self {
            Self::U64 => U64Keys::ID,
            Self::Bytes => ByteKeys::ID,
        };
        id == K::ID
    }

    /// What the keys of the table behind an endpoint are, `None` if there is no table: one round trip.
    pub(crate) fn read<E: Endpoint>(endpoint: &mut E) -> Result<Option<Self>, OpenError> {
        let mut batch = Batch::new();
        for _ in 0..ATTEMPTS {
            batch.clear();
            let landing = batch.read(RemoteAddr::region(0), SUPERBLOCK_BYTES);
            endpoint.run(&mut batch)?;
            let bytes = batch.bytes(landing);
            match Superblock::decode::<U64Keys>(bytes) {
                Ok(superblock) => return Ok(superblock.table.map(|_| Self::U64)),
                Err(SuperblockError::Changing) => std::hint::spin_loop(),
                Err(SuperblockError::Corrupt(_)) => {
                    return Ok(Superblock::decode::<ByteKeys>(bytes)?.table.map(|_| Self::Bytes));
                }
                Err(other) => return Err(other.into()),
            }
        }
        Err(Corrupt::new("superblock", 0, format!("its checksum did not match in {ATTEMPTS} reads")).into())
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
