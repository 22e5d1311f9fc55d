//! New memories for a table that does not go on with those of the process before.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use fpcache_fabric::{Access, AccessError, FileAt, HugePages, MemoryError, SharedMemory};
use tracing::warn;

use super::error::TableOpenError;
use super::folders::TableFolder;
use super::hosted;
use super::open::{Opening, Reason};
use crate::budget::{Denied, Grant};
use crate::files::{NEW_RECOVERY_AREA_FILE, RECOVERY_AREA_FILE, REGION_FILE};
use crate::folder::{Folder, FolderError};
use crate::recovery::RecoverError;
use crate::recovery_area::BYTES_BEFORE_RING;
use crate::store::{self, Memories, PreviousLog};

impl Opening {
    /// New files for region and recovery area, of which a table that is restored may need more than
    /// another. One that was there has its first page whatever the budget says, for others that are
    /// restored may have spent it. Readers of the old region, if there are any, find nothing in it.
    pub(super) fn create_memories(
        &self,
        limit: u64,
        folders: &TableFolder,
        reason: Reason,
    ) -> Result<(Memories<SharedMemory>, OwnedFd), TableOpenError> {
        // First, since it takes long to give up a large region, and the process may end meanwhile.
        let recovery_area = create_recovery_area(folders, reason)?;
        let (region, region_path) = folders.region_file();
        remove_memory(&folders.region, REGION_FILE, region, region_path)?;
        let create = |bytes| SharedMemory::create_sparse_file(region, as_usize(bytes), self.huge_pages);
        let created = match self.huge_pages {
            // There may be file systems that have no files so long.
            HugePages::No | HugePages::Merged if reason.restores => {
                create(store::bytes_to_restore(limit)).or_else(|_| create(limit))
            }
            _ => create(limit),
        };
        let (region, fd) = created.map_err(|source| TableOpenError::Region { capacity: limit, source })?;
        let grant = if reason.was_there { Grant::resumed } else { Grant::of };
        self.memories((region, fd), recovery_area, |region| grant(&self.budget, region, limit))
    }

    /// Region and recovery area that end with the process, for a table whose disk has no room for
    /// them.
    pub(super) fn create_anonymous_memories(
        &self,
        limit: u64,
        folders: &TableFolder,
        left: PreviousLog,
    ) -> Result<(Memories<SharedMemory>, OwnedFd), TableOpenError> {
        let (region, region_path) = folders.region_file();
        keep_only_lost(folders, left)?;
        remove_memory(&folders.region, REGION_FILE, region, region_path)?;
        warn!(
            "the disk has no room for {}: the table will be read from the disk at the next start",
            region_path.display()
        );
        let (recovery_area, _) = anonymous(store::recovery_area_bytes(store::RING_BYTES))?;
        let recovery_area = noted(recovery_area, folders, left)?;
        let region = anonymous(store::bytes_to_restore(limit))?;
        self.memories(region, recovery_area, |region| Grant::resumed(&self.budget, region, limit))
    }

    fn memories(
        &self,
        (region, fd): (SharedMemory, OwnedFd),
        recovery_area: Arc<SharedMemory>,
        grant: impl FnOnce(&Arc<SharedMemory>) -> Result<Arc<Grant>, Denied>,
    ) -> Result<(Memories<SharedMemory>, OwnedFd), TableOpenError> {
        let region = Arc::new(region);
        let grant = grant(&region)?;
        let memories = Memories::of_files(region, recovery_area).map_err(TableOpenError::Memory)?;
        Ok((Memories { grant, ..memories }.with_lease(self.lease()), fd))
    }
}

