//! The client library of FPCache.
//!
//! A [`Client`] looks keys up in a memory node: one in another process, named by a URL, or, with the feature `embedded`, one
//! inside this process.
//! Lookups are one-sided: over shared memory the memory node's processor takes no part in them, and over sockets
//! threads that do nothing else answer READs. One handle serves any number of threads;
//! a thread that looks up much has a [`Reader`] of its own.
//!
//! ```
//! use fpcache_client::{Client, TableParameters};
//!
//! # fn main() -> Result<(), fpcache_client::ClientError> {
//! // A memory node in this process; `Client::connect("shm://fpcache")` reaches one outside.
//! # #[cfg(feature = "embedded")] {
//! let client = Client::embedded(16 << 20)?;
//! let mut load = client.load(TableParameters::default(), 3)?;
//! for key in [10u64, 20, 30] {
//!     load.push(key, &(key * key).to_le_bytes())?;
//! }
//! load.finish()?;
//!
//! assert_eq!(client.get(20)?, Some(400u64.to_le_bytes().to_vec()));
//! assert_eq!(client.get(25)?, None);
//! let keys: Vec<u64> = client.scan(15, 10)?.into_iter().map(|(key, _)| key).collect();
//! assert_eq!(keys, [20, 30]);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! # Tables
//!
//! A memory node has many tables, by name; a client is of one of them, `default` unless [`ClientConfig::table`] says another.
//! [`Tables`] lists, makes and drops them. When its table is dropped, a client's next call fails with
//! [`ClientError::NoSuchTable`]; when there is one of its name and kind again, calls succeed again.
//!
//! # Keys
//!
//! A [`Client`] is for tables whose keys are `u64`s, a [`ByteClient`] for those whose keys are byte strings of 1 B to 4 KiB, in
//! lexicographic order; all calls are the same. What the keys of a table are is set when it is made;
//! [`Client::key_kind`] tells. Keys of several parts are byte strings by [`encode`](mod@encode). A read of a key that no table
//! can hold, an empty one or one that is too long, finds nothing; a write of one is an error.
//!
//! # Values
//!
//! All values of a table have one length, or their lengths vary, as the [`RecordShape`] says that the table was created with. One
//! whose length varies has up to 16 MiB: beside its key in a slot if both fit its `room`, else outside, where it takes what it needs
//! and the slot 16 bytes beside the key. Records are cheapest to read whose values lie in slots, and slots all have the same
//! length: a room that most values fit, and few by far, is a good one.
//!
//! # Cost
//!
//! A `get` costs one or two dependent round trips, by the [`Plan`]; [`PlanChoice::Auto`] takes the cheapest for each key:
//!
//! | Plan | Key is there | Key is absent |
//! |---|---|---|
//! | range | one | one |
//! | two-stage | two | one, and one more if a fingerprint matches by chance |
//! | groups, if the table has them | one, but for a few keys, for which another plan follows | one, where all records of its group lie there |
//! | speculative | one if it lies where the model predicts, else two | as for two-stage |
//! | at-node, over sockets: the memory node's threads look it up | one, and those of another plan if it does not answer | the same |
//! | cached | one if the hot cache names its slot | as without the cache |
//!
//! One more comes on top when the hot cache names a slot that holds another key, one when a page of the directory has to be
//! fetched because the budget has no room for all of it, and one when a plan has to be given up for a range read.
//! An external value is one more round trip, by any plan; [`Client::contains`] spares it.
//! `multi_get` costs what its slowest key does, for all keys together. Every answer of [`Client::get_into`] carries the plan it took and its own [`Cost`].
//!
//! # Failures
//!
//! [`ClientError::is_retryable`] says whether the same call may succeed later. When the memory node restarts, the next
//! call connects anew and drops everything that was fetched from its predecessor. A thread that makes no more calls keeps
//! its share of the predecessor's table until it ends.
//!
//! # Forks
//!
//! A process may fork while none of its other threads is inside a call of this library, nor is the forking one: as python's
//! `multiprocessing` does. The child goes on with the handles it has, over connections that its first calls make, and under
//! names of its own, so that its writes are told from the parent's, which notices nothing. Writes that a [`Pipeline`] had under
//! way are the parent's: the child is told [`ClientError::OutcomeUnknown`] of them. A [`Load`] ends with the fork in the child. An
//! embedded memory node stays in the parent: the child's calls fail with
//! [`LeftBehind`](fpcache_fabric::FabricError::LeftBehind).

#![forbid(unsafe_code)]

mod access;
mod answers;
#[cfg(feature = "tokio")]
mod asynchronous;
mod client;
mod config;
mod connect;
mod core;
mod counters;
#[cfg(feature = "embedded")]
mod embedded;
mod empty;
pub mod encode;
mod error;
mod inserting;
mod key;
mod kind;
mod lanes;
mod leave;
mod load;
mod mapped;
mod node;
mod ordered;
mod pipeline;
mod pool;
mod read;
mod reader;
mod remote;
mod session;
#[cfg(feature = "sim")]
mod simulated;
mod tables;
mod turn;
mod url;
mod waiting;
mod write;

pub use answers::Answers;
#[cfg(feature = "tokio")]
pub use asynchronous::{
    AsyncByteClient, AsyncClient, AsyncConfig, AsyncCounters, AsyncTableClient, ScanStream,
};
pub use client::{ByteClient, Client, Record, TableClient};
pub use config::ClientConfig;
pub use counters::Counters;
pub use encode::{DecodeKey, OrderedKey, decode, encode};
pub use error::{ClientError, ErrorKind};
pub use fpcache::cache::{CacheConfig, CacheStats, OnConflict, Policy, Variant};
pub use fpcache::fingerprint::{FingerprintWidth, WidthChoice};
pub use fpcache::group_tables::GroupBytes;
pub use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, KeySpace, U64Keys};
pub use fpcache::layout::{RecordShape, RecordToken, TableParameters};
pub use fpcache::message::{
    ErrorCode as RefusalCode, MessageError, NodeStats, Refusal, SocketStats, TableInfo, WriteKind,
    WriteReply, WriteStatus,
};
pub use fpcache::read::{Cost, Expected, Plan, PlanChoice, ReadError};
pub use fpcache::table_view::OpenError;
pub use fpcache::{TableName, TableNameError};
pub use fpcache_fabric::FabricError;
pub use fpcache_fabric::tcp::{Token, TokenError};
pub use key::{AsKey, KeyRef};
pub use load::{Load, Loaded};
pub use pipeline::{Completed, MAX_IN_FLIGHT, Pipeline, WriteTicket};
pub use pool::nodes::{NewTable, Nodes};
pub use read::Found;
pub use reader::{ByteReader, Reader};
pub use session::TableStats;
pub use tables::{CreateOptions, TableList, Tables};
pub use url::{Url, UrlError};
pub use waiting::{wait_for_node, wait_for_node_as};
pub use write::{Changes, CompareAndSet};

/// The snippets of the documents compile, and run where they need no memory node.
#[cfg(all(doctest, feature = "embedded"))]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../README.md")]
    struct OfThisCrate;

    #[doc = include_str!("../../docs/guide.md")]
    struct Guide;
}
