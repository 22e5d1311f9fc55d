//! The kind of a table's keys, read before a client for it exists.

use fpcache::key_space::{ByteKeys, KeyKind, U64Keys};
use fpcache::layout::{Corrupt, SUPERBLOCK_BYTES, Superblock, SuperblockError};
use fpcache::table_view::OpenError;
use fpcache_fabric::{Batch, Endpoint, RemoteAddr};

/// How often a superblock that is being changed is read again before giving up.
const ATTEMPTS: u32 = 10_000;
/// How many of these follow each other at once.
const SPINS: u32 = 100;

/// What the keys of the table behind an endpoint are, `None` if there is no table: one round trip.
pub(crate) fn read_kind<E: Endpoint>(endpoint: &mut E) -> Result<Option<KeyKind>, OpenError> {
    let mut batch = Batch::new();
    for attempt in 0..ATTEMPTS {
        batch.clear();
        let landing = batch.read(RemoteAddr::region(0), SUPERBLOCK_BYTES);
        endpoint.run(&mut batch)?;
        let bytes = batch.bytes(landing);
        match Superblock::decode::<U64Keys>(bytes) {
            Ok(superblock) => return Ok(superblock.table.map(|_| KeyKind::U64)),
            Err(SuperblockError::Changing) if attempt < SPINS => std::hint::spin_loop(),
            // A writer that changes it may wait for this processor.
            Err(SuperblockError::Changing) => std::thread::yield_now(),
            Err(SuperblockError::Corrupt(_)) => {
                return Ok(Superblock::decode::<ByteKeys>(bytes)?.table.map(|_| KeyKind::Bytes));
            }
            Err(other) => return Err(other.into()),
        }
    }
    Err(Corrupt::new("superblock", 0, format!("its checksum did not match in {ATTEMPTS} reads")).into())
}
