//! Pipelines: writes in flight while their thread continues.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::time::Duration;
use std::{fmt, thread};

use crossbeam::utils::Backoff;
use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::layout::RecordToken;
use fpcache::message::{Sent, WriteKind, WriteOperation, WriteReply};
use fpcache::read::Cost;

use crate::answers::{Answers, Found};
use crate::changes::outcome;
#[cfg(doc)]
use crate::client::Client;
use crate::client::TableClient;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::key::AsKey;
use crate::write_lanes::WriteLane;

/// The most writes that one pipeline has in flight.
pub const MAX_IN_FLIGHT: usize = 64;

/// The pause between two looks at writes at several memory nodes.
const NAP: Duration = Duration::from_micros(50);

/// Identifies a write of a pipeline. Tickets count up in the order of the writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteTicket(u64);

/// The outcome of a write of a pipeline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Completed<K: BuildKeys = U64Keys> {
    /// The ticket that posting it returned.
    pub ticket: WriteTicket,
    /// The record's key.
    pub key: K::Owned,
    /// The memory node's reply, or the error, as of the same call of [`Client`].
    pub outcome: Result<WriteReply, ClientError>,
}

/// Several writes in flight from one thread, which continues meanwhile.
///
/// Posting a write sends it and returns, which takes a fraction of a round trip. Up to `depth`
/// writes are in flight; a further one waits until one of them is answered. Outcomes are kept, at
/// about a hundred bytes each, until [`poll`](Self::poll), [`next`](Self::next) or
/// [`finish`](Self::finish) returns them: collect them regularly.
///
/// ```
/// # #[cfg(feature = "embedded")] {
/// use fpcache_client::{Client, TableParameters};
///
/// # fn main() -> Result<(), fpcache_client::ClientError> {
/// let client = Client::embedded(16 << 20)?;
/// client.create(TableParameters::default())?;
/// let mut pipeline = client.pipeline(4)?;
/// for key in 0..100u64 {
///     pipeline.put(key, &key.to_le_bytes())?;
/// }
/// assert_eq!(pipeline.get(99)?, Some(99u64.to_le_bytes().to_vec()));
/// for ended in pipeline.finish() {
///     ended.outcome?;
/// }
/// # Ok(()) }
/// # main().unwrap();
/// # }
/// ```
///
/// *Order.* Writes of one key take effect in the order in which they were posted, writes of
/// different keys in any order. A read through the pipeline waits for this pipeline's writes of the
/// same keys and sees them; a read through the [`Client`] is concurrent with them, like one of
/// another thread. Every write takes effect at one instant between posting and completion.
///
/// *At most once.* Each lane has its own connection and identity, so that a repeated write is not
/// executed twice. The memory node remembers 1,024 identities and by default accepts 1,024
/// connections; depth times pipelines should stay well below that. A lane is opened by the first
/// pipeline that needs it, which takes about a millisecond, and is reused by later ones; between
/// pipelines no more than 64 are kept for each memory node, and the others are closed.
///
/// *Failures.* After [`ClientError::OutcomeUnknown`] the write may still take effect, but not after
/// a later write of the same key by this pipeline. Unless it says otherwise, a call that reads
/// fails as [`Client::get`] does, and one that writes as [`insert`](Self::insert).
///
/// Dropping a pipeline waits for its writes, each until its deadline, and discards their outcomes.
pub struct Pipeline<K: BuildKeys = U64Keys> {
    client: TableClient<K>,
    lanes: Vec<Box<dyn WriteLane<K>>>,
    /// Writes in flight, in the order in which they were posted.
    flying: VecDeque<Flying<K::Owned>>,
    /// Lanes without a write; the one that was used last is taken first.
    free: Vec<usize>,
    /// Keys with a write that may yet take effect, and the lanes, with the identity on each, whose
    /// next answer says that it will not. An answer to another identity of the lane, which another
    /// memory node gave, says nothing of it.
    doubts: Vec<(K::Owned, (usize, usize))>,
    completed: VecDeque<Completed<K>>,
    posted: u64,
}

/// A pipeline into a table whose keys are byte strings.
pub type BytePipeline = Pipeline<ByteKeys>;

/// A write in flight.
#[derive(Clone, Debug)]
struct Flying<Key> {
    key: Key,
    ticket: WriteTicket,
    lane: usize,
}

impl<K: BuildKeys> TableClient<K> {
    /// A pipeline with up to `depth` writes in flight, at least one and at most [`MAX_IN_FLIGHT`]:
    /// a `depth` of 0 is taken for 1, a greater one for that; [`Pipeline::depth`] returns what it
    /// is. Two to four suffice for a thread that reads more than it writes.
    ///
    /// # Errors
    /// The memory node is down, or accepts no more connections.
    pub fn pipeline(&self, depth: usize) -> Result<Pipeline<K>, ClientError> {
        let depth = depth.clamp(1, MAX_IN_FLIGHT);
        Ok(Pipeline {
            client: self.clone(),
            lanes: (0..depth).map(|_| self.lane()).collect::<Result<_, _>>()?,
            flying: VecDeque::with_capacity(depth),
            free: (0..depth).rev().collect(),
            doubts: Vec::new(),
            completed: VecDeque::new(),
            posted: 0,
        })
    }
}

