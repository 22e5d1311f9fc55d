//! A durable memory node: the places of its files, and how it starts.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::{FileIdentity, MemoryError, NodeMemory, SharedMemory, Waker};
use tracing::warn;

use crate::budget::Grant;
use crate::damaged_records::LeftOut;
use crate::dedup::DedupSessions;
use crate::durability::{self, Disk, Drain, LogOptions, Lsn, Staging, SyncPolicy};
use crate::lease::Lease;
use crate::node::MemoryNode;
use crate::recovery::{Origin, RecoverError, Recovery, cold, previous_log, warm};
use crate::recovery_area::{Identity, RecoveryArea};
use crate::wal::Wal;
use crate::wal::background::{
    Draining, InlineDrain, InlineSnapshots, Snapshots, ThreadDrain, ThreadSnapshots,
};

pub use crate::boot::{UNKNOWN_BOOT, boot_id};
pub use crate::recovery::previous_log::sync_previous_log;
pub use crate::recovery_area::{PreviousLog, recovery_area_bytes};
pub use crate::startup::Startup;

/// Bytes of the log's staging ring.
pub const RING_BYTES: u64 = 16 << 20;

/// Who brings log and snapshots to the disk.
#[derive(Debug)]
pub enum Background {
    /// The memory node's own thread, step by step: for simulated worlds.
    Inline,
    /// Threads, which wake the memory node's loop.
    Threads(Waker),
}

impl Background {
    fn waker(&self) -> Option<Waker> {
        match self {
            Self::Inline => None,
            Self::Threads(waker) => Some(waker.clone()),
        }
    }
}

/// Memory of a memory node: its region, and its recovery area, which no client sees.
#[derive(Debug)]
pub struct Memories<M> {
    /// The region.
    pub region: Arc<M>,
    /// [`recovery_area_bytes`] of memory.
    pub recovery_area: Arc<M>,
    /// What of the region may be used.
    pub grant: Arc<Grant>,
    /// The files that region and recovery area lie in; zeros where they are no files.
    pub files: [FileIdentity; 2],
    /// How long readers may believe what they know of memory's reuse.
    pub lease: Lease,
}

impl<M: NodeMemory> Memories<M> {
    /// A region that may be used whole, and a recovery area.
    pub fn new(region: Arc<M>, recovery_area: Arc<M>) -> Self {
        let grant = Grant::whole(region.len());
        Self { region, recovery_area, grant, files: Default::default(), lease: Lease::default() }
    }

    /// The same, whose readers have a lease.
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        Self { lease, ..self }
    }

    /// The same, where the region may be used up to `limit` in ordinary life.
    #[must_use]
    pub fn limited(self, limit: u64) -> Self {
        Self { grant: Grant::limited(self.region.len(), limit), ..self }
    }
}

impl Memories<SharedMemory> {
    /// Memory that may lie in files, and may be used whole.
    ///
    /// # Errors
    /// A file cannot be examined.
    pub fn of_files(
        region: Arc<SharedMemory>,
        recovery_area: Arc<SharedMemory>,
    ) -> Result<Self, MemoryError> {
        let file = |memory: &SharedMemory| memory.file_identity().map(Option::unwrap_or_default);
        let files = [file(&region)?, file(&recovery_area)?];
        Ok(Self { files, ..Self::new(region, recovery_area) })
    }
}

/// Bytes of a region to restore a table in that had at most `limit` while it lived. Its records lie
/// otherwise than they did, in segments that are less full, or have more room for those to come; a
/// sparse file costs nothing for what is not used.
pub fn bytes_to_restore(limit: u64) -> u64 {
    const LEAST: u64 = 4 << 20;
    limit.saturating_mul(3).saturating_add(LEAST)
}

/// Bytes that may be used of a region in ordinary life, as its recovery area has it.
pub(crate) fn limit_in<M: NodeMemory>(recovery_area: &Arc<M>) -> u64 {
    let identity = RecoveryArea::over(Arc::clone(recovery_area), RING_BYTES).identity();
    identity.ok().flatten().map_or(u64::MAX, |identity| identity.limit)
}

/// Whether there is a snapshot to restore a table from.
pub(crate) fn holds_snapshot<D: Disk>(disk: &D) -> Result<bool, durability::DiskError> {
    Ok(durability::newest_snapshot(disk, None)?.is_some())
}

/// Whether there are files of a log, as every table has them that was made.
pub(crate) fn holds_log<D: Disk>(disk: &D) -> Result<bool, durability::DiskError> {
    Ok(durability::log_begins(disk)?.is_some())
}

/// About how many bytes of snapshot and log a table is restored from.
pub(crate) fn bytes_to_read<D: Disk>(disk: &D) -> Result<u64, durability::DiskError> {
    let Some(newest) = durability::newest_snapshot(disk, None)? else { return Ok(0) };
    Ok(newest.bytes + durability::log_bytes_from(disk, newest.first_lsn, Lsn::MAX)?)
}

