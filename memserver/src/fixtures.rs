//! Memory nodes for the tests of their parts.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::SharedMemory;

use crate::node::MemoryNode;
use crate::table::Table;

/// A memory node without a table, in this many bytes.
pub(crate) fn empty_node<K: BuildKeys>(bytes: usize) -> MemoryNode<K> {
    let region = Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
    MemoryNode::new(region, 1, 0, Instant::now()).expect("a region")
}

/// The table that was loaded into a memory node.
pub(crate) fn table_of<K: BuildKeys>(node: &mut MemoryNode<K>) -> &mut Table<K, SharedMemory> {
    node.state.table_mut().expect("a table was loaded")
}
