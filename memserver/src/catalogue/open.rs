//! The memory node of a table at start-up: empty, or recovered from its folder.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use fpcache::TableName;
use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, U64Keys};
use fpcache::layout::REUSE_OFFSET;
use fpcache_fabric::{
    Access, Export, FileAt, HugePages, MemoryError, SharedMemory, SystemClock, Waker, random_bits,
};
use tracing::info;

use super::answering::{Follower, answering};
use super::descriptor::TableDescriptor;
use super::error::TableOpenError;
use super::folders::TableFolder;
use super::hosted::{Hosted, HostedTable};
use crate::budget::{Budget, Denied, Grant};
use crate::capacity::MIN_CAPACITY;
use crate::dedup::KeptReplies;
use crate::durability::{FileDisk, SyncPolicy};
use crate::huge_page_merger::PageMerger;
use crate::lease::Lease;
use crate::node::MemoryNode;
use crate::recovery::{RecoverError, Recovery};
use crate::request_memory::Transit;
use crate::store::{self, Background, Memories, PreviousLog, Startup};

/// What all tables of a memory node begin with.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) budget: Arc<Budget>,
    pub(crate) huge_pages: HugePages,
    /// What merges pages, where that is wanted.
    pub(crate) merger: Option<Arc<PageMerger>>,
    /// When writes reach the disk, where there is one.
    pub(crate) sync: SyncPolicy,
    /// For how long readers by network cards may believe what they know of memory's reuse.
    pub(crate) lease: Duration,
    /// What tables keep of requests and replies.
    pub(crate) transit: Transit,
    /// What they keep of replies.
    pub(crate) kept_replies: KeptReplies,
    /// What keeps their views of themselves up to date.
    pub(crate) follower: Follower,
}

impl Opening {
    /// A table whose data end with the process, or which lies in these folders.
    pub(crate) fn open(
        &self,
        name: TableName,
        descriptor: &TableDescriptor,
        folders: Option<&TableFolder>,
        waker: Waker,
    ) -> Result<HostedTable, TableOpenError> {
        match descriptor.kind {
            KeyKind::U64 => self.open_for::<U64Keys>(name, descriptor, folders, waker),
            KeyKind::Bytes => self.open_for::<ByteKeys>(name, descriptor, folders, waker),
        }
    }

    fn open_for<K: BuildKeys>(
        &self,
        name: TableName,
        descriptor: &TableDescriptor,
        folders: Option<&TableFolder>,
        waker: Waker,
    ) -> Result<HostedTable, TableOpenError> {
        let incarnation = new_incarnation();
        let StartedTable { node, fd, recovery } = match folders {
            None => self.in_memory::<K>(descriptor, incarnation)?,
            Some(folders) => self.durable::<K>(descriptor, folders, incarnation, waker.clone())?,
        };
        let creation = descriptor.creation;
        let export =
            Export::new(node.region(), fd, incarnation)?.with_creation(creation).with_watched(REUSE_OFFSET);
        let export = export.with_lease(self.lease);
        let export = answering::<K>(export, &self.follower);
        let node: Box<dyn Hosted> =
            Box::new(node.with_creation(creation).beside(&self.transit, &self.kept_replies));
        Ok(HostedTable {
            name,
            kind: descriptor.kind,
            node,
            export,
            waker,
            recovery,
            descriptors: None,
            map: None,
        })
    }

    pub(super) fn lease(&self) -> Lease {
        Lease::new(self.lease, Arc::new(SystemClock))
    }

    /// Bytes that a new region spans. One in huge pages has all of them from the start.
    fn span(&self, descriptor: &TableDescriptor) -> u64 {
        const HUGE_PAGE: u64 = 2 << 20;
        let most = match self.huge_pages {
            HugePages::No | HugePages::Merged => self.budget.bytes(),
            HugePages::IfAvailable | HugePages::Required => self.budget.left() / HUGE_PAGE * HUGE_PAGE,
        };
        descriptor.region_bytes.unwrap_or(most).max(MIN_CAPACITY)
    }

