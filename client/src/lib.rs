//! The client library of FPCache.
//!
//! A [`Client`] looks up keys in a memory node: in another process, named by a URL, or, with the
//! feature `embedded`, in this process. Lookups are one-sided: over shared memory the memory node's
//! processor is not involved; over sockets dedicated threads answer the READs, or look single keys
//! and small groups up themselves. One handle serves any number of threads; a thread that does many
//! lookups should have its own [`Reader`].
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
//! # Features
//!
//! None is on by default.
//!
//! | Feature | Adds |
//! |---|---|
//! | `embedded` | `Client::embedded`: a memory node in this process |
//! | `tokio` | `AsyncClient`, for tasks of a tokio runtime, which share requests |
//! | `tls` | memory nodes at `tcps://`; builds with a C compiler |
//! | `rdma` | memory nodes at `rdma://`; needs libibverbs |
//! | `sim` | memory nodes of a simulated world, for tests |
//!
//! # Tables
//!
//! A memory node serves named tables; a client is connected to one of them, `default` unless
//! [`ClientConfig::table`] names another. [`Tables`] lists, creates and drops them. When its table
//! is dropped, a client's calls fail with [`ClientError::NoSuchTable`], until a table of the same
//! name and kind is created. While that one has no parameters ([`Tables::create`] gives it none),
//! calls of clients that have used a former one with parameters fail with [`ClientError::Emptied`],
//! until another client writes to it or loads it, or [`accept_loss`](Client::accept_loss) is called. While one
//! over several memory nodes is being created, loaded or dropped, they fail with
//! [`ClientError::TableNotWhole`].
//!
//! # Keys
//!
//! A [`Client`] is for tables with `u64` keys, a [`ByteClient`] for tables with keys that are byte
//! strings of 1 B to 4 KiB, in lexicographic order; the API is the same. The kind of keys is fixed
//! when a table is created; [`Client::key_kind`] returns it. Composite keys are encoded as byte
//! strings with [`encode`](mod@encode). Reading an invalid key (empty or too long) finds nothing;
//! writing one is an error.
//!
//! # Values
//!
//! The [`RecordShape`] of a table says whether all its values have one length or whether they vary.
//! Values of variable length have up to 16 MiB. A value is stored in the slot with its key if both
//! fit into its `room`; otherwise it is external, and the slot holds a reference of 16 bytes.
//! Values in slots are cheapest to read, but all slots have the same size: choose a room that fits
//! most values without wasting much.
//!
//! # Cost
//!
//! A `get` costs one or two dependent round trips, by the [`Plan`]; [`PlanChoice::Auto`] takes the
//! cheapest for each key:
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
//! There is one more round trip when the slot from the hot cache holds another key, one when a page
//! of the directory must be fetched because it does not fit the budget, and one when a plan falls
//! back to a range read. An external value costs one more round trip with any plan;
//! [`Client::contains`] avoids it. `multi_get` takes as many round trips for 4,096 keys as the
//! slowest of them needs. [`Client::get_into`] returns the plan and the [`Cost`] of each lookup.
//!
//! A change costs one round trip, a request to the memory node's processor, which makes all changes
//! of its tables; [`Client::fetch_update`] costs a lookup and a change. Many changes share requests
//! in [`Client::apply`], and wait for none of each other's round trips in a [`Pipeline`].
//!
//! # Failures
//!
//! [`ClientError::is_retryable`] says whether the same call may succeed later, and other predicates
//! of [`ClientError`] what happened. When the memory node restarts, the next call reconnects and
//! discards everything that was fetched before. Until it is back, reads and new writes fail at
//! once, while writes under way wait for it until their deadline. A thread that makes no more calls
//! keeps its share of the old table until it ends.
//!
//! # Forks
//!
//! A process may fork while none of its threads is inside a call of this library, as Python's
//! `multiprocessing` does. The child can use the handles it inherited: its first calls open new
//! connections, with new identities for its writes, and the parent is not affected. Writes that a
//! [`Pipeline`] had in flight belong to the parent; in the child they end with
//! [`ClientError::OutcomeUnknown`]. A [`Load`] ends with the fork in the child. An embedded memory
//! node stays in the parent: the child's calls fail with
//! [`LeftBehind`](fpcache_fabric::FabricError::LeftBehind).

