//! What the keys of a store are that is there already.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use fpcache::key_space::{ByteKeys, KeyKind, U64Keys};
use fpcache::layout::{SUPERBLOCK_BYTES, Superblock, SuperblockError, TableParameters};
use fpcache_fabric::{Access, SharedMemory};

use crate::durability::{Disk, FileDisk, SnapshotReader};
use crate::notes::Notes;
use crate::store::{Folders, RING_BYTES};

/// What the keys of the table in these folders are: by the region that a process left, else by the newest snapshot.
/// `None` without a table, and where neither can be read: whoever begins with them is told why.
pub fn key_kind_in(folders: &Folders) -> Option<KeyKind> {
    in_region(folders).or_else(|| in_snapshots(folders.disk_folder()))
}

/// The first kind of which this holds.
fn first(holds: impl Fn(KeyKind) -> bool) -> Option<KeyKind> {
    KeyKind::ALL.into_iter().find(|kind| holds(*kind))
}

/// By the table record in the superblock, or by the one in the notes if the process ended while it wrote that.
fn in_region(folders: &Folders) -> Option<KeyKind> {
    let mut superblock = [0; SUPERBLOCK_BYTES];
    File::open(folders.region_file()).ok()?.read_exact_at(&mut superblock, 0).ok()?;
    if Superblock::decode::<U64Keys>(&superblock) == Err(SuperblockError::Changing) {
        let (notes, _) = SharedMemory::open_file(folders.notes_file(), Access::ReadOnly).ok()?;
        let notes = Notes::over(Arc::new(notes), RING_BYTES);
        return first(|kind| match kind {
            KeyKind::U64 => matches!(notes.record::<U64Keys>(), Ok(Some(_))),
            KeyKind::Bytes => matches!(notes.record::<ByteKeys>(), Ok(Some(_))),
        });
    }
    let has_table =
        |decoded: Result<Superblock, _>| decoded.is_ok_and(|superblock| superblock.table.is_some());
    first(|kind| match kind {
        KeyKind::U64 => has_table(Superblock::decode::<U64Keys>(&superblock)),
        KeyKind::Bytes => has_table(Superblock::decode::<ByteKeys>(&superblock)),
    })
}

/// By the header of the newest snapshot that has one.
fn in_snapshots(folder: &Path) -> Option<KeyKind> {
    if !folder.is_dir() {
        return None;
    }
    let disk = FileDisk::open(folder).ok()?;
    let mut names = disk.list().ok()?;
    names.retain(|name| name.starts_with("snapshot-") && name.ends_with(".fps"));
    // Their names hold numbers of equal length: the newest is the greatest.
    names.sort_unstable();
    let newest = names.iter().rev().find_map(|name| SnapshotReader::open(&disk, name, None).ok())?;
    first(|kind| match kind {
        KeyKind::U64 => TableParameters::decode::<U64Keys>(newest.table_header()).is_ok(),
        KeyKind::Bytes => TableParameters::decode::<ByteKeys>(newest.table_header()).is_ok(),
    })
}