/// Why the memory of an ended process cannot be used, in words; `None` if it can. Reads the log's
/// last file, twice if the disk fails.
///
/// # Errors
/// That file cannot be read, and memory may lack some of it; or entries that memory lacks are gone.
pub fn why_unusable<M: NodeMemory, D: Disk>(
    memories: &Memories<M>,
    disk: &D,
    startup: &Startup,
) -> Result<Option<String>, RecoverError> {
    let recovery_area = RecoveryArea::over(Arc::clone(&memories.recovery_area), startup.ring_bytes);
    match warm::examine(&*memories.region, &recovery_area, startup.boot, memories.files) {
        Ok(identity) => previous_log::is_behind(&recovery_area, &identity, disk),
        Err(why) => Ok(Some(why)),
    }
}

/// Goes on with the memory of a process that has ended, of which [`why_unusable`] says nothing.
///
/// # Errors
/// What in it contradicts itself.
pub fn resume<K: BuildKeys, M: NodeMemory, D: Disk + Clone + 'static>(
    memories: Memories<M>,
    mut disk: D,
    startup: &Startup,
    background: Background,
) -> Result<(MemoryNode<K, M>, Recovery), RecoverError> {
    let began = Instant::now();
    let Memories { region, recovery_area, grant, lease, .. } = memories;
    let recovery_area = RecoveryArea::over(recovery_area, startup.ring_bytes);
    durability::remove_unfinished(&mut disk)?;
    let identity = recovery_area.identity()?.ok_or(RecoverError::Misfit { lsn: 0 })?;
    let (ring, ring_bytes) = recovery_area.ring();
    let staging = Staging::open(Arc::clone(recovery_area.memory()), ring, ring_bytes)?;
    let (applied, _) = recovery_area.applied()?;
    let drain = sync_before_seen(&staging, &disk, startup, applied)?;
    let (incarnation, node) = (startup.incarnation, startup.node);
    let memory = (region, grant, lease);
    let found =
        warm::adopt_region::<K, M, D>(memory, recovery_area, &identity, incarnation, node, &staging, &disk)?;
    let origin = Origin::Memory { redone: found.redo.redone, finished_change: found.finished_change };
    let Some(recovery_area) = found.state.superblock().recovery_area.clone() else {
        return Err(RecoverError::Misfit { lsn: 0 });
    };
    let waker = background.waker();
    let drain = drain.map_or_else(|| open_drain(&staging, &disk, startup, found.redo.applied), Ok)?;
    let newest =
        durability::newest_snapshot_or_warn(&disk, staging.lineage())?.map(|newest| newest.first_lsn);
    // One that could be read only now may be of a later time.
    let newest = newest.filter(|newest| *newest <= staging.last_lsn() + 1);
    // The log does not follow it where its first files are gone or cannot be used, or entries were
    // lost since.
    let follows = newest.is_some_and(|newest| drain.begins() <= newest);
    let wal = wal(recovery_area, staging, drain, disk, startup, background, newest)?;
    let has_snapshot = follows && !wal.has_lost();
    let mut sessions = found.redo.sessions;
    // The recovery area has them.
    sessions.evict_all();
    let left_out = LeftOut::noted(wal.recovery_area.memory())?;
    let mut node = MemoryNode::over(found.state, node, sessions, Some(wal), startup.now);
    node.left_out = left_out;
    node.waker = waker;
    node.has_snapshot = has_snapshot;
    if !follows && node.state.table().is_some() {
        warn!(
            "there is no snapshot that its log follows: writes are refused until one is written, which begins now"
        );
    }
    node.redone = node.wal.as_ref().map_or(0, |wal| wal.staging.last_lsn());
    let recovery = Recovery { origin, keys: node.stats().keys, took: began.elapsed() };
    Ok((node, recovery))
}

/// With `--fsync always`, brings what was staged to the disk before any of it is done again: who
/// reads the region must not see what the end of the machine undoes. The drain that did it, if
/// there was any.
///
/// # Errors
/// The disk does not take it. The ring keeps it for the next start.
fn sync_before_seen<M: NodeMemory, D: Disk + Clone>(
    staging: &Staging<M>,
    disk: &D,
    startup: &Startup,
    applied: Lsn,
) -> Result<Option<Drain<M, D>>, RecoverError> {
    let Startup { sync, now, .. } = *startup;
    let (first, last) = (staging.readable_lsn()? + 1, staging.last_lsn());
    if sync != SyncPolicy::Always || first > last {
        return Ok(None);
    }
    let mut drain = open_drain(staging, disk, startup, applied)?;
    match drain.finish(now) {
        Err(source) if source.is_full() => Err(RecoverError::NotOnDisk { first, last, source }),
        Err(error) => Err(durability::OpenError::from(error).into()),
        Ok(_) => Ok(Some(drain)),
    }
}

