//! The snapshots on a disk: the newest one, room for another, removal of the oldest.

use super::disk::{Disk, DiskError};
use super::lsn::Lsn;
use super::names::list_logs;
use super::snapshot::{SnapshotError, SnapshotInfo, list_snapshots};
use super::snapshot_reader::{BadSnapshot, SnapshotReader};
use tracing::warn;

/// The newest snapshot of the store of `lineage` (`None`: of any) with a good header and footer.
/// Costs three short reads per snapshot that is looked at.
pub(crate) fn newest_whole(
    disk: &impl Disk,
    lineage: Option<u64>,
) -> Result<Option<SnapshotInfo>, DiskError> {
    let mut snapshots = list_snapshots(disk)?.into_iter().rev();
    Ok(snapshots.find_map(|(first, name)| whole(disk, &name, first, lineage).ok()))
}

/// As [`newest_whole`], for a start, which tells of every newer one why it does not count.
pub(crate) fn newest_or_warn(disk: &impl Disk, lineage: u64) -> Result<Option<SnapshotInfo>, DiskError> {
    let mut snapshots = list_snapshots(disk)?.into_iter().rev();
    Ok(snapshots.find_map(|(first, name)| {
        let found = whole(disk, &name, first, Some(lineage));
        found.inspect_err(|why| warn!("{why}; the memory of the previous process is gone on with")).ok()
    }))
}

/// The newest snapshot of the store of `lineage`, by name alone where it is damaged or cannot be
/// read: none gets its name before it is whole, and the log on the disk up to where it begins.
pub(crate) fn newest_named(disk: &impl Disk, lineage: u64) -> Result<Option<(Lsn, String)>, DiskError> {
    let mut snapshots = list_snapshots(disk)?.into_iter().rev();
    Ok(snapshots.find_map(|(first, name)| match SnapshotReader::open(disk, &name, Some(lineage)) {
        Ok(reader) => Some((reader.info().first_lsn, name)),
        Err(BadSnapshot::Lineage { .. }) => None,
        Err(_) => Some((first, name)),
    }))
}

/// A snapshot with entries after those of memory.
pub(crate) struct Newer {
    /// The first entry of the log that it may lack.
    pub(crate) first: Lsn,
    pub(crate) name: String,
    /// Why it cannot be used, if it cannot.
    pub(crate) bad: Option<BadSnapshot>,
    /// The last entry that is sure to be in one that can be used; 0 without one.
    pub(crate) usable: Lsn,
}

/// The [newest snapshot](newest_named) of the store, where it has entries after `last`. Reads it
/// through then, and older ones if it cannot be used.
pub(crate) fn newer_than(disk: &impl Disk, lineage: u64, last: Lsn) -> Result<Option<Newer>, DiskError> {
    let newest = newest_named(disk, lineage)?.filter(|(first, _)| *first > last + 1);
    let Some((first, name)) = newest else { return Ok(None) };
    let (usable, skipped) = SnapshotReader::newest_in(disk, Some(lineage))?;
    let usable = usable.map_or(0, |usable| usable.info().first_lsn.saturating_sub(1));
    let bad = skipped.into_iter().find_map(|(skipped, why)| (skipped == name).then_some(why));
    Ok(Some(Newer { first, name, bad, usable }))
}

/// What a snapshot is, if its header and footer can be read, are good and belong to its name.
fn whole(
    disk: &impl Disk,
    name: &str,
    first: Lsn,
    lineage: Option<u64>,
) -> Result<SnapshotInfo, BadSnapshot> {
    let info = SnapshotReader::open(disk, name, lineage)?.info().clone();
    if info.first_lsn == first {
        return Ok(info);
    }
    let why = "it does not begin where its name says";
    Err(BadSnapshot::Damaged { file: info.name, offset: 0, why })
}

/// What a snapshot will have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// A number of records, and the bytes that they take at most, about.
    About { records: u64, bytes: u64 },
    /// Records that take this many bytes at least. Where nothing else can be done before there is a
    /// snapshot, it is tried if it may fit.
    AtLeast(u64),
}

/// Whether a snapshot is likely to fit, with some room for the log meanwhile; or may fit, where
/// that is enough: one that cannot takes room that others need, until the disk is full. Of what the
/// records take at most, and what as many took in the newest snapshot, the lesser counts: records
/// of one table vary in length, and a table that never gets another snapshot is worse off than one
/// whose snapshot fails.
///
/// # Errors
/// It is not.
pub(crate) fn has_room(disk: &impl Disk, expected: Expected) -> Result<(), SnapshotError> {
    /// Left for the log in any case, and as a share of the snapshot.
    const MARGIN: (u64, u64) = (4 * 4096, 64);
    let needed = match expected {
        Expected::AtLeast(bytes) => bytes,
        Expected::About { records, bytes } => {
            let newest = newest_whole(disk, None)?.filter(|newest| newest.records > 0);
            let Some(newest) = newest else { return Ok(()) };
            let as_newest = u128::from(newest.bytes) * u128::from(records) / u128::from(newest.records);
            let bytes = u64::try_from(as_newest).unwrap_or(u64::MAX).min(bytes);
            bytes.saturating_add(bytes / MARGIN.1).saturating_add(MARGIN.0)
        }
    };
    match disk.room()? {
        Some(room) if room < needed => Err(SnapshotError::NoRoom { needed, room }),
        _ => Ok(()),
    }
}

/// Removes all snapshots but the newest `keep` (at least one) of the store of `lineage`, and the
/// log files that end before the first LSN of the oldest one kept. Snapshots whose header or footer
/// is damaged, or cannot be read, do not count as kept, nor those of another store or with another
/// layout, and are left for someone to examine them. The last log file stays always.
///
/// # Errors
/// If the disk refuses; what is left is a store as good as before.
pub fn prune(disk: &mut impl Disk, lineage: u64, keep: usize) -> Result<(), DiskError> {
    let mut kept = 0;
    let mut oldest = None;
    for (first, name) in list_snapshots(disk)?.into_iter().rev() {
        if kept < keep.max(1) {
            if whole(disk, &name, first, Some(lineage)).is_ok() {
                kept += 1;
                oldest = Some(first);
            }
        } else {
            disk.remove(&name)?;
        }
    }
    let Some(oldest) = oldest else { return Ok(()) };
    // Log files go last and from the oldest on: a crash amid this leaves no snapshot without its
    // log, and no gap.
    disk.sync_dir()?;
    let logs = list_logs(disk)?;
    for pair in logs.windows(2) {
        if pair[1].0 > oldest {
            break;
        }
        disk.remove(&pair[0].1)?;
    }
    disk.sync_dir()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::SnapshotWriter;
    use super::*;
    use crate::durability::memory_disk::MemoryDisk;

    /// It was taken to need as much for each record as those of the newest snapshot took.
    #[test]
    fn a_table_whose_records_became_shorter_gets_another_snapshot() {
        let disk = MemoryDisk::new(1);
        let mut writer = SnapshotWriter::begin(disk.clone(), 1, b"", 1).expect("a disk");
        (0..10).for_each(|_| writer.push(&[7; 100_000]).expect("room"));
        writer.finish(1).expect("room");
        let fits = |records, bytes| has_room(&disk, Expected::About { records, bytes });
        disk.fill_up_after(2 << 20);
        fits(50_000, 50_000 * 32).expect("it fits");
        fits(20, 20 << 20).expect("by the newest it fits");
        assert!(matches!(fits(50_000, 50_000 * 64), Err(SnapshotError::NoRoom { .. })));
        // What fits with little to spare.
        fits(u64::MAX, (2 << 20) - (64 << 10)).expect("it fits");
    }
}
