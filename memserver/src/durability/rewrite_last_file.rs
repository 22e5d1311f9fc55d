//! The log's last file, written anew by a start that has nothing but the disk.
//!
//! What such a file is read as may be in the operating system's memory alone: its sync may have
//! failed in the process before, and the next one would say that all is well. A copy has never been
//! synced, so that its sync tells the truth.

use super::disk::{Disk, DiskError, DiskErrorKind};
use super::names::lsn_in_name;

/// Follows the name of a log file while it is copied.
const COPY: &str = ".copy";

/// Bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Puts a synced copy of a log file's first `bytes` in its place.
pub(super) fn write_anew(disk: &mut impl Disk, name: &str, bytes: u64) -> Result<(), DiskError> {
    let copy = format!("{name}{COPY}");
    // One that cannot be removed now is removed at the next start.
    copy_synced(disk, name, bytes, &copy).inspect_err(|_| _ = disk.remove(&copy))?;
    disk.rename(&copy, name)?;
    disk.sync_dir()
}

/// Cuts a log file to its first `bytes` and syncs it as it is, for want of room. That may lie.
pub(super) fn cut(disk: &mut impl Disk, name: &str, bytes: u64) -> Result<(), DiskError> {
    if disk.len(name)? > bytes {
        disk.truncate(name, bytes)?;
    }
    let synced = disk.sync(name);
    disk.close(name);
    match synced {
        Err(error) if error.kind != DiskErrorKind::Full => Err(error),
        _ => Ok(()),
    }
}

/// Makes a copy of a file's first bytes, and brings it to the disk.
fn copy_synced(disk: &mut impl Disk, from: &str, bytes: u64, to: &str) -> Result<(), DiskError> {
    disk.remove_if_there(to)?;
    disk.create(to)?;
    let (mut at, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    while at < bytes {
        let want = (bytes - at).min(CHUNK_BYTES as u64) as usize;
        disk.read_all(from, at, &mut chunk[..want])?;
        disk.append(to, &chunk[..want])?;
        at += want as u64;
    }
    disk.sync(to)
}

/// Whether a file is such a copy that was not finished.
pub(super) fn is_copy(name: &str) -> bool {
    name.strip_suffix(COPY).is_some_and(|name| lsn_in_name(name, "log-", ".fpl").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::memory_disk::MemoryDisk;
    use crate::durability::snapshot::remove_temporary;

    const NAME: &str = "log-0000000000000001.fpl";

    fn read(disk: &MemoryDisk, name: &str) -> Option<Vec<u8>> {
        let mut bytes = vec![0; disk.len(name).ok()? as usize];
        disk.read(name, 0, &mut bytes).ok()?;
        Some(bytes)
    }

    /// A file whose sync has failed, of which the disk has nothing: what is read of it.
    fn failed(seed: u64) -> (MemoryDisk, Vec<u8>) {
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES as u32 / 2).map(|i| (i * 7) as u8).collect();
        let mut disk = MemoryDisk::new(seed);
        disk.create(NAME).and_then(|()| disk.sync_dir()).expect("a disk");
        disk.append(NAME, &bytes).expect("room");
        disk.fail_syncs(1);
        disk.sync(NAME).expect_err("it fails");
        (disk, bytes)
    }

    /// What is read of it afterwards is on the disk, however often that fails before.
    #[test]
    fn a_file_whose_sync_failed_is_on_the_disk_once_it_is_written_anew() {
        for failing in 0..3 {
            for seed in 0..8 {
                let (mut disk, bytes) = failed(seed);
                let len = bytes.len() as u64 - 9;
                match failing {
                    0 => disk.fail_syncs(1),
                    1 => disk.fail_appends(1),
                    _ => {}
                }
                assert_eq!(write_anew(&mut disk, NAME, len).is_err(), failing < 2);
                disk = disk.restart();
                remove_temporary(&mut disk).expect("a disk that works");
                assert_eq!(write_anew(&mut disk, NAME, len).ok(), Some(()));
                assert_eq!(disk.list().expect("a folder").len(), 1, "{failing} {seed}");
                let cut = Some(&bytes[..len as usize]);
                assert_eq!(read(&disk.crash(), NAME).as_deref(), cut, "{failing} {seed}");
            }
        }
    }

    #[test]
    fn without_room_for_a_copy_a_file_can_be_cut() {
        let (mut disk, bytes) = failed(1);
        disk.fill_up_after(100);
        let error = write_anew(&mut disk, NAME, 4096).expect_err("no room");
        assert_eq!(error.kind, DiskErrorKind::Full);
        cut(&mut disk, NAME, 4096).expect("a disk");
        assert_eq!(read(&disk, NAME).as_deref(), Some(&bytes[..4096]));
        assert_eq!(disk.list().expect("a folder").len(), 1);
    }
}