/// The file of a new recovery area, in place of any before. What is left for the start is noted in
/// it before it has its name, for the process may end at any instant, and the next one needs it.
fn create_recovery_area(folders: &TableFolder, reason: Reason) -> Result<Arc<SharedMemory>, TableOpenError> {
    let bytes = store::recovery_area_bytes(store::RING_BYTES);
    let (file, path) = folders.notes_file();
    folders.data.remove_all(NEW_RECOVERY_AREA_FILE)?;
    let new_path = path.with_file_name(NEW_RECOVERY_AREA_FILE);
    let new_file = FileAt::within(folders.data.as_fd(), &new_path);
    let create = || SharedMemory::create_file(new_file, as_usize(bytes), HugePages::No);
    let created = match create() {
        // There may be room once the one before is gone.
        Err(MemoryError::NoSpace { .. }) => {
            keep_only_lost(folders, reason.left)?;
            create()
        }
        created => created,
    };
    match created {
        Ok((created, _)) => {
            let created = noted(created, folders, reason.left)?;
            let _locked = lock_previous(file)?;
            let renamed = folders.data.rename(NEW_RECOVERY_AREA_FILE, RECOVERY_AREA_FILE);
            renamed.map_err(FolderError::new(path, "replacing the memory of the process before"))?;
            Ok(created)
        }
        // The recovery area is for the next process alone.
        Err(error @ MemoryError::NoSpace { .. }) if reason.restores => {
            warn!(
                "{error}: the table in {} will be read from the disk at the next start",
                folders.data.path().display()
            );
            noted(anonymous(bytes)?.0, folders, reason.left)
        }
        Err(source) => Err(TableOpenError::RecoveryArea { bytes, source }),
    }
}

/// Gives the room of the last recovery area back, and leaves in its file, for the start after one
/// that has none, which entries the disk had lost: nothing else says so.
fn keep_only_lost(folders: &TableFolder, left: PreviousLog) -> Result<(), TableOpenError> {
    let (file, path) = folders.notes_file();
    if left.lost > 0
        && let Some((recovery_area, fd)) = lock_previous(file)?
        && recovery_area.len() as u64 >= BYTES_BEFORE_RING
    {
        noting(folders, left.note_alone(&Arc::new(recovery_area)))?;
        let cut = rustix::fs::ftruncate(fd, BYTES_BEFORE_RING).map_err(std::io::Error::from);
        return Ok(cut.map_err(FolderError::new(path, "cutting the memory of the process before"))?);
    }
    remove_memory(&folders.data, RECOVERY_AREA_FILE, file, path)
}

/// A recovery area with what is left for the start that makes it.
fn noted(
    recovery_area: SharedMemory,
    folders: &TableFolder,
    left: PreviousLog,
) -> Result<Arc<SharedMemory>, TableOpenError> {
    let recovery_area = Arc::new(recovery_area);
    noting(folders, left.note(&recovery_area))?;
    Ok(recovery_area)
}

fn noting(folders: &TableFolder, noted: Result<(), AccessError>) -> Result<(), TableOpenError> {
    noted.map_err(|error| TableOpenError::Recover {
        folder: folders.data.path().to_owned(),
        source: Box::new(RecoverError::from(error)),
    })
}

