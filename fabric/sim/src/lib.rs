//! A simulated fabric: memory nodes and clients in one process, under a virtual clock,
//! deterministic from one seed.
//!
//! The code under test is the real one: a [`Service`](fpcache_fabric::Service) that stores through
//! [`NodeMemory`](fpcache_fabric::NodeMemory), and clients over
//! [`Connection`](fpcache_fabric::Connection) and [`Endpoint`](fpcache_fabric::Endpoint). What is
//! simulated is what lies between: when stores become visible, when a READ fetches which of its
//! bytes, how messages travel, who dies.
//!
//! | What | How |
//! |---|---|
//! | stores | queued in program order, made visible one by one or a few at a time; relaxed ones out of order |
//! | READs | cut at 64-byte lines, the pieces of a batch fetched at up to six instants in any order |
//! | batches | in order within an endpoint, each taking its own time between endpoints |
//! | replies | after all stores before them |
//! | requests | lost, late, twice; the connection may break under them |
//! | questions | answered on threads of the memory node's own, whose looks at memory have their time and tear as others do |
//! | deaths | of a compute node at any fabric call; of a memory node at any store, with a next life over what survived |
//! | time | moves from event to event; nothing waits in real time |
//!
//! ```
//! use std::time::Duration;
//! use fpcache_sim::{MemoryOptions, NodeOptions, NodeStart, SimOptions, World};
//! use fpcache_fabric::{ClientId, Connection, Endpoint, Handled, NodeMemory, RemoteAddr, Service};
//!
//! /// Counts its requests in the first word.
//! struct Counter(NodeStart);
//!
//! impl Service for Counter {
//!     fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
//!         let region = &self.0.memories[0];
//!         let count = region.load_relaxed(0).unwrap_or(0);
//!         region.store_release(0, count + 1).ok();
//!         Handled::Now
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut world = World::new(SimOptions { seed: 7, ..SimOptions::default() });
//! let node = world.add_node(NodeOptions::new(vec![MemoryOptions::region(4096)]), |start| Box::new(Counter(start)))?;
//! world.spawn("client", move |process| {
//!     let deadline = process.sim.clock().deadline(Duration::from_secs(1));
//!     let connection = process.sim.connect(node, deadline).expect("it is up");
//!     connection.call(b"count", &mut Vec::new(), deadline).expect("it answers");
//!     let mut word = [0];
//!     connection.endpoint().read_words(RemoteAddr::region(0), &mut word).expect("it is up");
//!     assert_eq!(word, [1], "a reply comes after the stores before it");
//! });
//! let report = world.run()?;
//! assert!(report.elapsed < Duration::from_millis(1));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod admission;
mod anchor;
mod baton;
mod calls;
mod clock;
mod connection;
mod endpoint;
mod event;
mod event_loop;
mod explore;
mod flight;
mod in_place;
mod lease;
mod link;
mod memory;
mod messages;
mod names;
mod node;
mod options;
mod panics;
mod parker;
mod process_state;
mod questions;
mod queue_pair;
mod random;
mod report;
mod room;
mod serving;
mod start;
mod state;
mod time;
mod trace;
mod verbs;
mod visibility_and_death;
mod world;

pub use clock::SimClock;
pub use connection::SimConnection;
pub use endpoint::SimEndpoint;
pub use explore::{Explored, FailingSeed, SEEDS_VARIABLE, Verdict, explore, search};
pub use in_place::SimInPlace;
pub use memory::SimMemory;
pub use names::{NodeId, ProcessId};
pub use node::NodeDeath;
pub use options::{Faults, MemoryOptions, NodeOptions, SimOptions, Tear};
pub use questions::SimRegion;
pub use random::Random;
pub use report::{FailureKind, RunFailure, RunReport, SEED_VARIABLE};
pub use start::NodeStart;
pub use world::{Process, Sim, World};