    /// With a region that ends with the process.
    fn in_memory<K: BuildKeys>(
        &self,
        descriptor: &TableDescriptor,
        incarnation: u64,
    ) -> Result<StartedTable<K>, TableOpenError> {
        let capacity = self.span(descriptor);
        let len = usize::try_from(capacity).unwrap_or(usize::MAX);
        let (region, fd) = SharedMemory::create_memfd("fpcache-region", len, self.huge_pages)
            .map_err(|source| TableOpenError::Region { capacity, source })?;
        let region = Arc::new(region);
        let grant = Grant::of(&self.budget, &region, u64::MAX)?;
        if let Some(merger) = &self.merger {
            merger.watch(&region, &grant);
        }
        let node = MemoryNode::within(region, grant, incarnation, 0, Instant::now())?;
        Ok(StartedTable { node: node.with_lease(self.lease()), fd, recovery: None })
    }

    /// From its folders: with the memory of the previous process if possible, else from the disk.
    fn durable<K: BuildKeys>(
        &self,
        descriptor: &TableDescriptor,
        folders: &TableFolder,
        incarnation: u64,
        waker: Waker,
    ) -> Result<StartedTable<K>, TableOpenError> {
        let disk = FileDisk::within(folders.data.clone());
        let startup = Startup {
            sync: self.sync,
            ring_bytes: store::RING_BYTES,
            boot: store::boot_id(),
            incarnation,
            lineage: random_bits()? | 1,
            node: 0,
            now: Instant::now(),
        };
        let background = || Background::Threads(waker.clone());
        let failed = |source: RecoverError| TableOpenError::Recover {
            folder: folders.data.path().to_owned(),
            source: Box::new(source),
        };
        let why = match self.open_memories(folders)? {
            PreviousMemory::Nothing => None,
            PreviousMemory::Unusable(why) => Some(why),
            PreviousMemory::Memories(memories, fd) => {
                let why = store::why_unusable(&memories, &disk, &startup).map_err(failed)?;
                if why.is_none() {
                    let begun = store::resume(memories, disk, &startup, background());
                    let (node, recovery) = begun.map_err(failed)?;
                    return Ok(StartedTable { node, fd, recovery: Some(recovery) });
                }
                why
            }
        };
        let left = match &why {
            None => PreviousLog::default(),
            Some(_) => sync_previous_log(folders, &disk, &startup)?,
        };
        let restores = store::holds_snapshot(&disk)?;
        let was_there = restores || store::holds_log(&disk)?;
        let to_read = store::bytes_to_read(&disk)?;
        if to_read >= WORTH_TELLING {
            tell_reading(folders, to_read);
        }
        let reason = Reason { was_there, restores, left };
        let (memories, fd) = match self.create_memories(self.span(descriptor), folders, reason) {
            // There is no room for a superblock: what the disk holds can be read all the same.
            Err(
                TableOpenError::Denied(Denied::Disk(_))
                | TableOpenError::Region { source: MemoryError::NoSpace { .. }, .. },
            ) if restores => self.create_anonymous_memories(self.span(descriptor), folders, left)?,
            created => created?,
        };
        let grant = Arc::clone(&memories.grant);
        let begun = match store::restore(memories, disk.clone(), &startup, background(), why.clone()) {
            // What the disk holds can be read all the same.
            Err(_) if restores && grant.is_disk_full() => {
                drop((grant, fd));
                let (memories, fd) = self.create_anonymous_memories(self.span(descriptor), folders, left)?;
                store::restore(memories, disk, &startup, background(), why).map(|begun| (begun, fd))
            }
            begun => begun.map(|begun| (begun, fd)),
        };
        let ((node, recovery), fd) = begun.map_err(failed)?;
        if to_read >= WORTH_TELLING {
            info!("the table in {} is read: {recovery}", folders.data.path().display());
        }
        Ok(StartedTable { node, fd, recovery: Some(recovery) })
    }

