//! The memory node of FPCache.
//!
//! A memory node owns a region and is the only one that writes it. It loads tables and answers requests; lookups are
//! one-sided and never reach it.
//!
//! | module | holds |
//! |---|---|
//! | [`node`] | the memory node: its region, its table, the requests it answers |
//! | [`loader`] | building a table's segments and directory from records in key order |
//! | [`daemon`] | a memory node as a process of its own, over shared memory |
//! | [`capacity`] | how much memory a node takes when not told |

#![forbid(unsafe_code)]

mod allocator;
pub mod capacity;
pub mod daemon;
pub mod loader;
pub mod node;

pub use daemon::{Daemon, DaemonConfig, DaemonError};
pub use loader::LoadError;
pub use node::MemoryNode;