/// Memory without a named file.
fn anonymous(bytes: u64) -> Result<(SharedMemory, OwnedFd), TableOpenError> {
    let created = SharedMemory::create_memfd("fpcache-region", as_usize(bytes), HugePages::No);
    created.map_err(|source| TableOpenError::Region { capacity: bytes, source })
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Opens and locks a file of the previous process, unless that is another memory node's which runs.
fn lock_previous(file: FileAt<'_>) -> Result<Option<(SharedMemory, OwnedFd)>, TableOpenError> {
    match SharedMemory::open_file(file, Access::ReadWrite) {
        Err(error @ MemoryError::FileInUse { .. }) => Err(TableOpenError::Memory(error)),
        // What is no memory is not in use; a file that is not there need not be removed.
        opened => Ok(opened.ok()),
    }
}

/// Removes a file of the previous process, unless that is another memory node's which runs: folders
/// for regions may be shared by mistake. A region is given up: who maps it still would read it for
/// ever, also when its table is dropped.
fn remove_memory(folder: &Folder, name: &str, file: FileAt<'_>, path: &Path) -> Result<(), TableOpenError> {
    let locked = lock_previous(file)?;
    if let (Some((region, _)), REGION_FILE) = (&locked, name) {
        hosted::give_up_all(region)?;
    }
    let removed = folder.remove_file(name);
    drop(locked);
    match removed {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(FolderError::new(path, "removing the memory of the process before")(source).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use fpcache::key_space::KeyKind;

    use crate::budget::Budget;
    use crate::catalogue::answering::Follower;
    use crate::catalogue::descriptor::TableDescriptor;
    use crate::catalogue::folders::TablesFolder;
    use crate::dedup::KeptReplies;
    use crate::durability::{Lsn, SyncPolicy};
    use crate::files::Folders;
    use crate::recovery_area::{Identity, RecoveryArea};
    use crate::request_memory::Transit;

    /// The folders of a table in `place`, and a start of it.
    fn table_in(place: &Path) -> (TableFolder, Opening) {
        let folders = Folders { data: place.join("data"), region: place.join("region") };
        let tables = TablesFolder::open(&folders).expect("made");
        let name = "t".parse().expect("a name");
        let descriptor = TableDescriptor { kind: KeyKind::U64, region_bytes: None, creation: 1 };
        tables.create(&name, &descriptor, None).expect("made");
        let folder = tables.of(&name).expect("made");
        let opening = Opening {
            budget: Budget::new(1 << 20),
            huge_pages: HugePages::No,
            merger: None,
            sync: SyncPolicy::default(),
            lease: Duration::from_secs(1),
            transit: Transit::default(),
            kept_replies: KeptReplies::default(),
            follower: Follower::default(),
        };
        (folder, opening)
    }

    fn reason(lost: Lsn) -> Reason {
        Reason { was_there: true, restores: true, left: PreviousLog { lost, is_on_disk: true } }
    }

    /// What the file of the recovery area has for the next start.
    fn left_in(folder: &TableFolder) -> PreviousLog {
        let (notes, _) = SharedMemory::open_file(folder.notes_file().0, Access::ReadWrite).expect("there");
        let recovery_area = RecoveryArea::over(Arc::new(notes), store::RING_BYTES);
        assert_eq!(recovery_area.identity(), Ok(None));
        recovery_area.left().expect("inside")
    }

    /// A start without room for a region forgot what the disk had lost, and the next one believed
    /// in a log with a gap.
    #[test]
    fn what_the_disk_lost_is_known_after_a_start_without_room_for_its_memory() {
        let place = tempfile::tempdir().expect("a folder");
        let (folder, opening) = table_in(place.path());
        let (made, _) = opening.create_memories(1 << 20, &folder, reason(5)).expect("room");
        let identity = Identity {
            boot: [7; 16],
            lineage: 1,
            incarnation: 2,
            before: 2,
            files: made.files,
            limit: 1 << 20,
        };
        RecoveryArea::over(made.recovery_area, store::RING_BYTES).begin(&identity).expect("inside");
        drop((made.region, made.grant));
        let mut left = reason(5).left;
        for _ in 0..3 {
            drop(opening.create_anonymous_memories(1 << 20, &folder, left).expect("memory"));
            left = left_in(&folder);
            // What that process wrote may be in the operating system's memory alone.
            assert_eq!(left, PreviousLog { lost: 5, is_on_disk: false });
            assert_eq!(folder.data.len(RECOVERY_AREA_FILE).ok(), Some(BYTES_BEFORE_RING));
        }
        drop(opening.create_memories(1 << 20, &folder, Reason { left, ..reason(5) }).expect("room"));
        assert_eq!(left_in(&folder), left);
    }

    /// To give a region up takes seconds, and a process that ended meanwhile left notes that said
    /// nothing of the entries that the disk had lost.
    #[test]
    fn what_is_left_for_a_start_is_noted_before_the_region_is_given_up() {
        let place = tempfile::tempdir().expect("a folder");
        let (folder, opening) = table_in(place.path());
        for lost in [5, 7] {
            let made = opening.create_memories(1 << 20, &folder, reason(lost));
            let (Memories { region, .. }, _) = made.expect("room");
            // It is in use, which ends the start there.
            let error = opening.create_memories(1 << 20, &folder, reason(lost + 1));
            drop(region);
            assert!(matches!(error, Err(TableOpenError::Memory(MemoryError::FileInUse { .. }))));
            assert_eq!(left_in(&folder), reason(lost + 1).left);
            assert!(!folder.data.has(NEW_RECOVERY_AREA_FILE).expect("readable"));
        }
    }
}