fn open_drain<M: NodeMemory, D: Disk + Clone>(
    staging: &Staging<M>,
    disk: &D,
    startup: &Startup,
    applied: Lsn,
) -> Result<Drain<M, D>, RecoverError> {
    let options = LogOptions { sync: startup.sync, ..LogOptions::default() };
    Ok(Drain::open_after(staging, disk.clone(), options, applied)?)
}

/// Begins with empty memory: with what the disk holds, or with nothing.
///
/// # Errors
/// What on the disk is not whole.
pub fn restore<K: BuildKeys, M: NodeMemory, D: Disk + Clone + 'static>(
    memories: Memories<M>,
    mut disk: D,
    startup: &Startup,
    background: Background,
    why: Option<String>,
) -> Result<(MemoryNode<K, M>, Recovery), RecoverError> {
    let began = Instant::now();
    let Memories { region, recovery_area, grant, files, lease } = memories;
    let recovery_area = RecoveryArea::over(recovery_area, startup.ring_bytes);
    let limit = grant.limit();
    let node = MemoryNode::within(region, grant, startup.incarnation, startup.node, startup.now)?;
    let mut node = node.with_lease(lease);
    let left = recovery_area.left()?;
    let mut from = cold::fill(&mut node, &mut disk)?;
    if let Origin::Disk { why: reason, .. } = &mut from.origin {
        *reason = why;
    }
    let lineage = from.lineage.unwrap_or(startup.lineage);
    let (ring, ring_bytes) = recovery_area.ring();
    let staging = Staging::create(Arc::clone(recovery_area.memory()), ring, ring_bytes, lineage, from.last)?;
    // Entries that the end of the machine may take although they were read: what comes after them
    // does not count before there is a snapshot. Where the disk has fewer, those it lost are gone
    // already.
    let is_unsure = from.is_unsure && !left.is_on_disk;
    let lost = if is_unsure { from.last } else { left.lost.min(from.last) };
    staging.note_lost(lost)?;
    recovery_area.set_applied(from.last, node.next_version())?;
    if let Some(record) = node.state.superblock().current().table {
        recovery_area.set_record::<K>(&record)?;
    }
    let (boot, incarnation) = (startup.boot, startup.incarnation);
    // What a snapshot is without, the memory that is filled from it lacks, too.
    LeftOut::default().note(recovery_area.memory())?;
    recovery_area.begin(&Identity { boot, lineage, incarnation, before: incarnation, files, limit })?;
    node.state.superblock_mut().recovery_area = Some(recovery_area.clone());
    node.waker = background.waker();
    let drain = open_drain(&staging, &disk, startup, 0)?;
    let wal = wal(recovery_area, staging, drain, disk, startup, background, from.snapshot)?;
    if matches!(from.origin, Origin::Disk { .. }) {
        node.has_snapshot = !wal.has_lost();
        node.sessions = DedupSessions::inherited();
    }
    node.wal = Some(wal);
    let recovery = Recovery { origin: from.origin, keys: node.stats().keys, took: began.elapsed() };
    Ok((node, recovery))
}

fn wal<M: NodeMemory, D: Disk + Clone + 'static>(
    recovery_area: RecoveryArea<M>,
    staging: Staging<M>,
    mut drain: Drain<M, D>,
    disk: D,
    startup: &Startup,
    background: Background,
    newest: Option<Lsn>,
) -> Result<Wal<M>, RecoverError> {
    let Startup { sync, now, .. } = *startup;
    // Lives that are each too short for a snapshot are together long enough for one.
    let since_snapshot = durability::log_bytes_from(&disk, newest.unwrap_or(0), staging.last_lsn() + 1)?;
    // What the process before had brought to the disk is there again before any client is served. A
    // full disk keeps no client from reading: until it has room, what was staged stays in the ring,
    // and writes are refused.
    match drain.finish(now) {
        Err(error) if !error.is_full() => return Err(durability::OpenError::from(error).into()),
        _ => {}
    }
    let (draining, snapshots): (Box<dyn Draining>, Box<dyn Snapshots>) = match background {
        Background::Inline => (Box::new(InlineDrain::new(drain)), Box::new(InlineSnapshots::new(disk))),
        Background::Threads(waker) => (
            Box::new(ThreadDrain::spawn(drain, waker).map_err(RecoverError::Thread)?),
            Box::new(ThreadSnapshots::new(disk)),
        ),
    };
    Ok(Wal::new(recovery_area, staging, sync, draining, snapshots).going_on_from(newest, since_snapshot))
}
