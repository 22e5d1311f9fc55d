//! Clients for tasks: calls that are awaited, many at a time, without a thread for each.
//!
//! *Where memory is mapped* a read is made by the task itself, between two of its other instructions: it takes half a
//! microsecond, less than handing it to anybody. *Over sockets* tasks put their reads into a queue (`queue.rs`), and a few
//! workers (`worker.rs`), tasks themselves, each take what waits there, all of one kind, as one group: its keys share their doorbell
//! batches, so that a frame carries the READs of many tasks. While a worker waits for its socket the others take what comes
//! meanwhile. *Changes* go through a thread of the client's (`changes.rs`), which sends what waits as one request.
//!
//! Where a network card reads, a group is made on a thread for blocking calls, which waits for the card.
//!
//! All of this is the common course. A directory that is out of date, a memory node that has gone, a record that is being written for
//! long: whatever takes more than waiting for a socket is done by the very code that the blocking client has for it, on a thread
//! of the runtime's for blocking calls, by a worker at a time.

mod blocking;
mod changes;
mod drive;
mod group;
mod queue;
mod scan;
mod worker;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::layout::RecordToken;
use fpcache::message::{MessageError, WriteReply, WriteStatus};
use fpcache::read::{Outcome, Side, contains, look_up};
use fpcache_fabric::FabricError;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::consume_budget;

use crate::client::{Record, TableClient, Transport};
use crate::config::ClientConfig;
use crate::core::Core;
use crate::error::ClientError;
use crate::key::AsKey;
use crate::mapped::MappedNode;
use crate::write::{Changes, CompareAndSet, outcome};
use changes::ChangeQueue;
use group::{Answer, Asked, Group, Keys, Kind, To};
use queue::Queue;
pub use scan::ScanStream;

/// Calls that take blocking threads of the runtime at a time, where no worker makes them.
const BLOCKING: usize = 4;
/// Keys that a task looks up in place before others have their turn.
const IN_PLACE: usize = 256;
/// How long after its deadline a call is given up whose worker has not said what became of it.
const GRACE: Duration = Duration::from_millis(20);

/// What a call waits for that is not under way.
const OTHERS: &str = "other calls of the client are served";

/// How tasks' calls get to a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncConfig {
    /// Sockets that reads go over, each with a group of them under way at most; where memory is mapped none is needed. Default 4.
    pub sockets: usize,
    /// Keys that may wait to be read, and changes that may wait to be sent; beyond, calls wait before they ask. Default 4096.
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
/// take effect or not, never twice, and not after one that was begun later through the same handle or its clones: they are sent in
/// the order in which they were asked for.
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
    changes: ChangeQueue<K>,
    blocking: Arc<Semaphore>,
}

/// How reads are made.
enum Way<K: BuildKeys> {
    InPlace(Arc<Core<K, MappedNode>>),
    Grouped(Arc<Queue<K>>),
    /// By threads that may block: of tables over several memory nodes, and simulated ones.
    Blocking,
}

impl<K: BuildKeys> Drop for Shared<K> {
    fn drop(&mut self) {
        if let Way::Grouped(queue) = &self.way {
            queue.close();
        }
    }
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
        let way = match &client.transport {
            Transport::Mapped(core) => Way::InPlace(Arc::clone(core)),
            Transport::Remote(core) => {
                let workers = config.sockets.max(1);
                let queue = Arc::new(Queue::new(config.waiting.clamp(1, Semaphore::MAX_PERMITS), workers));
                for _ in 0..workers {
                    tokio::spawn(worker::Worker::new(Arc::clone(core), Arc::clone(&queue)).run());
                }
                Way::Grouped(queue)
            }
            Transport::Pool(_) => Way::Blocking,
            #[cfg(feature = "sim")]
            Transport::Simulated(_) => Way::Blocking,
        };
        let changes = ChangeQueue::new(config.waiting.clamp(1, Semaphore::MAX_PERMITS));
        let shared = Shared { way, changes, blocking: Arc::new(Semaphore::new(BLOCKING)) };
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

