//! A disk in a simulated world.

use std::sync::Arc;

use fpcache_memserver::durability::DiskError;
use fpcache_sim::SimMemory;

use crate::watched_disk::{BeforeChange, WatchedDisk};

/// A disk whose writes do not overtake the memory node's stores: each is a system call, after which
/// they are visible.
pub type SimDisk = WatchedDisk<Arc<SimMemory>>;

impl BeforeChange for Arc<SimMemory> {
    fn before_change(&self, _name: &str) -> Result<(), DiskError> {
        self.flush();
        Ok(())
    }
}
