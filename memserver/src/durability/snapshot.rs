//! Snapshots: all records of the table, written while it serves.
//!
//! A snapshot begins at an entry of the log, its first LSN. It has the records as they were before
//! that entry, without those that were changed or removed before they were copied. Applying the log
//! from the first LSN on completes it, provided the log reaches the last LSN: every change that
//! removed a record from the snapshot has an LSN up to that one. (These are the "fuzzy checkpoints"
//! of Mohan et al., "ARIES", ACM TODS 17(1), 1992, section 5.4.)
//!
//! | header | |
//! |---|---|
//! | 0 | magic, `FPCSNAP\0` |
//! | 8 | layout version u32 = 3 |
//! | 12 | length of the table's header u32 |
//! | 16 | lineage u64 |
//! | 24 | first LSN u64 |
//! | 32 | XXH3-64 of bytes 0–31 and the table's header |
//! | 40 | the table's header |
//!
//! Blocks follow, of about 1 MiB, and a last one, the footer:
//!
//! | block | |
//! |---|---|
//! | 0 | XXH3-64 of the bytes from 8 to the block's end, seeded with lineage and first LSN |
//! | 8 | kind u32: 1 records, 2 footer |
//! | 12 | number of records u32 |
//! | 16 | number of the block u32 |
//! | 20 | bytes of the payload u32 |
//! | 24 | payload: per record its length u32 and its bytes; in the footer the number of records u64 and the last LSN u64 |

use bytesize::ByteSize;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64_with_seed};

use super::disk::{Disk, DiskError, DiskErrorKind};
use super::lsn::Lsn;
use super::names::lsn_in_name;
use super::rewrite_last_file::is_copy;

pub(super) const MAGIC: [u8; 8] = *b"FPCSNAP\0";
pub(super) const LAYOUT: u32 = 3;
pub(super) const HEADER_BYTES: usize = 40;
pub(super) const BLOCK_HEADER_BYTES: usize = 24;
pub(super) const FOOTER_BYTES: usize = BLOCK_HEADER_BYTES + 16;
/// A block is written once it has this many bytes.
const BLOCK_BYTES: usize = 1 << 20;
/// The longest record of a snapshot, and the longest table header, in bytes: the longest value, and
/// a key.
pub const MAX_RECORD_BYTES: usize = (1 << 24) + (1 << 13);
/// A block holds less than `BLOCK_BYTES` before its last record.
pub(super) const MAX_BLOCK_BYTES: usize = BLOCK_BYTES + 4 + MAX_RECORD_BYTES;
const TEMPORARY: &str = ".tmp";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    Records = 1,
    Footer = 2,
}

/// What a block's checksum is seeded with, so that no block passes for one of another snapshot.
pub(super) fn seed(lineage: u64, first: Lsn) -> u64 {
    lineage ^ first.rotate_left(32)
}

/// The checksum of a snapshot's header.
pub(super) fn header_checksum(fixed: &[u8], table_header: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&fixed[..32]);
    hash.update(table_header);
    hash.digest()
}

pub(super) fn snapshot_name(first: Lsn) -> String {
    format!("snapshot-{first:016x}.fps")
}

/// The snapshots on `disk`, oldest first, by their names alone.
pub(super) fn list_snapshots(disk: &impl Disk) -> Result<Vec<(Lsn, String)>, DiskError> {
    let mut found = Vec::new();
    for name in disk.list()? {
        if let Some(first) = lsn_in_name(&name, "snapshot-", ".fps") {
            found.push((first, name));
        }
    }
    found.sort();
    Ok(found)
}

/// Why a snapshot is not written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The table cannot be read.
    #[error("the table cannot be read: {0}")]
    Table(String),
    /// It would not fit, and was not begun: half of it would have taken the room that the log
    /// needs.
    #[error(
        "it would take about {}, and its disk has room for {}: free space on that disk or raise its quota, for until then \
         the log grows", ByteSize(*.needed).display().iec(), ByteSize(*.room).display().iec()
    )]
    NoRoom {
        /// About how many bytes it would take, with what the log needs meanwhile.
        needed: u64,
        /// Bytes that the disk has room for.
        room: u64,
    },
    /// A record or the table's header is too long.
    #[error("a snapshot's record of {len} bytes exceeds the limit of {MAX_RECORD_BYTES}; split it")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
}

impl SnapshotError {
    /// Whether the disk has no room for it, which may pass.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::NoRoom { .. } => true,
            Self::Disk(error) => error.kind == DiskErrorKind::Full,
            _ => false,
        }
    }
}

/// What a finished snapshot is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// The file's name.
    pub name: String,
    /// Where the log must be applied from.
    pub first_lsn: Lsn,
    /// What the log must reach at least.
    pub last_lsn: Lsn,
    /// Number of records.
    pub records: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// Writes a snapshot under a temporary name, which it loses at the end. Dropped before, it removes
/// the file.
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    temporary: String,
    first: Lsn,
    seed: u64,
    block: Vec<u8>,
    in_block: u32,
    blocks: u32,
    records: u64,
    bytes: u64,
    is_finished: bool,
}

