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
mod clients;
mod counters;
pub mod daemon;
pub mod durability;
mod front;
mod image;
mod journal;
pub mod loader;
pub mod node;
mod notes;
mod pending;
pub mod rebuild;
mod recovery;
mod snapshotting;
mod space;
pub mod store;
mod table;
mod writes;

pub use daemon::{Daemon, DaemonConfig, DaemonError, DurableConfig};
pub use loader::LoadError;
pub use node::MemoryNode;
pub use recovery::{Origin, RecoverError, Recovery};
pub use table::TableError;
pub use table::audit::Audit;
