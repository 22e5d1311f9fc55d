//! A table in a catalogue, whatever its keys are.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::{DROPPED, REUSE_OFFSET, SUPERBLOCK_BYTES};
use fpcache::message::{NodeStats, TableInfo};
use fpcache_fabric::descriptors::Taken;
use fpcache_fabric::{AccessError, Export, NodeMemory, Pages, Service, SharedMemory, Waker};

use crate::node::MemoryNode;
use crate::recovery::Recovery;

/// The memory node of one table.
pub(crate) trait Hosted: Service + Any + fmt::Debug {
    /// Its counters.
    fn stats(&self) -> NodeStats;

    /// Its region.
    fn region(&self) -> &Arc<SharedMemory>;
}

impl<K: BuildKeys> Hosted for MemoryNode<K> {
    fn stats(&self) -> NodeStats {
        Self::stats(self)
    }

    fn region(&self) -> &Arc<SharedMemory> {
        Self::region(self)
    }
}

/// A table that is served.
#[derive(Debug)]
pub(crate) struct HostedTable {
    pub(crate) name: TableName,
    pub(crate) kind: KeyKind,
    pub(crate) node: Box<dyn Hosted>,
    pub(crate) export: Export,
    /// What its threads wake the loop with.
    pub(crate) waker: Waker,
    /// What it went on from, if it is durable.
    pub(crate) recovery: Option<Recovery>,
    /// What it has of the process's descriptors. The last field: given back when they are closed.
    pub(crate) descriptors: Option<Taken>,
}

impl HostedTable {
    /// What it tells of itself.
    pub(crate) fn info(&self) -> TableInfo {
        let stats = self.node.stats();
        TableInfo {
            name: self.name,
            kind: self.kind,
            keys: stats.keys,
            region_bytes: stats.region_bytes,
            used_bytes: stats.used_bytes,
            clients: stats.clients,
        }
    }

    /// Its memory node, if its keys are those of `K`.
    pub(crate) fn node_mut<K: BuildKeys>(&mut self) -> Option<&mut MemoryNode<K>> {
        let node: &mut dyn Any = &mut *self.node;
        node.downcast_mut()
    }
}

/// Gives up the region of a table that was dropped. Its readers find out by the reuse sequence, which no directory reaches:
/// from here on none of them gives an answer. The memory goes back to the operating system while they still map it.
pub(crate) fn give_up(region: &SharedMemory) -> Result<(), AccessError> {
    region.store_relaxed(REUSE_OFFSET, DROPPED)?;
    region.release();
    if region.pages() == Pages::Huge {
        // The page that the superblock lies in stays.
        let end = region.len().min(HUGE_PAGE);
        region.fill_words(SUPERBLOCK_BYTES as u64, (end - SUPERBLOCK_BYTES.min(end)) / 8, 0)?;
    }
    region.discard_from(SUPERBLOCK_BYTES as u64)
}

/// Bytes of the largest pages there are.
const HUGE_PAGE: usize = 2 << 20;
