//! One-sided verbs, doorbell batches and shared-memory backends for disaggregated memory.
//!
//! A *compute node* reads and writes the registered *areas* of a *memory node* with three verbs,
//! READ, WRITE and compare-and-swap, without the memory node's CPU taking part. Requests are
//! collected in a [`Batch`] and posted with one *doorbell*: a batch is one dependent round trip,
//! however many requests it holds. What the memory node must do itself is asked of its [`Service`]
//! through a request ring ([`Connection::call`]).
//!
//! | Module | Concept |
//! |---|---|
//! | [`memory`] | memory that another process may change; with the verbs in [`rdma`] the only `unsafe` of the crate |
//! | [`verbs`] | areas, addresses, batches and where their results land |
//! | [`endpoint`] | the queue pair: run, post, poll, wait |
//! | [`connection`] | what a compute node holds of a memory node |
//! | [`service`], [`serving`] | what a memory node does for its clients, and the loop in which it does |
//! | `region_questions`, `region_reader` | what the threads that serve sockets answer about a region, and what they read it with |
//! | [`region`] | regions by name: what clients ask for and get |
//! | [`ring`] | the bytes of the request ring |
//! | [`local`], [`shm`], [`tcp`] | the backends: in this process, across processes on one machine, across machines |
//! | [`rdma`] | reading by network cards, beside [`tcp`] |
//! | [`backend`] | what crates need that implement another backend, as `fpcache-sim` does |
//! | [`meter`] | round trips, requests and bytes |
//!
//! The crate knows nothing of keys. It runs on Linux, on little-endian 64-bit machines.
//!
//! ```
//! use std::sync::Arc;
//! use fpcache_fabric::{Batch, Connection, Endpoint, REGION, RemoteAddr, SharedMemory, local};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Arc::new(SharedMemory::anonymous(4096)?);
//! region.write_bytes(64, b"hello")?;
//! let hub = local::Hub::new(region, local::LocalOptions::default())?;
//! let mut endpoint = hub.connect()?.endpoint();
//!
//! let mut batch = Batch::new();
//! let landing = batch.read(RemoteAddr { area: REGION, offset: 64 }, 5);
//! endpoint.run(&mut batch)?;
//! assert_eq!(batch.bytes(landing), b"hello");
//! assert_eq!(endpoint.meter().snapshot().round_trips, 1);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("fpcache-fabric needs Linux on a little-endian 64-bit machine");

#[cfg(not(all(feature = "rdma", feature = "tls")))]
mod absent;
pub mod backend;
mod bell;
pub mod clock;
pub mod connection;
mod credentials;
pub mod descriptors;
pub mod endpoint;
pub mod error;
mod eviction_choice;
pub mod in_place;
mod lease;
pub mod local;
mod lock;
mod mapped;
#[allow(unsafe_code)]
pub mod memory;
pub mod meter;
mod node_end;
mod node_memory;
mod one_region;
pub mod process;
mod random;
pub mod rdma;
pub mod region;
mod region_questions;
mod region_reader;
pub mod ring;
mod room_queue;
mod rpc;
mod server;
pub mod service;
pub mod serving;
pub mod shm;
mod spin;
mod target;
pub mod tcp;
mod turns;
pub mod verbs;

pub use clock::{Clock, Deadline, SystemClock};
pub use connection::{Connection, Posted};
pub use descriptors::Descriptors;
pub use endpoint::{Another, AreaInfo, Completion, Endpoint, Rejected, Ticket};
pub use error::{ErrorKind, FabricError};
pub use in_place::{InPlace, NotMapped};
pub use mapped::{MappedConnection, MappedEndpoint, MappedInPlace};
pub use memory::{
    Access, AccessError, FileAt, FileIdentity, ForkFlag, HugePages, MemoryError, OutOfBounds, Pages,
    SharedMemory, Words,
};
pub use meter::{Meter, MeterSnapshot};
pub use node_memory::NodeMemory;
pub use one_region::OneRegion;
pub use random::random_bits;
pub use rdma::RdmaError;
pub use region::{Export, RegionName};
pub use region_questions::{Answered, Answers, ThreadMemory};
pub use region_reader::{BackedInPlace, RegionReader};
pub use service::{ClientId, Handled, SHORT_BODY, Service, Waker, Work};
pub use serving::{Serving, StopHandle};
pub use spin::Spin;
pub use tcp::{TcpAddress, TcpConnection, TcpEndpoint};
pub use verbs::{ANSWERS, AreaId, Batch, CHANGED, Landing, REGION, RINGS, RemoteAddr, Request};
