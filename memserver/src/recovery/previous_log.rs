//! The remains in an ended process's recovery area, for a start that does not go on with its
//! region.

use std::sync::Arc;

use fpcache_fabric::{FileIdentity, NodeMemory};
use tracing::warn;

use super::RecoverError;
use crate::boot::UNKNOWN_BOOT;
use crate::durability::{
    Disk, Drain, LogOptions, LogReader, Lsn, NewerSnapshot as Newer, OpenError, ReadLimit, RecoveryError,
    SnapshotReader, Staging, StagingError, damaged_has_after, has_all_of_files, newer_snapshot_than,
    newest_snapshot,
};
use crate::recovery_area::{Identity, PreviousLog, RecoveryArea, UnreadableIdentity};
use crate::startup::Startup;

/// Brings to the disk what the recovery area in this file has of the log alone, for a new one takes
/// its place: from there it is read with the rest. Makes sure before that the disk has what had
/// been brought there. Leaves the disk alone where it has all.
///
/// # Errors
/// Entries of the log are missing, or cannot be read; or some are in the recovery area alone, and
/// the disk does not take them.
pub fn sync_previous_log<M: NodeMemory, D: Disk + Clone>(
    recovery_area: &Arc<M>,
    file: FileIdentity,
    disk: &D,
    startup: &Startup,
) -> Result<PreviousLog, RecoverError> {
    let recovery_area = RecoveryArea::over(Arc::clone(recovery_area), startup.ring_bytes);
    let Some(identity) = recovery_area.identity()? else {
        return match recovery_area.unreadable()? {
            Some((why, identity)) => unreadable(&recovery_area, (why, identity), file, disk, startup),
            // Of a start that ended before it had read all. It has appended nothing to the log.
            None => Ok(recovery_area.left()?),
        };
    };
    if identity.files[1] != file {
        return examine_copy(&recovery_area, &identity, disk);
    }
    let is_known = ![startup.boot, identity.boot].contains(&UNKNOWN_BOOT);
    let is_of_this_start = is_known && identity.boot == startup.boot;
    let (ring, ring_bytes) = recovery_area.ring();
    let noted = match Staging::noted_in(Arc::clone(recovery_area.memory()), ring, ring_bytes) {
        Ok(noted) if noted.lineage == identity.lineage => noted,
        // In this start of the machine it may be all there is of the last entries.
        Err(error @ StagingError::Damaged { .. }) if is_of_this_start => return Err(error.into()),
        // Of a start of the machine before, parts of it are older than others.
        _ => return Ok(PreviousLog::default()),
    };
    let found = match synced(disk, &identity, noted.synced) {
        // It tells nothing of another store's.
        Err(RecoverError::Log(RecoveryError::Lineage { .. })) => return Ok(PreviousLog::default()),
        found => found?,
    };
    // Of a log whose files are gone the rest is of no use.
    let is_cut_off = found.files.is_empty() && noted.synced > 0;
    if is_of_this_start && !is_cut_off {
        match Staging::open(Arc::clone(recovery_area.memory()), ring, ring_bytes) {
            Err(StagingError::Damaged { .. }) if found.last >= noted.last => {}
            opened => bring_to_disk(&opened?, found.last, disk, startup)?,
        }
    }
    let is_on_disk = is_known && !is_of_this_start || noted.synced >= found.last;
    Ok(PreviousLog { lost: noted.lost, is_on_disk })
}

/// What the recovery area of this release cannot use has for a start, if the disk has all that its
/// ring has.
fn unreadable<M: NodeMemory, D: Disk + Clone>(
    recovery_area: &RecoveryArea<M>,
    (source, identity): (UnreadableIdentity, Option<Identity>),
    file: FileIdentity,
    disk: &D,
    startup: &Startup,
) -> Result<PreviousLog, RecoverError> {
    let (ring, ring_bytes) = recovery_area.ring();
    let is_copy = identity.is_some_and(|identity| identity.files[1] != file);
    let noted = match Staging::noted_in(Arc::clone(recovery_area.memory()), ring, ring_bytes) {
        Ok(noted) if !is_copy => noted,
        // A copy may be younger than the log. Of a start that ended before its ring was made
        // nothing is missed.
        _ => return Ok(PreviousLog::default()),
    };
    // After the machine's end parts of it are older than others, and what was not synced may be
    // gone.
    let boots = identity.map_or([UNKNOWN_BOOT; 2], |identity| [identity.boot, startup.boot]);
    let has_crashed = !boots.contains(&UNKNOWN_BOOT) && boots[0] != boots[1];
    let last = if has_crashed { noted.synced } else { noted.last };
    let found = match LogReader::look(disk, Some(noted.lineage), ReadLimit::Whole) {
        // It tells nothing of another store's.
        Err(RecoveryError::Lineage { .. }) => return Ok(PreviousLog::default()),
        found => found?,
    };
    let on_disk = last_on_disk(disk, noted.lineage, &found, last)?;
    if on_disk < last {
        return Err(RecoverError::UnreadableNotes { first: on_disk + 1, last, source });
    }
    Ok(PreviousLog { lost: noted.lost, is_on_disk: false })
}