    /// What calls over sockets came to; all zero where memory is mapped.
    pub fn async_counters(&self) -> AsyncCounters {
        match &self.shared.way {
            Way::Grouped(queue) => queue.counters(),
            _ => AsyncCounters::default(),
        }
    }

    /// The value of `key`, `None` if it is absent. Costs what [`TableClient::get`] does; tasks that ask at the same time over
    /// sockets share its round trips.
    ///
    /// # Errors
    /// As for [`TableClient::get`].
    pub async fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        if let Way::InPlace(core) = &self.shared.way {
            consume_budget().await;
            let take = |_: &Outcome, value: Option<&[u8]>| value.map(<[u8]>::to_vec);
            let found = core.at_once(|buffers, table| {
                look_up(&mut buffers.endpoint, table, &mut buffers.lookup, key.as_key(), take)
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.ask(Kind::Value, key.as_key(), Answer::Value).await
    }

    /// Whether `key` is there, without its value. As [`TableClient::contains`].
    ///
    /// # Errors
    /// As for [`TableClient::get`].
    pub async fn contains(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        if let Way::InPlace(core) = &self.shared.way {
            consume_budget().await;
            let take = |outcome: &Outcome| outcome.version.is_some();
            let found = core.at_once(|buffers, table| {
                contains(&mut buffers.endpoint, table, &mut buffers.lookup, key.as_key(), take)
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.ask(Kind::Presence, key.as_key(), Answer::IsThere).await
    }

    /// A record's value with the token that [`compare_and_set`](Self::compare_and_set) takes.
    ///
    /// # Errors
    /// As for [`TableClient::get`].
    pub async fn get_versioned(
        &self,
        key: impl AsKey<K>,
    ) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        self.ask(Kind::Value, key.as_key(), Answer::Versioned).await
    }

    /// The values of `keys`, in their order. As [`TableClient::multi_get`].
    ///
    /// # Errors
    /// As for [`TableClient::get`]; the group fails as a whole.
    pub async fn multi_get(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        self.ask_all(Kind::Value, owned(keys), Answer::Values).await
    }

    /// Whether each of `keys` is there, in their order. As [`TableClient::multi_contains`].
    ///
    /// # Errors
    /// As for [`TableClient::get`]; the group fails as a whole.
    pub async fn multi_contains(&self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        self.ask_all(Kind::Presence, owned(keys), Answer::AreThere).await
    }

    /// The record with the greatest key not above `key`. As [`TableClient::floor`].
    ///
    /// # Errors
    /// As for [`TableClient::floor`].
    pub async fn floor(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.ask(Kind::Nearest(Side::Floor), key.as_key(), Answer::Nearest).await
    }

    /// The record with the least key not below `key`. As [`TableClient::ceiling`].
    ///
    /// # Errors
    /// As for [`TableClient::floor`].
    pub async fn ceiling(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.ask(Kind::Nearest(Side::Ceiling), key.as_key(), Answer::Nearest).await
    }

    /// The record with the least key. As [`TableClient::first`].
    ///
    /// # Errors
    /// As for [`TableClient::floor`].
    pub async fn first(&self) -> Result<Option<Record<K>>, ClientError> {
        self.ask(Kind::Nearest(Side::Ceiling), K::lowest(), Answer::Nearest).await
    }

    /// The record with the greatest key. As [`TableClient::last`].
    ///
    /// # Errors
    /// As for [`TableClient::floor`].
    pub async fn last(&self) -> Result<Option<Record<K>>, ClientError> {
        self.ask(Kind::Nearest(Side::Floor), K::highest(), Answer::Nearest).await
    }

    /// [`floor`](Self::floor) for each of `keys`, in their order. As [`TableClient::multi_floor`].
    ///
    /// # Errors
    /// As for [`TableClient::floor`]; the group fails as a whole.
    pub async fn multi_floor(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.ask_all(Kind::Nearest(Side::Floor), owned(keys), Answer::AllNearest).await
    }

    /// [`ceiling`](Self::ceiling) for each of `keys`, in their order. As [`TableClient::multi_ceiling`].
    ///
    /// # Errors
    /// As for [`TableClient::floor`]; the group fails as a whole.
    pub async fn multi_ceiling(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.ask_all(Kind::Nearest(Side::Ceiling), owned(keys), Answer::AllNearest).await
    }

    /// Up to `limit` records in key order, from the least key not below `start`, some hundreds at a time as they are taken.
    /// Ends with the first error. The deadline is of each part.
    pub fn scan(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        ScanStream::new(self, start.as_key().to_owned(), None, limit)
    }

    /// As [`scan`](Self::scan), of keys below `end`.
    pub fn scan_range(&self, start: impl AsKey<K>, end: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        ScanStream::new(self, start.as_key().to_owned(), Some(end.as_key().to_owned()), limit)
    }

    /// Makes a record; `false` if there is one already. As [`TableClient::insert`]; tasks that change records at the same time share
    /// requests.
    ///
    /// # Errors
    /// As for [`TableClient::insert`].
    pub async fn insert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        let mut changes = Changes::default();
        changes.insert(key, value);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Makes a record or replaces its value.
    ///
    /// # Errors
    /// As for [`TableClient::insert`].
    pub async fn put(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), ClientError> {
        let mut changes = Changes::default();
        changes.put(key, value);
        self.change(changes).await.map(drop)
    }

    /// Replaces a record's value; `false` if there is no record.
    ///
    /// # Errors
    /// As for [`TableClient::insert`].
    pub async fn update(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        let mut changes = Changes::default();
        changes.update(key, value);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Removes a record; `false` if there is none.
    ///
    /// # Errors
    /// As for [`TableClient::insert`].
    pub async fn delete(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        let mut changes = Changes::default();
        changes.delete(key);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Replaces a record's value if it is still what it was when it had this token.
    ///
    /// # Errors
    /// As for [`TableClient::insert`].
    pub async fn compare_and_set(
        &self,
        key: impl AsKey<K>,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<CompareAndSet, ClientError> {
        let mut changes = Changes::default();
        changes.compare_and_set(key, expected, value);
        let reply = self.change(changes).await?;
        let nonsense = || MessageError::Malformed("a reply to compare-and-set without a token".into()).into();
        CompareAndSet::of(&reply).ok_or_else(nonsense)
    }

    /// Makes changes, in order, each by itself, and says how each ended. As [`TableClient::apply`].
    ///
    /// # Errors
    /// As for [`TableClient::apply`]; where the first changes were made and a later one could not be, that is
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown), which says how many.
    pub async fn apply(&self, changes: Changes<K>) -> Result<Vec<WriteReply>, ClientError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let until = self.until();
        let (to, answer) = oneshot::channel();
        let queued = self.shared.changes.push(&self.client, changes, until, to);
        let mut is_queued = false;
        let answered = within(until, async {
            queued.await?;
            is_queued = true;
            answer.await.map_err(|_| unknown("the thread that sends changes has ended"))?
        });
        match answered.await {
            Some(answered) => answered,
            None if is_queued => Err(unknown("no reply has come within the deadline")),
            None => Err(FabricError::DeadlinePassed { waiting_for: OTHERS }.into()),
        }
    }

    async fn change(&self, changes: Changes<K>) -> Result<WriteReply, ClientError> {
        let key = changes.first_key().map(ToOwned::to_owned).unwrap_or_default();
        let reply = self.apply(changes).await?.pop();
        let reply = reply.ok_or_else(|| MessageError::Malformed("no reply to a change".into()))?;
        outcome::<K>(std::borrow::Borrow::borrow(&key), reply)
    }

    /// By when a call that begins now must end.
    fn until(&self) -> Instant {
        let now = Instant::now();
        // A century is as good as for ever.
        now.checked_add(self.client.deadline()).unwrap_or(now + Duration::from_secs(3 << 30))
    }

    async fn ask<R>(
        &self,
        kind: Kind,
        key: &K::Key,
        answer: impl FnOnce(To<R>) -> Answer<K>,
    ) -> Result<R, ClientError> {
        let keys = Keys::One(key.to_owned());
        self.ask_for(kind, keys, answer).await
    }

    async fn ask_all<R>(
        &self,
        kind: Kind,
        keys: Vec<K::Owned>,
        answer: impl Fn(To<Vec<R>>) -> Answer<K>,
    ) -> Result<Vec<R>, ClientError> {
        if keys.len() <= IN_PLACE || !matches!(self.shared.way, Way::InPlace(_)) {
            return self.ask_for(kind, Keys::Many(keys), answer).await;
        }
        // A piece at a time, so that others have their turns.
        let mut all = Vec::with_capacity(keys.len());
        for piece in keys.chunks(IN_PLACE) {
            all.extend(self.ask_for(kind, Keys::Many(piece.to_vec()), &answer).await?);
        }
        Ok(all)
    }

    /// Has keys read, and waits for the answer.
    async fn ask_for<R>(
        &self,
        kind: Kind,
        keys: Keys<K::Owned>,
        answer: impl FnOnce(To<R>) -> Answer<K>,
    ) -> Result<R, ClientError> {
        let until = self.until();
        let (to, answered) = oneshot::channel();
        let asked = Asked { keys, answer: answer(to), until };
        let answered = async {
            match &self.shared.way {
                Way::Grouped(queue) => queue.push(kind, asked).await?,
                Way::InPlace(core) => {
                    consume_budget().await;
                    let mut group = Group::of(kind, asked);
                    let read = core.at_once(|buffers, table| group.read_in_place(buffers, table));
                    if read.is_none() {
                        self.read_on_a_blocking_thread(group).await?;
                    }
                }
                Way::Blocking => self.read_on_a_blocking_thread(Group::of(kind, asked)).await?,
            }
            answered.await.map_err(|_| runtime_has_ended())?
        };
        let passed = FabricError::DeadlinePassed { waiting_for: OTHERS };
        within(until, answered).await.unwrap_or_else(|| Err(passed.into()))
    }

    /// Has a group read as the client for threads does, of which few are at a time.
    async fn read_on_a_blocking_thread(&self, group: Group<K>) -> Result<(), ClientError> {
        let turn = Arc::clone(&self.shared.blocking).acquire_owned().await;
        let client = self.client.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            group.read_by(&client);
        });
        read.await.map_err(|_| runtime_has_ended())
    }
}

/// Waits until a call's deadline, and a little longer so that whoever works on it says what became of it.
async fn within<R>(until: Instant, call: impl Future<Output = R>) -> Option<R> {
    tokio::time::timeout_at((until + GRACE).into(), call).await.ok()
}

fn owned<K: BuildKeys>(keys: &[impl AsKey<K>]) -> Vec<K::Owned> {
    keys.iter().map(|key| key.as_key().to_owned()).collect()
}

/// What served the call ended with its runtime.
fn runtime_has_ended() -> ClientError {
    FabricError::Disconnected { peer: "as seen by a runtime that has ended".into() }.into()
}

fn unknown(why: &str) -> ClientError {
    ClientError::OutcomeUnknown { why: why.to_owned() }
}

impl AsyncByteClient {
    /// Up to `limit` records whose keys begin with `prefix`, as [`scan`](AsyncTableClient::scan).
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>, limit: usize) -> ScanStream<ByteKeys> {
        let prefix = prefix.as_ref();
        ScanStream::new(self, prefix.to_owned(), crate::client::end_of_prefix(prefix), limit)
    }
}

impl<K: BuildKeys> fmt::Debug for AsyncTableClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("client", &self.client).finish_non_exhaustive()
    }
}