impl<K: BuildKeys> Pipeline<K> {
    /// Posts an insert, which completes with [`Exists`](crate::WriteStatus::Exists) if the record
    /// exists. A value longer than a request is first sent ahead in pieces, which this call waits
    /// for.
    ///
    /// # Errors
    /// As for [`Client::insert`]; nothing was sent. Later errors are in the write's outcome.
    pub fn insert(&mut self, key: impl AsKey<K>, value: &[u8]) -> Result<WriteTicket, ClientError> {
        self.change(WriteKind::Insert, key.as_key(), value)
    }

    /// Posts a put, which inserts the record or replaces its value.
    pub fn put(&mut self, key: impl AsKey<K>, value: &[u8]) -> Result<WriteTicket, ClientError> {
        self.change(WriteKind::Put, key.as_key(), value)
    }

    /// Posts an update, which completes with [`Absent`](crate::WriteStatus::Absent) if the record
    /// does not exist.
    #[inline]
    pub fn update(&mut self, key: impl AsKey<K>, value: &[u8]) -> Result<WriteTicket, ClientError> {
        self.change(WriteKind::Update, key.as_key(), value)
    }

    /// Posts a delete, which completes with [`Absent`](crate::WriteStatus::Absent) if the record
    /// does not exist.
    pub fn delete(&mut self, key: impl AsKey<K>) -> Result<WriteTicket, ClientError> {
        self.change(WriteKind::Delete, key.as_key(), &[])
    }

    /// Posts a compare-and-set, which replaces the value if the record still has this token;
    /// [`CompareAndSet::of`](crate::CompareAndSet::of) decodes the reply.
    pub fn compare_and_set(
        &mut self,
        key: impl AsKey<K>,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<WriteTicket, ClientError> {
        let (kind, key, value) = (WriteKind::CompareAndSet, key.as_key(), Sent::Here(value));
        self.post(&WriteOperation { kind, key, hint: None, expected, value })
    }

    /// As [`Client::get`], after this pipeline's writes of the key.
    pub fn get(&mut self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        self.settle_key(key.as_key());
        self.client.get(key)
    }

    /// As [`Client::get_into`], after this pipeline's writes of the key.
    #[inline]
    pub fn get_into(&mut self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        self.settle_key(key.as_key());
        self.client.get_into(key, value)
    }

    /// As [`Client::get_versioned`], after this pipeline's writes of the key.
    pub fn get_versioned(
        &mut self,
        key: impl AsKey<K>,
    ) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        self.settle_key(key.as_key());
        self.client.get_versioned(key)
    }

    /// As [`Client::multi_get_into`], after this pipeline's writes of the keys.
    pub fn multi_get_into(
        &mut self,
        keys: &[impl AsKey<K>],
        answers: &mut Answers,
    ) -> Result<(), ClientError> {
        while let Some(at) =
            self.flying.iter().rposition(|write| keys.iter().any(|key| key.as_key() == write.key.borrow()))
        {
            self.settle(at);
        }
        self.client.multi_get_into(keys, answers)
    }

    /// As [`Client::scan_with`], after all writes of this pipeline.
    pub fn scan_with<F: ScanFlow>(
        &mut self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.settle_all();
        self.client.scan_with(start, limit, take)
    }

    /// The number of writes in flight.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// The maximum number of writes in flight.
    pub fn depth(&self) -> usize {
        self.flying.len() + self.free.len()
    }

    /// The next outcome that is available without waiting, in order of arrival: a look at each
    /// write in flight until one has ended. A write that must be sent again because its connection
    /// broke is waited for; one whose memory node is silent ends with its deadline.
    #[inline]
    #[must_use = "it has the outcome of a write"]
    pub fn poll(&mut self) -> Option<Completed<K>> {
        if self.completed.is_empty() {
            self.take_answered();
        }
        self.completed.pop_front()
    }

    /// The next outcome; if none is available, waits for a write in flight: the oldest, or that of
    /// the memory node which answers first. `None` if all outcomes were returned.
    #[allow(clippy::should_implement_trait, reason = "more writes may be posted after a `None`")]
    #[must_use = "it has the outcome of a write"]
    pub fn next(&mut self) -> Option<Completed<K>> {
        if self.completed.is_empty() && !self.flying.is_empty() {
            self.settle_one();
        }
        self.completed.pop_front()
    }

    /// Waits for all writes, and returns the remaining outcomes in the order of posting.
    #[must_use = "writes that failed are told of here alone"]
    pub fn finish(mut self) -> Vec<Completed<K>> {
        self.settle_all();
        let mut completed: Vec<Completed<K>> = std::mem::take(&mut self.completed).into();
        completed.sort_unstable_by_key(|completed| completed.ticket);
        completed
    }

    /// Waits for all writes; their outcomes are kept.
    pub fn settle_all(&mut self) {
        while !self.flying.is_empty() {
            self.settle(0);
        }
    }

