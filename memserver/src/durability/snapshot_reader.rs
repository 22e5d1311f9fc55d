//! The reader of snapshots.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::disk::{Disk, DiskError};
use super::frame::{u32_at, u64_at};
use super::snapshot::{
    BLOCK_HEADER_BYTES, BlockKind, FOOTER_BYTES, HEADER_BYTES, LAYOUT, MAGIC, MAX_BLOCK_BYTES,
    MAX_RECORD_BYTES, SnapshotInfo, header_checksum, list_snapshots, remove_temporary, seed,
};

/// A snapshot that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadSnapshot {
    /// It could not be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Its bytes are not what was written.
    #[error(
        "snapshot {file} is damaged at offset {offset}: {why}; restore it from a copy, or move it away to start from \
         an older one and the log"
    )]
    Damaged {
        /// The file's name.
        file: String,
        /// Offset of the header or block concerned.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// It was written by another version of this program.
    #[error(
        "snapshot {file} has layout version {found}, this program reads version {LAYOUT}; use the version that wrote it"
    )]
    Version {
        /// The file's name.
        file: String,
        /// The version found.
        found: u32,
    },
    /// It belongs to another store.
    #[error(
        "snapshot {file} belongs to another store (lineage {found:016x}, not {expected:016x}); move it back there"
    )]
    Lineage {
        /// The file's name.
        file: String,
        /// The lineage it names.
        found: u64,
        /// The lineage of the store.
        expected: u64,
    },
}

impl BadSnapshot {
    /// Why the snapshot cannot be used, without its name and a remedy.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Damaged { offset, why, .. } => format!("it is damaged at offset {offset}: {why}"),
            Self::Version { found, .. } => {
                format!("it has layout version {found}, this program reads version {LAYOUT}")
            }
            Self::Disk(_) | Self::Lineage { .. } => self.to_string(),
        }
    }
}

/// Snapshots that cannot be used, and why.
pub type Skipped = Vec<(String, BadSnapshot)>;

/// A snapshot, being read from its beginning.
#[derive(Debug)]
pub struct SnapshotReader {
    info: SnapshotInfo,
    lineage: u64,
    table_header: Vec<u8>,
    /// Offset in the file of the next block.
    offset: u64,
    blocks: u32,
    records: u64,
    /// The present block's payload, where its next record lies, and how many it still has.
    block: Vec<u8>,
    at: usize,
    left: u32,
}

impl SnapshotReader {
    /// Opens the newest snapshot of the store of `lineage` (`None`: of any) that is valid
    /// throughout: it is read once to see that; and newer ones that cannot be used, and why. Removes
    /// what unfinished snapshots left.
    ///
    /// # Errors
    /// If the folder cannot be read or cleared.
    pub fn newest<D: Disk>(disk: &mut D, lineage: Option<u64>) -> Result<(Option<Self>, Skipped), DiskError> {
        remove_temporary(disk)?;
        Self::newest_in(disk, lineage)
    }

    /// As [`newest`](Self::newest), which leaves the folder as it is.
    pub(crate) fn newest_in<D: Disk>(
        disk: &D,
        lineage: Option<u64>,
    ) -> Result<(Option<Self>, Skipped), DiskError> {
        let mut skipped = Vec::new();
        for (_, name) in list_snapshots(disk)?.into_iter().rev() {
            match Self::open(disk, &name, lineage).and_then(|reader| reader.verify(disk)) {
                Ok(reader) => return Ok((Some(reader), skipped)),
                Err(why) => skipped.push((name, why)),
            }
        }
        Ok((None, skipped))
    }

    /// Opens the snapshot of that name. Its header is checked now, its blocks as they are read.
    ///
    /// # Errors
    /// If it cannot be read, its header is damaged, or it is another store's.
    pub fn open<D: Disk>(disk: &D, name: &str, lineage: Option<u64>) -> Result<Self, BadSnapshot> {
        let damaged = |why| BadSnapshot::Damaged { file: name.to_owned(), offset: 0, why };
        let (bytes, mut header) = (disk.len(name)?, [0; HEADER_BYTES]);
        if bytes >= header.len() as u64 {
            disk.read_all(name, 0, &mut header)?;
        }
        if header[..8] != MAGIC {
            return Err(damaged("it does not begin as a snapshot does"));
        }
        let layout = u32_at(&header, 8);
        let table_bytes = u32_at(&header, 12) as usize;
        if table_bytes > MAX_RECORD_BYTES {
            return Err(damaged("its header does not match its checksum"));
        }
        let mut table_header = vec![0; table_bytes];
        if bytes >= (HEADER_BYTES + table_bytes) as u64 {
            disk.read_all(name, HEADER_BYTES as u64, &mut table_header)?;
        }
        if u64_at(&header, 32) != header_checksum(&header, &table_header) {
            return Err(damaged("its header does not match its checksum"));
        }
        let (found, first_lsn) = (u64_at(&header, 16), u64_at(&header, 24));
        if let Some(expected) = lineage.filter(|expected| *expected != found) {
            return Err(BadSnapshot::Lineage { file: name.to_owned(), found, expected });
        }
        if layout != LAYOUT {
            return Err(BadSnapshot::Version { file: name.to_owned(), found: layout });
        }
        let info = SnapshotInfo { name: name.to_owned(), first_lsn, last_lsn: 0, records: 0, bytes };
        let offset = (HEADER_BYTES + table_bytes) as u64;
        let mut reader = Self {
            info,
            lineage: found,
            table_header,
            offset,
            blocks: 0,
            records: 0,
            block: Vec::new(),
            at: 0,
            left: 0,
        };
        reader.read_footer(disk)?;
        Ok(reader)
    }

