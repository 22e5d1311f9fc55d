//! Clients for tasks: calls that are awaited, many at a time, without a thread for each.
//!
//! *Where memory is mapped* a read is made by the task itself, between two of its other instructions: it takes half a
//! microsecond, less than handing it to anybody. *Over sockets* tasks put their reads into a queue (`queue.rs`), and a few
//! workers (`worker.rs`), tasks themselves, each take what waits there, all of one kind, as one group: its keys share their doorbell
//! batches, so that a frame carries the READs of many tasks. While a worker waits for its socket the others take what comes
//! meanwhile. *Changes* go through a thread of the client's for each memory node (`changes.rs`), which sends what waits as one
//! request.
//!
//! Of a table over several memory nodes each range has its own queue and workers, or is read in place (`divided.rs`). Where a
//! network card reads, a group is made on a thread for blocking calls, which waits for the card.
//!
//! All of this is the common course. A directory that is out of date, a memory node that has gone, a record that is being written for
//! long: whatever takes more than waiting for a socket is done by the very code that the blocking client has for it, on a thread
//! of the runtime's for blocking calls, by a worker at a time.

mod blocking;
mod changes;
mod divided;
mod drive;
mod group;
mod queue;
mod read;
mod scan;
mod worker;
mod write;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache_fabric::FabricError;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Timeout, timeout_at};

use crate::client::{TableClient, Transport};
use crate::config::ClientConfig;
use crate::core::Core;
use crate::error::ClientError;
use crate::mapped::MappedNode;
use changes::ChangeQueue;
use divided::Divided;
use queue::Counts;
pub use scan::ScanStream;
use worker::Workers;

/// Calls that take blocking threads of the runtime at a time, where no worker makes them.
const BLOCKING: usize = 4;
/// How long after its deadline a call is given up whose worker has not said what became of it.
const GRACE: Duration = Duration::from_millis(20);

/// What a call waits for that is not under way.
const OTHERS: &str = "other calls of the client are served";

/// How tasks' calls get to a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncConfig {
    /// Sockets to a memory node that reads go over, each with a group of them under way at most; where memory is mapped none is
    /// needed. Default 4.
    pub sockets: usize,
    /// Keys that may wait to be read from a memory node, and changes that may wait to be sent; beyond, calls wait before they ask.
    /// Default 4096.
    pub waiting: usize,
}

impl Default for AsyncConfig {
    fn default() -> Self {
        Self { sockets: 4, waiting: 4096 }
    }
}

impl AsyncConfig {
    /// The same with so many sockets, one at least.
    #[must_use]
    pub fn with_sockets(self, sockets: usize) -> Self {
        Self { sockets, ..self }
    }

    /// The same with room for so many keys and changes that wait, one at least.
    #[must_use]
    pub fn with_waiting(self, waiting: usize) -> Self {
        Self { waiting, ..self }
    }
}

/// What calls of tasks over sockets came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncCounters {
    /// Reads that tasks asked for.
    pub calls: u64,
    /// Groups in which they were answered, each at the cost of one call.
    pub groups: u64,
    /// Doorbell batches of these groups that were waited for.
    pub doorbells: u64,
    /// Groups that took a blocking thread: the first of each socket, and those for which something had to be got over.
    pub handed_over: u64,
}

/// A handle on a memory node's table for tasks of a [tokio] runtime, as [`TableClient`] is one for threads. Clones are cheap and share
/// everything; any number of tasks may use one at once, and should: over sockets their reads share doorbell batches.
///
/// Made inside a runtime whose drivers of I/O and time are enabled, and used while that one runs. No call blocks a thread of
/// the runtime; one of its threads for blocking calls is taken, by few calls at a time, to connect, to fetch the table, and to get
/// over whatever a [`TableClient`] gets over.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fpcache_client::ClientError> {
/// use fpcache_client::{AsyncClient, Client};
///
/// // `AsyncClient::connect("tcp://127.0.0.1:7400").await` reaches a memory node outside.
/// let client = AsyncClient::of(Client::embedded(16 << 20)?);
/// client.put(20, &400u64.to_le_bytes()).await?;
/// assert_eq!(client.get(20).await?, Some(400u64.to_le_bytes().to_vec()));
/// let mut records = client.scan(0, usize::MAX);
/// while let Some(record) = records.next().await {
///     let (key, value) = record?;
///     println!("{key}: {value:?}");
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))]
/// # fn main() {}
/// ```
///
/// *Dropped futures.* A read that is dropped is forgotten; its buffers are not the task's. A change that is dropped may
/// take effect or not, never twice, and not after one that was begun later through the same handle or its clones and that is the same
/// memory node's, unless the table is made anew meanwhile: each has them sent in the order in which they were asked for.
///
/// *Deadlines* are those of the [`TableClient`], from the moment of asking on.
///
/// A child that is forked from this process has no threads of the runtime, and makes a client of its own.
pub struct AsyncTableClient<K: BuildKeys> {
    client: TableClient<K>,
    shared: Arc<Shared<K>>,
}

