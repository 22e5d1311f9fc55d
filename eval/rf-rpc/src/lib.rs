//! RF-RPC: requests by WRITE, results fetched by READ, and a switch to replies of the server where
//! fetching does not pay.
//!
//! After Su et al., "RFP: When RPC is Faster than Server-Bypass with RDMA" (EuroSys 2017) and its
//! journal version, "RF-RPC: Remote Fetching RPC Paradigm for RDMA-Enabled Network" (TPDS 2018). A
//! client WRITEs a *request batch* into buffers of its own at the server; the server's processor
//! executes it and leaves the *result batch* in its own memory, where the client fetches it by
//! READs. So the server's card has only in-bound operations to do. It is generic over
//! [`Endpoint`](fpcache_fabric::Endpoint): shared memory, the simulated fabric, sockets and verbs
//! serve alike, wherever the memory node offers an area that clients may write ([`Server::new`]).
//!
//! | Table 2 of the paper | here |
//! |---|---|
//! | `client_send`, `client_recv` | [`Client::send`], [`Client::recv`] |
//! | `server_send`, `server_recv` | [`Server::send`], [`Server::recv`] |
//! | `malloc_buf`, `free_buf` | none: endpoints own what they have registered with their card, and copy into it |
//!
//! # Bytes
//!
//! A client has a *channel*: as many *slots* as it may have batches in flight. Integers are
//! little-endian.
//!
//! ```text
//! slot
//! 0            8     client  acknowledgement: result batches fetched (low 32 bits),
//!                            sequence (high 32 bits)
//! 8            56    -       zero
//! 64           Q     client  request batch: head 24, payload, tail 8;
//!                            Q = 32 + capacity, rounded up to 64
//! 64 + Q       P×K   server  K result batches: head 24, payload;
//!                            P = 24 + capacity, rounded up to 64
//!
//! head of a batch
//! 0   4  status: bit 31 is 1; payload bytes in bits 0 to 30
//! 4   4  sequence of the request batch, from 1, wrapping, zero skipped
//! 8   2  request: zero; result: response time in units of 256 ns, saturating
//! 10  2  entries
//! 12  2  request: number of the RPC; result: which of the call's result batches, from 0
//! 14  1  request: mode, 0 fetched, 1 server reply;
//!        result: bits 0 to 6 outcome, bit 7 the call's last batch
//! 15  1  version, 1
//! 16  8  checksum: XXH3-64 of the payload, seeded with XXH3-64 of bytes 0 to 15, seeded with the
//!        channel's key
//! 24     payload: entries, each 4 bytes of length and its bytes; the request's is padded with
//!        zeros to 8
//! then, of a request: tail, 8 bytes: bytes 0 to 7 of the head once more
//!
//! outcomes: 0 served, 1 the request was damaged and not executed, 2 the results are too long
//! together
//! length of an entry: bit 31 set: its 8 bytes are the length of a result that a server reply
//! brings
//! ```
//!
//! *Whole or not.* A request is taken when head and tail agree, the sequence is a new one and the
//! checksum holds. A checksum that does not hold is looked at again, 4096 times, because WRITEs
//! into mapped memory become visible word by word; then the request counts as damaged. A result is
//! believed under the same conditions, with its own head. So nothing needs to be cleared between
//! batches, which the paper does, and a late WRITE of a client that has gone is ignored: the key is
//! another.
//!
//! *Messages.* What goes by server reply uses the backend's own requests
//! ([`Connection::post`](fpcache_fabric::Connection::post)), whose replies the memory node pushes:
//! 4 bytes "RF", version, kind, and by kind
//!
//! ```text
//! 1 open   -                                      → area 2, slots 2, parts 2, zero 2, capacity 4,
//!                                                   zero 4, offset 8, key 8
//! 2 call   slot 2, request batch without tail     → result batch with all entries
//! 3 await  slot 2, sequence 4                     → result batch with all entries, or none:
//!                                                   fetch it
//! 4 long   slot 2, sequence 4, number of entry 2  → the entry's bytes
//! ```
//!
//! A reply begins with one byte: 0 it follows, 1 fetch it, 2 there is no channel left, 3 not a
//! message of this version, 4 no such batch, 5 served before and forgotten.
//!
//! *Modes.* A client starts by fetching. More than R failed fetches in each of two calls in a row,
//! and that RPC's results come by server reply from the second one on: `await` carries the mode
//! flag for the call under way, the head for those that follow. The server tells its response time
//! in every result; two in a row within R fetches, and the client fetches again.
//!
//! *Trust.* The server believes nothing: lengths are checked before anything is copied, everything
//! is copied into private memory before its checksum is looked at. The channels of a memory node
//! lie in one area, so clients are trusted not to write into each other's; one that does can break
//! the other's calls and nothing else, except by guessing its key.
#![forbid(unsafe_code)]

mod client;
mod layout;
mod messages;
mod mode;
mod server;
mod service;

pub use client::{Client, ClientOptions, Counts, Results, RfError, Sent};
pub use layout::{ENTRY_MAX, Shape, VERSION};
pub use mode::{Mode, Modes};
pub use server::{CallId, Received, Server, ServerOptions};
pub use service::{Procedures, RfService};
