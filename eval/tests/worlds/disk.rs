//! A disk in a simulated world.

use std::sync::Arc;

use fpcache_memserver::durability::{Disk, DiskError};
use fpcache_sim::SimMemory;

use crate::memory_disk::MemoryDisk;

/// A disk whose writes do not overtake the memory node's stores: each is a system call, after which
/// they are visible.
#[derive(Clone, Debug)]
pub struct SimDisk {
    disk: MemoryDisk,
    memory: Arc<SimMemory>,
}

impl SimDisk {
    pub fn new(disk: MemoryDisk, memory: &Arc<SimMemory>) -> Self {
        Self { disk, memory: Arc::clone(memory) }
    }

    fn behind_stores(&mut self) -> &mut MemoryDisk {
        self.memory.flush();
        &mut self.disk
    }
}

impl Disk for SimDisk {
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
        self.behind_stores().create(name)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.behind_stores().append(name, bytes)
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.behind_stores().sync(name)
    }

    fn sync_dir(&mut self) -> Result<(), DiskError> {
        self.behind_stores().sync_dir()
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.behind_stores().remove(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.behind_stores().rename(from, to)
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<(), DiskError> {
        self.behind_stores().truncate(name, len)
    }
}