/// An asynchronous client of a table whose keys are `u64`s.
pub type AsyncClient = AsyncTableClient<U64Keys>;

/// An asynchronous client of a table whose keys are byte strings.
pub type AsyncByteClient = AsyncTableClient<ByteKeys>;

/// What all clones have together.
struct Shared<K: BuildKeys> {
    way: Way<K>,
    counts: Arc<Counts>,
    changes: ChangeQueue<K>,
    blocking: Arc<Semaphore>,
}

/// How reads are made.
enum Way<K: BuildKeys> {
    InPlace(Arc<Core<K, MappedNode>>),
    Grouped(Workers<K>),
    /// Of each range by its own way.
    Divided(Divided<K>),
    /// By threads that may block.
    #[cfg(feature = "sim")]
    Blocking,
}

impl<K: BuildKeys> Clone for AsyncTableClient<K> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<K: BuildKeys> AsyncTableClient<K> {
    /// Connects to the memory node at `url`, for its table `default`.
    ///
    /// # Errors
    /// As for [`TableClient::connect`].
    pub async fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_with(url, ClientConfig::default()).await
    }

    /// Connects with settings, to the table that they name, whose keys are of the kind of this client.
    ///
    /// # Errors
    /// As for [`TableClient::connect_with`].
    pub async fn connect_with(url: &str, config: ClientConfig) -> Result<Self, ClientError> {
        let url = url.to_owned();
        let opened = tokio::task::spawn_blocking(move || TableClient::connect_with(&url, config));
        Ok(Self::of(opened.await.map_err(|_| runtime_has_ended())??))
    }

    /// A client for tasks that shares connection and table with one for threads.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn of(client: TableClient<K>) -> Self {
        Self::of_with(client, AsyncConfig::default())
    }

    /// As [`of`](Self::of), with settings.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn of_with(client: TableClient<K>, config: AsyncConfig) -> Self {
        let counts = Arc::<Counts>::default();
        let way = match &client.transport {
            Transport::Mapped(core) => Way::InPlace(Arc::clone(core)),
            Transport::Remote(core) => Way::Grouped(Workers::new(core, config, &Handle::current(), &counts)),
            Transport::Pool(pool) => {
                Way::Divided(Divided::new(Arc::clone(pool), config, Handle::current(), &counts))
            }
            #[cfg(feature = "sim")]
            Transport::Simulated(_) => Way::Blocking,
        };
        let changes = ChangeQueue::new(config.waiting.clamp(1, Semaphore::MAX_PERMITS));
        let shared = Shared { way, counts, changes, blocking: Arc::new(Semaphore::new(BLOCKING)) };
        Self { client, shared: Arc::new(shared) }
    }

    /// The client for threads that this one shares everything with: for what has no asynchronous call, on a thread that may
    /// block.
    pub fn client(&self) -> &TableClient<K> {
        &self.client
    }

    /// The same client with another deadline of calls.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { client: self.client.with_deadline(deadline), shared: Arc::clone(&self.shared) }
    }

    /// What calls over sockets came to; all zero where memory is mapped. Of a table over several memory nodes, of all of them, and also
    /// of those that had it before it was made anew.
    pub fn async_counters(&self) -> AsyncCounters {
        self.shared.counts.counters()
    }

    /// By when a call that begins now must end.
    fn until(&self) -> Instant {
        let now = Instant::now();
        // A century is as good as for ever.
        now.checked_add(self.client.deadline()).unwrap_or(now + Duration::from_secs(3 << 30))
    }
}

/// Waits for a call until its deadline and [`GRACE`] more, in which its worker can report the outcome.
///
/// The call stays pinned where it is: a future passed by value is copied at every step.
fn within<F: Future>(until: Instant, call: Pin<&mut F>) -> Timeout<Pin<&mut F>> {
    timeout_at((until + GRACE).into(), call)
}

/// What served the call ended with its runtime.
fn runtime_has_ended() -> ClientError {
    FabricError::Disconnected { peer: "as seen by a runtime that has ended".into() }.into()
}

impl<K: BuildKeys> fmt::Debug for AsyncTableClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("client", &self.client).finish_non_exhaustive()
    }
}
