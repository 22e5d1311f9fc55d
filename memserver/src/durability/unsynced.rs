//! A log file whose sync failed when a start relied on it.
//!
//! What such a file is read as may be in the operating system's memory alone, and its next sync may
//! say that all is well. So it gets a name that tells, and the next start copies it to a file of the
//! old name, which is synced, before it reads the log. The name need not outlive the machine: after
//! that, what is read is what is on the disk.

use super::disk::{Disk, DiskError, DiskErrorKind};
use super::names::lsn_in_name;

/// Follows the name of a log file whose sync failed.
const UNSYNCED: &str = ".unsynced";
/// Follows it while the file is copied.
const COPY: &str = ".copy";

/// Bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Notes that a log file's sync failed. The start has failed with that: what can be told of this is
/// told.
pub(super) fn set_aside(disk: &mut impl Disk, name: &str) {
    // Where the folder cannot be changed either, the disk is one that takes nothing more.
    let _ = disk.rename(name, &format!("{name}{UNSYNCED}"));
}

/// Writes log files anew that were set aside.
pub(super) fn put_back(disk: &mut impl Disk) -> Result<(), DiskError> {
    let names = disk.list()?;
    for aside in &names {
        let Some(name) = aside.strip_suffix(UNSYNCED) else { continue };
        if lsn_in_name(name, "log-", ".fpl").is_none() {
            continue;
        }
        // A start may have ended when it had done that: the copy was synced before it got the name.
        if !names.iter().any(|there| there == name) {
            let copy = format!("{name}{COPY}");
            copy_synced(disk, aside, &copy).inspect_err(|_| drop(disk.remove(&copy)))?;
            disk.rename(&copy, name)?;
        }
        disk.sync_dir()?;
        disk.remove(aside)?;
    }
    Ok(())
}

/// Makes a copy of a file, and brings it to the disk.
fn copy_synced(disk: &mut impl Disk, from: &str, to: &str) -> Result<(), DiskError> {
    match disk.remove(to) {
        Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error),
        _ => {}
    }
    disk.create(to)?;
    let (mut at, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    loop {
        let read = disk.read(from, at, &mut chunk)?;
        if read == 0 {
            break;
        }
        disk.append(to, &chunk[..read])?;
        at += read as u64;
    }
    disk.sync(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::memory_disk::MemoryDisk;

    const NAME: &str = "log-0000000000000001.fpl";

    fn read(disk: &MemoryDisk, name: &str) -> Option<Vec<u8>> {
        let mut bytes = vec![0; disk.len(name).ok()? as usize];
        disk.read(name, 0, &mut bytes).ok()?;
        Some(bytes)
    }

    /// What was set aside is put back whole, whenever the machine ends on the way.
    #[test]
    fn a_file_that_is_set_aside_comes_back_however_often_that_fails() {
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES as u32 / 2).map(|i| (i * 7) as u8).collect();
        for failing in 0..4 {
            for seed in 0..8 {
                let mut disk = MemoryDisk::new(seed);
                disk.create(NAME).and_then(|()| disk.append(NAME, &bytes)).expect("room");
                disk.sync(NAME).and_then(|()| disk.sync_dir()).expect("a disk");
                set_aside(&mut disk, NAME);
                match failing {
                    0 => disk.fail_syncs(1),
                    1 => disk.fail_appends(1),
                    2 => disk.fill_up_after(100),
                    _ => {}
                }
                assert_eq!(put_back(&mut disk).is_err(), failing < 3);
                disk.fill_up_after(u64::MAX);
                let mut disk = if seed < 4 { disk.restart() } else { disk.crash() };
                put_back(&mut disk).expect("a disk that works");
                assert_eq!(read(&disk, NAME).as_ref(), Some(&bytes), "{failing} {seed}");
                assert_eq!(disk.list().expect("a folder").len(), 1, "{failing} {seed}");
                assert_eq!(read(&disk.crash(), NAME).as_ref(), Some(&bytes), "{failing} {seed}");
            }
        }
    }
}
