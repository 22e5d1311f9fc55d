//! The memory node of FPCache.
//!
//! A memory node owns the regions of its tables and is their only writer. It loads tables, changes
//! records and replaces segments. Lookups are one-sided: over shared memory and RDMA they do not
//! involve it; over sockets dedicated threads answer the READs, or look single keys and small
//! groups up themselves. Acknowledged writes are as durable as it was told to make them.

#![forbid(unsafe_code)]

/// By the name that files shared with the tests in `tests/` call it.
#[cfg(test)]
extern crate self as fpcache_memserver;

mod allocator;
mod awaiting_sync;
mod boot;
pub mod budget;
pub mod capacity;
pub mod catalogue;
mod counters;
pub mod daemon;
mod damaged_records;
mod dedup;
pub mod durability;
pub mod files;
#[cfg(test)]
mod fixtures;
pub mod folder;
mod grouping;
mod huge_page_merger;
pub mod lease;
pub mod loader;
pub mod node;
mod priority;
pub mod rebuild;
mod recovery;
mod recovery_area;
mod request_memory;
mod segment_image;
mod space;
mod startup;
pub mod store;
mod superblock_writer;
mod table;
mod uploads;
mod versions;
mod wal;

pub use catalogue::{Catalogue, CatalogueConfig, CatalogueError};
pub use daemon::{Daemon, DaemonConfig, DaemonError, DurableConfig, FirstTable, ListenAddress};
pub use loader::LoadError;
pub use node::MemoryNode;
#[doc(hidden)]
pub use node::parked::cost;
pub use recovery::{Origin, RecoverError, Recovery};
pub use recovery_area::UnreadableIdentity;
pub use table::audit::Audit;
pub use table::error::TableError;
pub use table::segments::slots::{RecordPlace, SegmentPlace};