    /// Region and recovery area of the previous process.
    fn open_memories(&self, folders: &TableFolder) -> Result<PreviousMemory, TableOpenError> {
        let ((region, region_path), (recovery_area, recovery_area_path)) =
            (folders.region_file(), folders.notes_file());
        match folders.has_memories()? {
            (true, true) => {}
            (false, false) => return Ok(PreviousMemory::Nothing),
            (false, true) => {
                return Ok(PreviousMemory::Unusable(format!("{} is missing", region_path.display())));
            }
            (true, false) => {
                return Ok(PreviousMemory::Unusable(format!("{} is missing", recovery_area_path.display())));
            }
        }
        let open = |file: FileAt<'_>| match SharedMemory::open_file(file, Access::ReadWrite) {
            Ok(opened) => Ok(Ok(opened)),
            // That process ended before the file had its size.
            Err(error @ MemoryError::NotMemory { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(TableOpenError::Memory(error)),
        };
        let (recovery_area, (region, fd)) = match (open(recovery_area)?, open(region)?) {
            (Ok((recovery_area, _)), Ok(region)) => (recovery_area, region),
            (Err(why), _) | (_, Err(why)) => return Ok(PreviousMemory::Unusable(why)),
        };
        let (region, recovery_area) = (Arc::new(region), Arc::new(recovery_area));
        let grant = match Grant::resumed(&self.budget, &region, store::limit_in(&recovery_area)) {
            // It has no superblock.
            Err(why @ Denied::Disk(_)) => return Ok(PreviousMemory::Unusable(why.to_string())),
            resumed => resumed?,
        };
        let memories = Memories::of_files(region, recovery_area).map_err(TableOpenError::Memory)?;
        Ok(PreviousMemory::Memories(Memories { grant, ..memories }.with_lease(self.lease()), fd))
    }
}

/// Brings what the recovery area of the previous process has, and the disk may not, to the disk,
/// where its region cannot be used: from there it is read with the rest. The disk must have all
/// that the recovery area says was there, for a new one takes its place.
fn sync_previous_log(
    folders: &TableFolder,
    disk: &FileDisk,
    startup: &Startup,
) -> Result<PreviousLog, TableOpenError> {
    let (file, _) = folders.notes_file();
    let recovery_area = match SharedMemory::open_file(file, Access::ReadWrite) {
        // That process ended before the file had its size, or it is not there.
        Err(MemoryError::NotMemory { .. }) => return Ok(PreviousLog::default()),
        Err(_) if !folders.has_memories()?.1 => return Ok(PreviousLog::default()),
        opened => opened.map_err(TableOpenError::Memory)?.0,
    };
    let identity = recovery_area.file_identity().map_err(TableOpenError::Memory)?.unwrap_or_default();
    store::sync_previous_log(&Arc::new(recovery_area), identity, disk, startup).map_err(|source| {
        TableOpenError::Recover { folder: folders.data.path().to_owned(), source: Box::new(source) }
    })
}

/// Bytes of snapshot and log that take long enough to read for the operator to wonder.
const WORTH_TELLING: u64 = 1 << 20;

/// Tells what a start waits for, since no client is let in before.
fn tell_reading(folders: &TableFolder, bytes: u64) {
    let (folder, size) = (folders.data.path().display(), ByteSize(bytes).display().iec());
    info!("reading the table in {folder} from snapshot and log, {size}: clients get in when that is done");
}

/// A table's memory node, and its region's descriptor.
struct StartedTable<K: BuildKeys> {
    node: MemoryNode<K>,
    fd: OwnedFd,
    recovery: Option<Recovery>,
}

/// Why a table gets new memories.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason {
    /// Whether it was there before.
    pub(super) was_there: bool,
    /// Whether it is restored.
    pub(super) restores: bool,
    /// What the start has to know of the log's files.
    pub(super) left: PreviousLog,
}

/// What the process before has left in memory.
enum PreviousMemory {
    Nothing,
    Unusable(String),
    Memories(Memories<SharedMemory>, OwnedFd),
}

/// A number that differs from that of any earlier region here: the time to the nanosecond, and who
/// asks. Making a region takes far longer.
pub(crate) fn new_incarnation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let process = std::process::id();
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&now.to_le_bytes());
    bytes[16..].copy_from_slice(&process.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}
