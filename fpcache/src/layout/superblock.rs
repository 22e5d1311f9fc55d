//! The superblock: the first page of a region, from which a client learns everything else.
//!
//! ```text
//!   0 magic "FPCACHE\0" · 8 layout version u32 · 12 superblock bytes u32 · 16 incarnation u64 · 24 region bytes u64
//!  32 sequence u64 (odd while the record changes) · 40 reuse sequence u64 · 48 tables u32 · 52–63 zero
//!  64 table record, 192 bytes · 256–4079 zero · 4080 checksum u64 of bytes 0–31 and 48–4079 · 4088 log head u64
//! ```
//!
//! The memory node makes the sequence odd, rewrites the record and the checksum, and makes it even
//! again; a reader takes a copy only if the sequence was even and the checksum agrees, and else
//! reads again. The reuse sequence is stored before memory is given a new use, the log head after
//! the records of every change; both stand outside the checksum because they change on their own,
//! and on cache lines apart, because all readers look at the one and few at the other.

use xxhash_rust::xxh3::Xxh3Default;

use super::{Corrupt, LAYOUT_VERSION, TABLE_RECORD_BYTES, TableRecord, put, u32_at, u64_at};
use crate::key_space::KeySpace;

/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Offset of the incarnation.
pub const INCARNATION_OFFSET: u64 = 16;
/// Offset of the sequence.
pub const SEQUENCE_OFFSET: u64 = 32;
/// Offset of the reuse sequence: memory of segments that were replaced by records of the change log
/// below it may hold something else by now.
pub const REUSE_OFFSET: u64 = 40;
/// The reuse sequence of a region whose table was dropped: no directory is as new.
pub const DROPPED: u64 = u64::MAX;
/// Offset of the log head: how many records the change log has ever had.
pub const LOG_HEAD_OFFSET: u64 = 4088;

const MAGIC: [u8; 8] = *b"FPCACHE\0";
const TABLE_OFFSET: usize = 64;
const CHECKSUM_OFFSET: usize = 4080;

/// A decoded superblock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Superblock {
    /// Differs between any two starts of a memory node.
    pub incarnation: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Even; grows by two with every change of the record.
    pub sequence: u64,
    /// Grows before memory is given a new use.
    pub reuse_sequence: u64,
    /// Records the change log has ever had.
    pub log_head: u64,
    /// The table, once one was loaded.
    pub table: Option<TableRecord>,
}

/// Why a superblock could not be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// It is being changed: read again.
    #[error("the superblock is being changed")]
    Changing,
    /// The region is not one of ours.
    #[error("this memory holds no FPCache region (its first bytes are {0:02x?})")]
    Foreign([u8; 8]),
    /// Its table was dropped, and the region given up.
    #[error("the table was dropped: connect anew, to learn whether there is another of its name")]
    Dropped,
    /// The region has another layout.
    #[error(
        "the memory node's region has layout version {found}, this program reads version {expected}: run the same \
         release of FPCache on both sides",
        expected = LAYOUT_VERSION
    )]
    Version {
        /// The region's layout version.
        found: u32,
    },
    /// The region's bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl Superblock {
    /// The superblock's bytes.
    pub fn encode<K: KeySpace>(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut b = [0; SUPERBLOCK_BYTES];
        put(&mut b, 0, MAGIC);
        put(&mut b, 8, LAYOUT_VERSION.to_le_bytes());
        put(&mut b, 12, (SUPERBLOCK_BYTES as u32).to_le_bytes());
        put(&mut b, 16, self.incarnation.to_le_bytes());
        put(&mut b, 24, self.region_bytes.to_le_bytes());
        put(&mut b, 32, self.sequence.to_le_bytes());
        put(&mut b, 40, self.reuse_sequence.to_le_bytes());
        put(&mut b, 48, u32::from(self.table.is_some()).to_le_bytes());
        if let Some(table) = &self.table {
            put(&mut b, TABLE_OFFSET, table.encode::<K>());
        }
        let checksum = checksum(&b);
        put(&mut b, CHECKSUM_OFFSET, checksum.to_le_bytes());
        put(&mut b, LOG_HEAD_OFFSET as usize, self.log_head.to_le_bytes());
        b
    }

    /// Reads a superblock from a region's first bytes.
    pub fn decode<K: KeySpace>(b: &[u8]) -> Result<Self, SuperblockError> {
        let Some(b) = b.first_chunk::<SUPERBLOCK_BYTES>() else {
            return Err(Corrupt::new("superblock", 0, "cut short").into());
        };
        let sequence = u64_at(b, 32);
        if b[..8] != MAGIC {
            return Err(SuperblockError::Foreign(super::field(b, 0)));
        }
        // Before the checksum: another version may place it elsewhere.
        if u32_at(b, 8) != LAYOUT_VERSION {
            return Err(SuperblockError::Version { found: u32_at(b, 8) });
        }
        if u64_at(b, REUSE_OFFSET as usize) == DROPPED {
            return Err(SuperblockError::Dropped);
        }
        if !sequence.is_multiple_of(2) || checksum(b) != u64_at(b, CHECKSUM_OFFSET) {
            return Err(SuperblockError::Changing);
        }
        let record = &b[TABLE_OFFSET..][..TABLE_RECORD_BYTES];
        let table = match u32_at(b, 48) {
            0 => None,
            _ => Some(TableRecord::decode::<K>(record, TABLE_OFFSET as u64)?),
        };
        Ok(Self {
            incarnation: u64_at(b, 16),
            region_bytes: u64_at(b, 24),
            sequence,
            reuse_sequence: u64_at(b, REUSE_OFFSET as usize),
            log_head: u64_at(b, LOG_HEAD_OFFSET as usize),
            table,
        })
    }
}