/// What a start has to know by a recovery area that was copied, or lies in a file system that was
/// mounted anew. Says which entries only this has, which are gone with it, or were on the disk: the
/// process of a copy may have gone on meanwhile, so that it is younger than the log that was copied
/// before it.
///
/// # Errors
/// The log's files lack some, and the process had ended before they were copied.
fn examine_copy<M: NodeMemory, D: Disk + Clone>(
    recovery_area: &RecoveryArea<M>,
    identity: &Identity,
    disk: &D,
) -> Result<PreviousLog, RecoverError> {
    let (ring, ring_bytes) = recovery_area.ring();
    let noted = match Staging::noted_in(Arc::clone(recovery_area.memory()), ring, ring_bytes) {
        Ok(noted) if noted.lineage == identity.lineage => noted,
        _ => return Ok(PreviousLog::default()),
    };
    let left = PreviousLog { lost: noted.lost, is_on_disk: false };
    if recovery_area.has_ended()? {
        return match synced(disk, identity, noted.synced) {
            Err(RecoverError::Log(RecoveryError::Lineage { .. })) => Ok(PreviousLog::default()),
            found => found.map(|_| left),
        };
    }
    // What is wrong with the files is said when they are read.
    let Ok(found) = LogReader::look(disk, Some(identity.lineage), ReadLimit::Whole) else {
        return Ok(left);
    };
    let newest = newest_snapshot(disk, Some(identity.lineage))?;
    let last = found.last.max(newest.map_or(0, |newest| newest.first_lsn.saturating_sub(1)));
    if last < noted.last {
        warn!(
            "the recovery area (notes.fpn), which is a copy or in a file system that was mounted anew, is not gone on with: it \
             has entries up to {} of the log, of which those up to {} were on the disk, but the log's files end with {last}: \
             writes from LSN {} on are missing, as in a copy that was taken while the memory node ran; restore the missing log \
             files if there are any",
            noted.last,
            noted.synced,
            last + 1
        );
    }
    Ok(left)
}

/// The last entry that the log's files have, or the newest snapshot, which is looked at if they end
/// before `wanted`.
fn last_on_disk<D: Disk + Clone>(
    disk: &D,
    lineage: u64,
    found: &LogReader,
    wanted: Lsn,
) -> Result<Lsn, RecoverError> {
    if found.last >= wanted {
        return Ok(found.last);
    }
    let (snapshot, _) = SnapshotReader::newest(&mut disk.clone(), Some(lineage))?;
    let before = snapshot.map_or(0, |snapshot| snapshot.info().first_lsn.saturating_sub(1));
    Ok(found.last.max(before))
}

/// What the log's files have, if that is all up to the entry `synced`, or a snapshot makes up for
/// it.
fn synced<D: Disk + Clone>(disk: &D, identity: &Identity, synced: Lsn) -> Result<LogReader, RecoverError> {
    let found = LogReader::look(disk, Some(identity.lineage), ReadLimit::End { synced })?;
    let last = last_on_disk(disk, identity.lineage, &found, synced)?;
    match &found.unusable {
        _ if last >= synced => Ok(found),
        Some(error) => Err(error.clone().into()),
        None => Err(RecoverError::SyncedMissing { last, synced }),
    }
}

/// Brings what a ring has and the disk may not to the disk, whose files have entries up to
/// `in_files`.
fn bring_to_disk<M: NodeMemory, D: Disk + Clone>(
    staging: &Staging<M>,
    in_files: Lsn,
    disk: &D,
    startup: &Startup,
) -> Result<(), RecoverError> {
    let (synced, last) = (staging.synced_lsn()?, staging.last_lsn());
    // A ring that is older than the files, or than a snapshot, replaces nothing in them.
    if synced >= last
        || in_files > last
        || newer_snapshot_than(disk, staging.lineage(), last)?.is_some_and(|newer| newer.usable > last)
    {
        return Ok(());
    }
    let brought = if in_files == last {
        // Read, they may be in the operating system's memory alone.
        LogReader::open(&mut disk.clone(), Some(staging.lineage())).map(drop).map_err(OpenError::from)
    } else {
        let options = LogOptions { sync: startup.sync, ..LogOptions::default() };
        let drain = Drain::open(staging, disk.clone(), options);
        drain.and_then(|mut drain| drain.finish(startup.now).map(drop).map_err(OpenError::from))
    };
    match brought {
        Err(source @ (OpenError::Recovery(RecoveryError::Disk(_)) | OpenError::Log(_))) => {
            Err(RecoverError::OnlyInRing { first: synced + 1, last, source })
        }
        brought => Ok(brought?),
    }
}