#![forbid(unsafe_code)]

mod access;
mod answers;
#[cfg(feature = "tokio")]
mod asynchronous;
mod changes;
mod client;
mod config;
mod connect;
mod core;
mod counters;
mod differences;
#[cfg(feature = "embedded")]
mod embedded;
mod empty_tables;
pub mod encode;
mod error;
mod error_kind;
mod error_predicates;
mod flow;
mod handles;
mod inserting;
mod key;
mod key_kind;
mod load;
mod load_errors;
mod mapped;
mod nodes;
mod one_node;
mod open_table;
mod opening;
mod ordered;
mod outcomes;
mod pipeline;
mod pool;
mod reader;
mod records;
mod remote;
mod scans;
mod session;
#[cfg(feature = "sim")]
mod simulated;
mod span;
mod tables;
mod thread_exit;
mod timed_lock;
mod url;
mod waiting;
mod write;
mod write_lanes;

pub use answers::{Answers, Found};
#[cfg(feature = "tokio")]
pub use asynchronous::{
    AsyncByteClient, AsyncClient, AsyncConfig, AsyncCounters, AsyncTableClient, RecordStream, ScanStream,
};
pub use changes::{ByteChanges, Changes, CompareAndSet, Inserted};
pub use client::{ByteClient, Client, Record, TableClient};
pub use config::{ClientConfig, CreateOptions};
pub use counters::Counters;
pub use encode::{DecodeKey, OrderedKey, decode, encode};
pub use error::{ClientError, ErrorKind};
pub use flow::ScanFlow;
pub use fpcache::cache::{
    CacheConfig, CacheStats, OnConflict, Policy, UnknownOnConflict, UnknownPolicy, UnknownVariant, Variant,
};
pub use fpcache::fingerprint::{
    FingerprintWidth, UnknownChoice as UnknownWidthChoice, UnknownWidth, WidthChoice,
};
pub use fpcache::group_tables::GroupBytes;
pub use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, KeySpace, U64Keys, UnknownKeyKind};
pub use fpcache::layout::{
    ChosenFor, Corrupt, GroupChoice, GroupForm, Grouping, ParameterError, RecordShape, RecordToken,
    SuperblockError, TableParameters, TableRecord, UnknownGroupForm,
};
pub use fpcache::map::MapError;
pub use fpcache::message::{
    ErrorCode as RefusalCode, MessageError, NodeStats, Refusal, SocketStats, TableInfo, WriteKind,
    WriteReply, WriteStatus,
};
pub use fpcache::plan::{Expected, FabricCosts, Plan, PlanChoice, UnknownPlan};
pub use fpcache::read::{Cost, ReadError};
pub use fpcache::table_view::OpenError;
pub use fpcache::{TableName, TableNameError};
pub use fpcache_fabric::shm::ShmAddress;
pub use fpcache_fabric::tcp::{TcpAddress, Token, TokenError};
pub use fpcache_fabric::{ErrorKind as FabricErrorKind, FabricError};
pub use key::{AsKey, KeyRef};
pub use load::{Load, Loaded};
pub use nodes::{NewTable, Nodes};
pub use pipeline::{BytePipeline, Completed, MAX_IN_FLIGHT, Pipeline, WriteTicket};
pub use reader::{ByteReader, Reader};
pub use records::Records;
pub use session::TableStats;
pub use tables::{DividedTable, TableList, Tables, wait_for_node, wait_for_node_with};
pub use url::{Url, UrlError};

/// The choice of a table's parameters from a sample of its keys: [`tune`](tuning::tune).
pub mod tuning {
    pub use fpcache::tuning::{
        Candidate, Considered, FingerprintWorth, Forced, KeySample, Lookups, Split, TuneError, Tuned, Way,
        tune,
    };
}

/// The snippets of the documents compile, and run where they need no memory node.
#[cfg(all(doctest, feature = "embedded"))]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../README.md")]
    struct OfThisCrate;

    /// Some of its snippets are of tasks.
    #[cfg_attr(feature = "tokio", doc = include_str!("../../docs/guide.md"))]
    struct Guide;
}