fn checksum(b: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&b[..32]);
    hash.update(&b[48..CHECKSUM_OFFSET]);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    fn superblock() -> Superblock {
        let table = TableRecord { keys: 1, root: 8192, used: 16384, checkpoint: 3, ..Default::default() };
        Superblock {
            incarnation: 9,
            region_bytes: 1 << 20,
            sequence: 4,
            reuse_sequence: 3,
            log_head: 9,
            table: Some(table),
        }
    }

    #[test]
    fn superblocks_round_trip_with_and_without_a_table() {
        for s in [superblock(), Superblock { table: None, ..superblock() }] {
            assert_eq!(Superblock::decode::<U64Keys>(&s.encode::<U64Keys>()), Ok(s));
        }
    }

    #[test]
    fn a_torn_or_odd_superblock_is_read_again() {
        let mut torn = superblock().encode::<U64Keys>();
        torn[TABLE_OFFSET + 32] ^= 1;
        assert_eq!(Superblock::decode::<U64Keys>(&torn), Err(SuperblockError::Changing));
        let odd = Superblock { sequence: 5, ..superblock() }.encode::<U64Keys>();
        assert_eq!(Superblock::decode::<U64Keys>(&odd), Err(SuperblockError::Changing));
    }

    #[test]
    fn another_version_or_foreign_memory_is_named() {
        let mut b = superblock().encode::<U64Keys>();
        b[8] = 99;
        let error = Superblock::decode::<U64Keys>(&b).expect_err("version 99");
        assert!(
            error.to_string().contains("version 99")
                && error.to_string().contains(&format!("version {LAYOUT_VERSION}")),
            "{error}"
        );
        b[0] = 0;
        assert!(matches!(Superblock::decode::<U64Keys>(&b), Err(SuperblockError::Foreign(_))));
        assert!(Superblock::decode::<U64Keys>(&[]).is_err());
    }

    #[test]
    fn a_dropped_table_is_told_from_a_superblock_that_changes() {
        let mut b = superblock().encode::<U64Keys>();
        b[40..48].fill(0xff);
        b[32] = 5;
        assert_eq!(Superblock::decode::<U64Keys>(&b), Err(SuperblockError::Dropped));
    }

    #[test]
    fn reuse_sequence_and_log_head_change_without_a_new_checksum() {
        let mut b = superblock().encode::<U64Keys>();
        (b[40], b[4088]) = (200, 100);
        let s = Superblock::decode::<U64Keys>(&b).map(|s| (s.reuse_sequence, s.log_head));
        assert_eq!(s, Ok((200, 100)));
    }
}
