//! The memory node of FPCache.
//!
//! A memory node owns the regions of its tables and is the only one that writes them. It loads tables, changes records and replaces segments;
//! lookups are one-sided and never reach it. What it acknowledged it keeps, as far as it was asked to.
//!
//! | module | holds |
//! |---|---|
//! | [`catalogue`] | many tables by name, each with a region of its own, served by one thread |
//! | [`budget`] | bytes that the tables' regions share |
//! | [`node`] | the memory node of one table: its region, its table, and what serving them takes |
//! | `serving`, `parked`, `transit` | its requests: answered now, or going on later in turns, within bounds |
//! | [`loader`], `loading` | building a table's segments and directory from records in key order; loads by requests |
//! | `lookup` | lookups by the memory node's processor |
//! | `writes`, `pending`, `dedup` | requests that change records, each executed once |
//! | `values`, `uploads` | values on their way to their records, of which long ones come ahead of their requests |
//! | `table` | every record's place: slots, changes of the directory, checkpoints |
//! | [`rebuild`] | which segments take the place of which: planning without a region |
//! | [`durability`], `wal`, `recovery_area` | the log's files and snapshots; what is written down before a slot changes |
//! | [`store`], `recovery` | how a memory node begins whose data outlive it |
//! | [`daemon`] | a memory node as a process of its own, over shared memory |
//! | [`capacity`] | how much memory a node takes when not told |

#![forbid(unsafe_code)]

mod allocator;
pub mod budget;
pub mod capacity;
pub mod catalogue;
mod counters;
pub mod daemon;
mod dedup;
pub mod durability;
pub mod folder;
mod grouping;
mod image;
pub mod loader;
mod loading;
mod lookup;
mod merging;
mod nice;
pub mod node;
mod owned;
mod parked;
mod pending;
pub mod rebuild;
mod recovery;
mod recovery_area;
mod serving;
mod snapshotting;
mod space;
pub mod store;
mod superblock_writer;
mod table;
mod tell;
mod transit;
mod uploads;
mod values;
mod wal;
mod writes;

pub use catalogue::{Catalogue, CatalogueConfig, CatalogueError};
pub use daemon::{Daemon, DaemonConfig, DaemonError, DurableConfig, FirstTable, ListenAddress};
pub use loader::LoadError;
pub use node::MemoryNode;
#[doc(hidden)]
pub use parked::cost;
pub use recovery::{Origin, RecoverError, Recovery};
pub use table::TableError;
pub use table::audit::Audit;
