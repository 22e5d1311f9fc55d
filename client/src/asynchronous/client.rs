//! A table's handle for tasks.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::layout::TableParameters;
use fpcache::message::NodeStats;
use fpcache_fabric::FabricError;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::changes::ChangeQueue;
use super::config::AsyncConfig;
use super::counters::{AsyncCounters, Counts};
use super::range_routes::Divided;
use super::route::ReadRoute;
use super::threads::Threads;
use super::unanswered::{EITHER, NO_TIME, OTHERS, runtime_has_ended, within};
use crate::client::{TableClient, Transport};
use crate::config::{ClientConfig, CreateOptions};
use crate::error::ClientError;

/// A handle on a memory node's table for tasks of a [tokio] runtime, as [`TableClient`] is one for
/// threads. Clones are cheap and share everything; any number of tasks may use one at once, and
/// should: over sockets their reads share doorbell batches.
///
/// Made and used inside a runtime whose drivers of I/O and time are enabled. What serves calls over
/// sockets lives in the runtime that the client was made in, which has to go on running; once that
/// has ended it goes on in the runtime of the next call, and reads that were under way end with an
/// error that can be retried. No call blocks a thread of the runtime; one of its threads for
/// blocking calls is taken, by few calls at a time, to connect, to fetch the table, and to get over
/// whatever a [`TableClient`] gets over.
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
/// *Dropped futures.* A read that is dropped is forgotten; its buffers are not the task's. A change
/// that is dropped may take effect or not, never twice, and not after one that was begun later
/// through the same handle or its clones and that is the same memory node's, unless the table is
/// made anew meanwhile, or it waited for [room](AsyncConfig::waiting): each has them sent in the order
/// in which they were asked for or found room.
///
/// *Deadlines* are those of the [`TableClient`], from the moment of asking on. Unless it says
/// otherwise, a call fails as the one of its name there does.
///
/// A child that is forked from this process has no threads of the runtime, and makes a client of
/// its own.
pub struct AsyncTableClient<K: BuildKeys> {
    pub(super) client: TableClient<K>,
    pub(super) shared: Arc<HandleState<K>>,
}

/// An asynchronous client of a table whose keys are `u64`s.
pub type AsyncClient = AsyncTableClient<U64Keys>;

/// An asynchronous client of a table whose keys are byte strings.
pub type AsyncByteClient = AsyncTableClient<ByteKeys>;

/// What all clones have together.
pub(super) struct HandleState<K: BuildKeys> {
    pub(super) route: Route<K>,
    counts: Arc<Counts>,
    pub(super) changes: ChangeQueue<K>,
    pub(super) threads: Threads,
}

/// By what route reads go.
pub(super) enum Route<K: BuildKeys> {
    /// To the one memory node of the table.
    One(ReadRoute<K>),
    /// Of each range by its own way.
    Divided(Divided<K>),
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

    /// Connects with settings, to the table that they name, whose keys are of the kind of this
    /// client.
    ///
    /// # Errors
    /// As for [`TableClient::connect_with`].
    pub async fn connect_with(url: &str, config: ClientConfig) -> Result<Self, ClientError> {
        Self::connect_with_options(url, config, AsyncConfig::default()).await
    }

    /// As [`connect_with`](Self::connect_with), and with settings for tasks, as
    /// [`of_with`](Self::of_with).
    ///
    /// # Errors
    /// As for [`TableClient::connect_with`].
    pub async fn connect_with_options(
        url: &str,
        config: ClientConfig,
        options: AsyncConfig,
    ) -> Result<Self, ClientError> {
        let url = url.to_owned();
        let opened = tokio::task::spawn_blocking(move || TableClient::connect_with(&url, config));
        Ok(Self::of_with(opened.await.map_err(|_| runtime_has_ended())??, options))
    }