    /// What the snapshot is.
    #[must_use]
    pub fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    /// The store's random number.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        self.lineage
    }

    /// The header that the writer was given.
    #[must_use]
    pub fn table_header(&self) -> &[u8] {
        &self.table_header
    }

    /// The next record: about 10 ns, the reading of the file included.
    ///
    /// # Errors
    /// If a block cannot be read or is damaged. Its records were not given out then.
    #[inline]
    pub fn next_record<D: Disk>(&mut self, disk: &D) -> Result<Option<&[u8]>, BadSnapshot> {
        if self.left == 0 && !self.next_block(disk)? {
            return Ok(None);
        }
        let start = self.at + 4;
        let end = match self.block.get(self.at..start) {
            Some(len) => start + u32_at(len, 0) as usize,
            None => return Err(self.damaged("a record is cut off")),
        };
        if end > self.block.len() {
            return Err(self.damaged("a record is cut off"));
        }
        self.at = end;
        self.left -= 1;
        self.records += 1;
        Ok(Some(&self.block[start..end]))
    }

    /// Reads the snapshot through, and begins again.
    fn verify<D: Disk>(mut self, disk: &D) -> Result<Self, BadSnapshot> {
        let begin = self.offset;
        while self.next_block(disk)? {
            self.records += u64::from(self.left);
        }
        (self.offset, self.blocks, self.records, self.left) = (begin, 0, 0, 0);
        Ok(self)
    }

    fn read_footer<D: Disk>(&mut self, disk: &D) -> Result<(), BadSnapshot> {
        let mut footer = [0; FOOTER_BYTES];
        let at = self.info.bytes.checked_sub(FOOTER_BYTES as u64).filter(|at| *at >= self.offset);
        let Some(at) = at else { return Err(self.damaged("the file is cut off")) };
        disk.read_all(&self.info.name, at, &mut footer)?;
        if u64_at(&footer, 0) != xxh3_64_with_seed(&footer[8..], seed(self.lineage, self.info.first_lsn))
            || u32_at(&footer, 8) != BlockKind::Footer as u32
        {
            return Err(self.damaged("the file does not end with a footer"));
        }
        self.info.records = u64_at(&footer, BLOCK_HEADER_BYTES);
        self.info.last_lsn = u64_at(&footer, BLOCK_HEADER_BYTES + 8);
        Ok(())
    }

    /// Reads and checks the next block of records; `false` after the last, if they are as many as
    /// the footer says.
    fn next_block<D: Disk>(&mut self, disk: &D) -> Result<bool, BadSnapshot> {
        let end = self.info.bytes - FOOTER_BYTES as u64;
        if self.offset >= end {
            let is_complete = self.offset == end && self.records == self.info.records;
            return if is_complete {
                Ok(false)
            } else {
                Err(self.damaged("records are missing before the footer"))
            };
        }
        let mut header = [0; BLOCK_HEADER_BYTES];
        // The footer is longer.
        disk.read_all(&self.info.name, self.offset, &mut header)?;
        let payload = u32_at(&header, 20) as usize;
        if payload > MAX_BLOCK_BYTES || self.offset + (header.len() + payload) as u64 > end {
            return Err(self.damaged("a block's length is impossible"));
        }
        self.block.resize(BLOCK_HEADER_BYTES + payload, 0);
        disk.read_all(&self.info.name, self.offset, &mut self.block)?;
        let sum = xxh3_64_with_seed(&self.block[8..], seed(self.lineage, self.info.first_lsn));
        if u64_at(&self.block, 0) != sum {
            return Err(self.damaged("a block does not match its checksum"));
        }
        if u32_at(&self.block, 8) != BlockKind::Records as u32 || u32_at(&self.block, 16) != self.blocks {
            return Err(self.damaged("a block is out of order"));
        }
        self.left = u32_at(&self.block, 12);
        if self.left == 0 {
            return Err(self.damaged("a block is empty"));
        }
        self.at = BLOCK_HEADER_BYTES;
        self.blocks += 1;
        self.offset += self.block.len() as u64;
        Ok(true)
    }

    #[cold]
    fn damaged(&self, why: &'static str) -> BadSnapshot {
        BadSnapshot::Damaged { file: self.info.name.clone(), offset: self.offset, why }
    }
}