/// Why the disk says that memory is older than it is, if it does: the log's files have entries after
/// the ring's last, or a snapshot does, or the last file was begun later. Reads the log's last file,
/// twice if the disk fails, and the newest snapshot's header and footer; all of it where it is newer.
///
/// # Errors
/// That file cannot be read, and nothing else proves that memory is not older; or entries are gone
/// that the log's files alone had.
pub(crate) fn is_behind<M: NodeMemory, D: Disk>(
    recovery_area: &RecoveryArea<M>,
    identity: &Identity,
    disk: &D,
) -> Result<Option<String>, RecoverError> {
    let (ring, ring_bytes) = recovery_area.ring();
    // Recovery that goes on with one that is not whole says so, likewise for the log.
    let Ok(staging) = Staging::open(Arc::clone(recovery_area.memory()), ring, ring_bytes) else {
        return Ok(None);
    };
    let last = staging.last_lsn();
    let (applied, freed) = (recovery_area.applied()?.0, staging.freed_lsn()?);
    let newer = newer_snapshot_than(disk, identity.lineage, last)?;
    let look = || look_after(disk, identity.lineage, last);
    let found = match look() {
        Err(RecoveryError::Disk(_)) => look(),
        looked => looked,
    };
    let older = |what: String| {
        Ok(Some(format!(
            "it ends with entry {last} of the log, {what}, so it is older than they are, as after a file system that went away and \
             came back"
        )))
    };
    match (found, newer) {
        (Ok((_, in_files)), _) if in_files > last => older(format!("whose files have entry {in_files}")),
        (Err(RecoveryError::Disk(source)), Some(Newer { first, bad, .. })) => {
            let unusable = bad.map(|why| why.reason());
            Err(RecoverError::LogUnread { last, snapshot: Some(first), unusable, source })
        }
        // The disk has less than what was acknowledged: memory is not given up for it.
        (_, Some(Newer { first, name, bad: Some(why), usable })) => {
            Err(RecoverError::SnapshotUnusable { name, needed: first - 1, last: last.max(usable), why })
        }
        (_, Some(Newer { first, name, .. })) => {
            older(format!("and the snapshot {name} has entries up to {}", first - 1))
        }
        (Err(RecoveryError::Disk(source)), _) if applied < freed => {
            Err(RecoverError::OnlyInLog { first: applied + 1, last: freed, source: Some(source) })
        }
        (Ok((found, _)), _) if applied < freed && lacks(&found, applied + 1, freed) => {
            Err(RecoverError::OnlyInLog { first: applied + 1, last: freed, source: None })
        }
        // A file is begun when the ring has given back all that comes before it.
        (Ok((found, _)), _) if found.files.last().is_some_and(|file| file.first > freed + 1) => {
            older("whose last file was begun later".to_owned())
        }
        (Err(RecoveryError::Disk(source)), _) if !has_all_of_files(&staging, disk) => {
            Err(RecoverError::LogUnread { last, snapshot: None, unusable: None, source })
        }
        (Err(RecoveryError::Disk(error)), _) => {
            warn!("{error}; by its name and length it has nothing that memory lacks, which is gone on with");
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// The log's files, and the last entry that they have, or one after `last`.
fn look_after(disk: &impl Disk, lineage: u64, last: Lsn) -> Result<(LogReader, Lsn), RecoveryError> {
    let found = LogReader::look(disk, Some(lineage), ReadLimit::Whole)?;
    // Those that come after damage are read by nobody, but are proof all the same.
    let after = if found.last > last { None } else { damaged_has_after(disk, &found, last)? };
    let in_files = after.unwrap_or(found.last);
    Ok((found, in_files))
}

/// Whether files are missing that had some of these entries. What is wrong with damaged ones is said
/// when they are read.
fn lacks(found: &LogReader, first: Lsn, last: Lsn) -> bool {
    let is_whole = found.unusable.is_none() && found.half_made.is_none() && found.damaged_at.is_none();
    is_whole && (found.files.is_empty() || found.first > first || found.last < last)
}