    /// Opens the table that the settings name, and creates it with these parameters if it does not
    /// exist, as [`TableClient::open_or_create`] does.
    ///
    /// # Errors
    /// As for [`TableClient::open_or_create`].
    pub async fn open_or_create(
        url: &str,
        config: ClientConfig,
        parameters: TableParameters,
        options: CreateOptions,
    ) -> Result<Self, ClientError> {
        let url = url.to_owned();
        let open = move || TableClient::open_or_create(&url, config, parameters, options);
        let opened = tokio::task::spawn_blocking(open);
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
        let (counts, threads) = (Arc::<Counts>::default(), Threads::new());
        let route = match &client.transport {
            Transport::One(direct) => {
                Route::One(ReadRoute::to(direct, config, Handle::current, (&counts, &threads)))
            }
            Transport::Pool(pool) => {
                Route::Divided(Divided::new(Arc::clone(pool), config, Handle::current(), &counts))
            }
        };
        let changes = ChangeQueue::new(config.waiting.clamp(1, Semaphore::MAX_PERMITS));
        let shared = HandleState { route, counts, changes, threads };
        Self { client, shared: Arc::new(shared) }
    }

    /// The client for threads that this one shares everything with: for what has no asynchronous
    /// call, on a thread that may block.
    pub fn client(&self) -> &TableClient<K> {
        &self.client
    }

    /// The memory node's counters. As [`TableClient::stats`], on a thread that may block.
    pub async fn stats(&self) -> Result<NodeStats, ClientError> {
        self.on_thread(TableClient::stats).await
    }

    /// The time until the memory node has answered a request of this call. As
    /// [`TableClient::ping`], on a thread that may block, for which it waits before.
    pub async fn ping(&self) -> Result<Duration, ClientError> {
        self.on_thread(TableClient::ping).await
    }

    /// Makes a call as a client for threads does.
    async fn on_thread<R: Send + 'static>(
        &self,
        call: impl FnOnce(&TableClient<K>) -> Result<R, ClientError> + Send + 'static,
    ) -> Result<R, ClientError> {
        let (client, until, threads) = (self.client.clone(), self.until(), &self.shared.threads);
        let call = move || call(&client.with_deadline(until.saturating_duration_since(Instant::now())));
        self.in_time(until, pin!(async { threads.run(call).await? })).await
    }

    /// The same client with another deadline of calls.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { client: self.client.with_deadline(deadline), shared: Arc::clone(&self.shared) }
    }

    /// Counters of calls over sockets; all zero where memory is mapped. For a table over several
    /// memory nodes, of all of them, and also of those that had it before it was made anew.
    pub fn async_counters(&self) -> AsyncCounters {
        self.shared.counts.counters()
    }

    /// How long a call may take.
    pub(super) fn deadline(&self) -> Duration {
        self.client.deadline
    }

    /// By when a call that begins now must end.
    pub(super) fn until(&self) -> Instant {
        let now = Instant::now();
        // A century is as good as for ever.
        now.checked_add(self.deadline()).unwrap_or(now + Duration::from_secs(3 << 30))
    }

    /// The answer of a call, or an error if it does not come by its deadline.
    pub(super) async fn in_time<R>(
        &self,
        until: Instant,
        call: Pin<&mut impl Future<Output = Result<R, ClientError>>>,
    ) -> Result<R, ClientError> {
        match within(until, call).await {
            Ok(answered) => answered.map_err(|error| self.or_deadline_passed(error)),
            Err(_) => {
                Err(self.or_deadline_passed(FabricError::DeadlinePassed { waiting_for: EITHER }.into()))
            }
        }
    }

    /// The error of a call, which has not waited for others if it had no time to.
    pub(super) fn or_deadline_passed(&self, error: ClientError) -> ClientError {
        let why = match &error {
            ClientError::Fabric(why) | ClientError::NodeAway { error: why, .. } => why,
            _ => return error,
        };
        let is_of_turn = matches!(why, FabricError::DeadlinePassed { waiting_for: OTHERS | EITHER });
        match is_of_turn && self.deadline().is_zero() {
            true => FabricError::DeadlinePassed { waiting_for: NO_TIME }.into(),
            false => error,
        }
    }
}

impl<K: BuildKeys> fmt::Debug for AsyncTableClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("client", &self.client).finish_non_exhaustive()
    }
}