impl<D: Disk> SnapshotWriter<D> {
    /// Begins a snapshot of the store of `lineage`. `table_header` is the caller's; `first_lsn` is
    /// the first record of the log that may be missing in what will be pushed.
    ///
    /// # Errors
    /// If the disk refuses or the header is too long.
    pub fn begin(
        mut disk: D,
        lineage: u64,
        table_header: &[u8],
        first_lsn: Lsn,
    ) -> Result<Self, SnapshotError> {
        if table_header.len() > MAX_RECORD_BYTES {
            return Err(SnapshotError::TooLong { len: table_header.len() });
        }
        let temporary = snapshot_name(first_lsn) + TEMPORARY;
        disk.remove_if_there(&temporary)?;
        disk.create(&temporary)?;
        let mut header = Vec::with_capacity(HEADER_BYTES + table_header.len());
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&LAYOUT.to_le_bytes());
        header.extend_from_slice(&(table_header.len() as u32).to_le_bytes());
        header.extend_from_slice(&lineage.to_le_bytes());
        header.extend_from_slice(&first_lsn.to_le_bytes());
        header.extend_from_slice(&header_checksum(&header, table_header).to_le_bytes());
        header.extend_from_slice(table_header);
        let mut writer = Self {
            disk,
            temporary,
            first: first_lsn,
            seed: seed(lineage, first_lsn),
            block: vec![0; BLOCK_HEADER_BYTES],
            in_block: 0,
            blocks: 0,
            records: 0,
            bytes: 0,
            is_finished: false,
        };
        writer.write(&header)?;
        writer.block.reserve(BLOCK_BYTES);
        Ok(writer)
    }

    /// Adds a record. Every mebibyte it writes, which may take a millisecond, and every 64 it
    /// syncs.
    ///
    /// # Errors
    /// If the disk refuses or the record is too long.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), SnapshotError> {
        if record.len() > MAX_RECORD_BYTES {
            return Err(SnapshotError::TooLong { len: record.len() });
        }
        self.block.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.block.extend_from_slice(record);
        self.in_block += 1;
        if self.block.len() >= BLOCK_BYTES { self.write_block(BlockKind::Records) } else { Ok(()) }
    }

    /// Ends the snapshot: it counts once this has returned. `last_lsn` is the last record of the
    /// log that may be contained in what was pushed; it must be durable before the snapshot is of
    /// use.
    ///
    /// # Errors
    /// If the disk refuses; there is no snapshot then.
    pub fn finish(mut self, last_lsn: Lsn) -> Result<SnapshotInfo, SnapshotError> {
        if self.in_block > 0 {
            self.write_block(BlockKind::Records)?;
        }
        self.block.extend_from_slice(&self.records.to_le_bytes());
        self.block.extend_from_slice(&last_lsn.to_le_bytes());
        self.write_block(BlockKind::Footer)?;
        let name = snapshot_name(self.first);
        self.disk.sync(&self.temporary)?;
        self.disk.rename(&self.temporary, &name)?;
        self.is_finished = true;
        self.disk.sync_dir()?;
        Ok(SnapshotInfo { name, first_lsn: self.first, last_lsn, records: self.records, bytes: self.bytes })
    }

    #[cold]
    fn write_block(&mut self, kind: BlockKind) -> Result<(), SnapshotError> {
        let mut block = std::mem::take(&mut self.block);
        let payload = (block.len() - BLOCK_HEADER_BYTES) as u32;
        block[8..12].copy_from_slice(&(kind as u32).to_le_bytes());
        block[12..16].copy_from_slice(&self.in_block.to_le_bytes());
        block[16..20].copy_from_slice(&self.blocks.to_le_bytes());
        block[20..24].copy_from_slice(&payload.to_le_bytes());
        let checksum = xxh3_64_with_seed(&block[8..], self.seed);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        self.write(&block)?;
        self.blocks += 1;
        self.records += u64::from(self.in_block);
        self.in_block = 0;
        block.truncate(BLOCK_HEADER_BYTES);
        self.block = block;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        /// Bytes synced at once, and so the most that anything else waits for.
        const SYNCED: u64 = 64 << 20;
        self.disk.append(&self.temporary, bytes)?;
        let before = self.bytes;
        self.bytes += bytes.len() as u64;
        if before / SYNCED < self.bytes / SYNCED {
            self.disk.sync(&self.temporary)?;
        }
        Ok(())
    }
}

impl<D: Disk> Drop for SnapshotWriter<D> {
    fn drop(&mut self) {
        if !self.is_finished {
            // A file that cannot be removed now is removed at the next start.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

/// Removes what unfinished snapshots, and copies of log files, left. Not to be called while one is
/// written.
pub(crate) fn remove_temporary(disk: &mut impl Disk) -> Result<(), DiskError> {
    for name in disk.list()? {
        let of_snapshot = name.strip_suffix(TEMPORARY);
        if of_snapshot.is_some_and(|name| lsn_in_name(name, "snapshot-", ".fps").is_some()) || is_copy(&name)
        {
            disk.remove(&name)?;
        }
    }
    Ok(())
}
