//! Clients for tasks: calls that are awaited, many at a time, without a thread for each.
//!
//! *Where memory is mapped* a read is made by the task itself, between two of its other
//! instructions: it takes half a microsecond, less than handing it to another (`in_place.rs`). *Over
//! sockets* tasks put their reads into a queue (`queue.rs`), and a few workers (`worker.rs`), tasks
//! themselves, each take what waits there, all of one kind, as one group: its keys share their
//! doorbell batches, so that a frame carries the READs of many tasks. While a worker waits for its
//! socket the others take what comes meanwhile. *Changes* go through a thread of the client's for
//! each memory node (`changes.rs`), which sends what waits as one request.
//!
//! Of a table over several memory nodes each range has its own queue and workers, or is read in
//! place (`range_routes.rs`); one call at a time looks for one that is gone, for all that wait
//! (`look_turns.rs`). Where a network card reads, a group is made on a thread for blocking calls,
//! which waits for the card.
//!
//! All of this is the common course. A directory that is out of date, a memory node that has gone,
//! a record that is being written for long: whatever takes more than waiting for a socket is done
//! by the very code that the blocking client has for it, on a thread of the runtime's for blocking
//! calls (`threads.rs`), by a worker at a time. Calls for a record that cannot be read now are set
//! apart, so that neither the others of their group nor its worker wait for it.

mod changes;
mod client;
mod config;
mod counters;
mod drive;
mod group;
mod in_place;
mod look_turns;
mod queue;
mod range_routes;
mod read;
mod records;
mod route;
mod threads;
mod unanswered;
mod worker;
mod write;

pub use client::{AsyncByteClient, AsyncClient, AsyncTableClient};
pub use config::AsyncConfig;
pub use counters::AsyncCounters;
pub use records::{RecordStream, ScanStream};
