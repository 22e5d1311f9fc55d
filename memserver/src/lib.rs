//! The memory node of FPCache.
//!
//! A memory node owns the regions of its tables and is their only writer. It loads tables, changes
//! records and replaces segments. Lookups are one-sided: over shared memory and RDMA they do not
//! involve it; over sockets dedicated threads answer the READs, or look single keys and small
//! groups up themselves. Acknowledged writes are as durable as it was told to make them.
//!
//! | module | holds |
//! |---|---|
//! | [`catalogue`] | tables by name, each with a region of its own, all served by one thread |
//! | [`budget`] | the memory that all regions share |
//! | [`node`] | the memory node of one table, and how it answers each kind of request |
//! | `transit`, `pending` | requests and replies that are held, within limits, and writes that wait for the disk |
//! | [`loader`] | building a table from records in key order |
//! | `dedup`, `uploads` | requests that are executed once; long values, which are sent ahead of their requests |
//! | `table` | the table: segments, memory, rebuilds, checkpoints |
//! | [`rebuild`] | planning of new segments, without a region |
//! | [`durability`], `wal`, `recovery_area` | the write-ahead log, snapshots, and memory that survives the process |
//! | [`files`], [`folder`] | where its files lie, and folders that no other user can change |
//! | [`store`], `recovery` | durable memory nodes, and their recovery |
//! | [`daemon`] | a memory node as a process |
//! | [`capacity`] | the default capacity |

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