    #[inline]
    fn change(&mut self, kind: WriteKind, key: &K::Key, value: &[u8]) -> Result<WriteTicket, ClientError> {
        let (expected, value) = (RecordToken::default(), Sent::Here(value));
        self.post(&WriteOperation { kind, key, hint: None, expected, value })
    }

    fn post(&mut self, operation: &WriteOperation<'_, &K::Key>) -> Result<WriteTicket, ClientError> {
        let key = operation.key;
        // Of one key one write is in flight: so they stay in order.
        self.settle_key(key);
        let lane = self.take_lane(key);
        if let Err(error) = self.lanes[lane].post(operation, self.client.deadline) {
            self.free.push(lane);
            return Err(error);
        }
        let ticket = WriteTicket(self.posted);
        self.posted += 1;
        self.flying.push_back(Flying { key: key.to_owned(), ticket, lane });
        Ok(ticket)
    }

    /// A lane for a write of a key. If an earlier write of the key may yet take effect, it is that
    /// one's lane: the memory node refuses it once it has this one. Other keys take such lanes
    /// last, lest that write has to wait for theirs.
    fn take_lane(&mut self, key: &K::Key) -> usize {
        // Its lane is the one that was used most, and its reply is likely to be there.
        self.take_if_answered(0);
        let doubtful =
            self.doubts.iter().find(|(other, _)| other.borrow() == key).map(|(_, (lane, _))| *lane);
        if let Some(lane) = doubtful {
            if let Some(at) = self.flying.iter().position(|write| write.lane == lane) {
                self.settle(at);
            }
            self.free.retain(|free| *free != lane);
            return lane;
        }
        loop {
            let is_clear = |lane: &usize| self.doubts.iter().all(|(_, (other, _))| other != lane);
            if let Some(at) = self.free.iter().rposition(is_clear) {
                return self.free.remove(at);
            }
            match self.free.pop() {
                Some(lane) => return lane,
                // There is one at least, so that all are in flight.
                None => self.settle_one(),
            }
        }
    }

    /// Takes the end of the oldest write whose end is known, if there is one.
    #[inline]
    fn take_answered(&mut self) -> bool {
        (0..self.flying.len()).any(|at| self.take_if_answered(at))
    }

    /// Takes the end of a write in flight if it is known.
    #[inline]
    fn take_if_answered(&mut self, at: usize) -> bool {
        if let Some(lane) = self.flying.get(at).map(|write| write.lane)
            && let Some(reply) = self.lanes[lane].settle_if_answered()
            && let Some(write) = self.flying.remove(at)
        {
            self.ended(write, reply);
            return true;
        }
        false
    }

    /// Waits for one of the writes in flight: for the oldest, if all are at one memory node. One
    /// that is silent does not withhold what others answer.
    fn settle_one(&mut self) {
        let backoff = Backoff::new();
        let nodes = |write: &Flying<_>| self.lanes[write.lane].node();
        if self.flying.iter().map(nodes).is_sorted_by(PartialEq::eq) {
            return self.settle(0);
        }
        while !self.take_answered() {
            if backoff.is_completed() {
                thread::sleep(NAP);
            } else {
                backoff.snooze();
            }
        }
    }

    /// Waits for the write of a key, if one is in flight.
    #[inline]
    fn settle_key(&mut self, key: &K::Key) {
        if let Some(at) = self.flying.iter().position(|write| write.key.borrow() == key) {
            self.settle(at);
        }
    }

    /// Waits for a write in flight.
    fn settle(&mut self, at: usize) {
        if let Some(write) = self.flying.remove(at) {
            let reply = self.lanes[write.lane].settle();
            self.ended(write, reply);
        }
    }

    fn ended(
        &mut self,
        Flying { key, ticket, lane }: Flying<K::Owned>,
        reply: Result<WriteReply, ClientError>,
    ) {
        self.free.push(lane);
        let way = (lane, self.lanes[lane].identity());
        match &reply {
            Ok(_) => self.doubts.retain(|(_, other)| *other != way),
            Err(ClientError::OutcomeUnknown { .. }) => {
                // Those that are told once, and of tables that are there, do not pile up.
                let lanes = &self.lanes;
                self.doubts.retain(|(other, (lane, identity))| {
                    (other != &key || (*lane, *identity) != way) && lanes[*lane].has_identity(*identity)
                });
                self.doubts.push((key.clone(), way));
            }
            Err(_) => {}
        }
        let outcome = reply
            .and_then(|reply| outcome::<K>(key.borrow(), reply))
            .map_err(|error| self.client.naming_node(key.borrow(), error));
        self.completed.push_back(Completed { ticket, key, outcome });
    }
}

impl<K: BuildKeys> Drop for Pipeline<K> {
    fn drop(&mut self) {
        // A thread that panics is not to be held up.
        if !thread::panicking() {
            self.settle_all();
        }
    }
}

impl<K: BuildKeys> fmt::Debug for Pipeline<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("client", &self.client)
            .field("depth", &self.depth())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "embedded"))]
#[path = "pipeline_tests.rs"]
mod tests;
