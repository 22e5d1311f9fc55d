//! A disk in memory with a hook before each change.

use fpcache_memserver::durability::{Disk, DiskError};

use crate::memory_disk::MemoryDisk;

/// What is done before each change of a disk.
pub trait BeforeChange: Send {
    /// Before a file is changed, or the folder: an error in place of the change.
    fn before_change(&self, name: &str) -> Result<(), DiskError>;
}

/// A disk whose changes something comes before; reads are the disk's.
#[derive(Clone, Debug)]
pub struct WatchedDisk<B> {
    pub disk: MemoryDisk,
    pub before: B,
}

impl<B: BeforeChange> WatchedDisk<B> {
    fn for_change(&mut self, name: &str) -> Result<&mut MemoryDisk, DiskError> {
        self.before.before_change(name)?;
        Ok(&mut self.disk)
    }
}

impl<B: BeforeChange> Disk for WatchedDisk<B> {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }

    fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.disk.len(name)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<usize, DiskError> {
        self.disk.read(name, offset, out)
    }

    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        self.for_change(name)?.create(name)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.for_change(name)?.append(name, bytes)
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.for_change(name)?.sync(name)
    }

    fn sync_dir(&mut self) -> Result<(), DiskError> {
        self.for_change("the folder")?.sync_dir()
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.for_change(name)?.remove(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.for_change(from)?.rename(from, to)
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<(), DiskError> {
        self.for_change(name)?.truncate(name, len)
    }

    fn room(&self) -> Result<Option<u64>, DiskError> {
        self.disk.room()
    }
}
