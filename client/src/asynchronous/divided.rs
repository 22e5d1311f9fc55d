//! Reads of tables over several memory nodes: each range of keys has a way of its own.
//!
//! A call's keys go to the queues of their ranges, where they share doorbell batches with those of other tasks, and a memory node
//! that is silent holds up its own queue alone. A range that has not been connected yet, or is not where the map has it, is left
//! to the code that the blocking client has for that.

use std::borrow::Borrow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::read::Side;
use tokio::runtime::Handle;
use tokio::sync::oneshot::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::AsyncConfig;
use super::counters::Counts;
use super::group::{Answer, Keys, Kind, Part, To};
use super::threads::Threads;
use super::unanswered::runtime_has_ended;
use super::way::{IN_PLACE, Way};
use super::worker::Workers;
use crate::client::Record;
use crate::error::ClientError;
use crate::pool::{Direct, Pool, Ranges};

/// The ways to all ranges of a table, by the map in use.
pub(super) struct Divided<K: BuildKeys> {
    pool: Arc<Pool<K>>,
    config: AsyncConfig,
    runtime: Handle,
    /// Of all maps' workers.
    counts: Arc<Counts>,
    current: Mutex<Arc<Ways<K>>>,
}

/// The ways to the ranges of one map. Calls that are under way hold on to those by which they went.
struct Ways<K: BuildKeys> {
    ranges: Arc<Ranges<K>>,
    /// Of each range, once it is connected.
    ways: Box<[OnceLock<Way<K>>]>,
    /// Of each range the turn to connect it, or to find out where it is.
    turns: Box<[Arc<Semaphore>]>,
    config: AsyncConfig,
    /// That of the workers.
    runtime: Handle,
    counts: Arc<Counts>,
}

/// The turn of a range, for as long as it is held.
type Turn = OwnedSemaphorePermit;

/// What came of asking several ranges at once.
enum Together<R> {
    Answered(Result<Vec<R>, ClientError>),
    /// They are more keys of one range than a task looks up in place.
    TooMany,
    /// A range is not connected, or may be elsewhere by now.
    Elsewhere,
}

/// A part of a call, and the range that it was asked of.
type Asked<R> = (usize, Receiver<Result<R, ClientError>>);

impl<K: BuildKeys> Divided<K> {
    /// The workers are to be that runtime's.
    pub(super) fn new(
        pool: Arc<Pool<K>>,
        config: AsyncConfig,
        runtime: Handle,
        counts: &Arc<Counts>,
    ) -> Self {
        let current = Mutex::new(Arc::new(Ways::to(pool.ranges(), config, &runtime, counts)));
        Self { pool, config, runtime, counts: Arc::clone(counts), current }
    }

    fn ways(&self) -> Arc<Ways<K>> {
        // Replaced in one assignment.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.pool.goes_by(&current.ranges) {
            *current = Arc::new(Ways::to(self.pool.ranges(), self.config, &self.runtime, &self.counts));
        }
        Arc::clone(&current)
    }

    /// Has one key read.
    pub(super) async fn ask<R>(
        &self,
        threads: &Threads<K>,
        (kind, key): (Kind, K::Owned),
        until: Instant,
        answer: impl Fn(To<R>) -> Answer<K>,
    ) -> Result<R, ClientError> {
        let ways = self.ways();
        let index = ways.ranges.index_of(key.borrow());
        let again = Keys::One(key.clone());
        let turn = ways.turn_to_connect(index).await;
        match ways.ask(threads, index, (kind, Keys::One(key)), until, &answer).await {
            Some(answered) => answered,
            None => threads.ask((kind, again), until, answer, ways.turn(index, turn).await).await,
        }
    }

    /// Has keys read, of all ranges at once.
    pub(super) async fn ask_all<R>(
        &self,
        threads: &Threads<K>,
        (kind, keys): (Kind, Vec<K::Owned>),
        until: Instant,
        answer: impl Fn(To<Vec<R>>) -> Answer<K>,
    ) -> Result<Vec<R>, ClientError> {
        let ways = self.ways();
        let turns = ways.turns(&keys, true).await;
        match ways.ask_all(threads, (kind, &keys), until, &answer).await {
            Together::Answered(answered) => answered,
            Together::TooMany => threads.ask((kind, Keys::Many(keys)), until, answer, ()).await,
            Together::Elsewhere => {
                // Everybody takes them in one order.
                drop(turns);
                let turns = ways.turns(&keys, false).await;
                threads.ask((kind, Keys::Many(keys)), until, answer, turns).await
            }
        }
    }

    /// The record nearest to a key, in its range or in the next one that has any.
    pub(super) async fn nearest(
        &self,
        threads: &Threads<K>,
        (side, key): (Side, K::Owned),
        until: Instant,
    ) -> Result<Option<Record<K>>, ClientError> {
        let ways = self.ways();
        let (kind, mut index) = (Kind::Nearest(side), ways.ranges.index_of(key.borrow()));
        let mut from = key.clone();
        loop {
            let turn = ways.turn_to_connect(index).await;
            match ways.ask(threads, index, (kind, Keys::One(from)), until, &Answer::Nearest).await {
                Some(Ok(None)) => {}
                Some(answered) => return answered,
                None => {
                    let turn = ways.turn(index, turn).await;
                    return threads.ask((kind, Keys::One(key)), until, Answer::Nearest, turn).await;
                }
            }
            // Beyond the key's own range all records of a range are on the side that is asked for.
            (index, from) = match side {
                Side::Floor if index > 0 => (index - 1, K::highest().to_owned()),
                Side::Ceiling if index + 1 < ways.ranges.count() => (index + 1, K::lowest().to_owned()),
                _ => return Ok(None),
            };
        }
    }

    /// The records nearest to keys, in the order of these.
    pub(super) async fn all_nearest(
        &self,
        threads: &Threads<K>,
        (side, keys): (Side, Vec<K::Owned>),
        until: Instant,
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let own = (Kind::Nearest(side), keys.clone());
        let mut nearest = self.ask_all(threads, own, until, Answer::AllNearest).await?;
        for (nearest, key) in nearest.iter_mut().zip(keys) {
            if nearest.is_none() {
                *nearest = self.nearest(threads, (side, key), until).await?;
            }
        }
        Ok(nearest)
    }

    /// The first part of a scan, which ends with the range of its start at the latest.
    pub(super) async fn scan_part(
        &self,
        threads: &Threads<K>,
        (from, end): (K::Owned, Option<K::Owned>),
        limit: usize,
        until: Instant,
    ) -> Result<Part<K>, ClientError> {
        let ways = self.ways();
        let index = ways.ranges.index_of(from.borrow());
        let before = |own: &&K::Owned| end.as_ref().is_none_or(|end| *own < end);
        let own_end = ways.ranges.end_of(index).filter(before).cloned();
        let until_key = own_end.clone().or_else(|| end.clone());
        let answer = |to| Answer::Scanned(until_key.clone(), limit, to);
        let keys = Keys::One(from.clone());
        let turn = ways.turn_to_connect(index).await;
        match ways.ask(threads, index, (Kind::Scan, keys), until, &answer).await {
            // One that is full goes on within the range, if there is another key.
            Some(part) => part.map(|Part { records, next }| Part { records, next: next.or(own_end) }),
            None => {
                let answer = |to| Answer::Scanned(end.clone(), limit, to);
                let turn = ways.turn(index, turn).await;
                threads.ask((Kind::Scan, Keys::One(from)), until, answer, turn).await
            }
        }
    }
}

impl<K: BuildKeys> Ways<K> {
    fn to(ranges: Arc<Ranges<K>>, config: AsyncConfig, runtime: &Handle, counts: &Arc<Counts>) -> Self {
        let ways = (0..ranges.count()).map(|_| OnceLock::new()).collect();
        let turns = (0..ranges.count()).map(|_| Arc::new(Semaphore::new(1))).collect();
        Self { ranges, ways, turns, config, runtime: runtime.clone(), counts: Arc::clone(counts) }
    }

    /// The turn to connect a range; `None` if it is connected by now.
    async fn turn_to_connect(&self, index: usize) -> Option<Turn> {
        if self.way(index).is_some() {
            return None;
        }
        self.turn(index, None).await.filter(|_| self.way(index).is_none())
    }

    /// The turn of a range, if it is not had already, for those who look for it on a thread, of which there are few: of all who
    /// want keys of a memory node that is gone or says nothing, one does so.
    async fn turn(&self, index: usize, had: Option<Turn>) -> Option<Turn> {
        match had {
            // Nobody closes it.
            None => Arc::clone(&self.turns[index]).acquire_owned().await.ok(),
            had => had,
        }
    }

    /// The turns of all ranges that these lie in, in the order in which everybody takes them; or of those of them that are to be
    /// connected.
    async fn turns(&self, keys: &[K::Owned], only_to_connect: bool) -> Vec<Turn> {
        let mut turns = Vec::new();
        let is_wanted = |index| keys.iter().any(|key| self.ranges.index_of(key.borrow()) == index);
        for index in 0..self.ranges.count() {
            if only_to_connect && self.way(index).is_some() || !is_wanted(index) {
                continue;
            }
            turns.extend(match only_to_connect {
                true => self.turn_to_connect(index).await,
                false => self.turn(index, None).await,
            });
        }
        turns
    }

    /// The way to a range, if it is connected.
    fn way(&self, index: usize) -> Option<&Way<K>> {
        let way = &self.ways[index];
        way.get().or_else(|| {
            let connected = self.ranges.connected(index)?;
            Some(way.get_or_init(|| match connected {
                Direct::Mapped(core) => Way::InPlace(Arc::clone(core)),
                Direct::Remote(core) => {
                    Way::Grouped(Workers::new(core, self.config, &self.runtime, &self.counts))
                }
            }))
        })
    }

    /// Has keys of one range read. `None` if that has to be asked otherwise.
    async fn ask<R>(
        &self,
        threads: &Threads<K>,
        index: usize,
        asked: (Kind, Keys<K::Owned>),
        until: Instant,
        answer: &impl Fn(To<R>) -> Answer<K>,
    ) -> Option<Result<R, ClientError>> {
        let begun = self.way(index)?.begin(threads, asked, until, answer);
        let answered = match begun.answered().await {
            Ok(answered) => answered.await.unwrap_or_else(|_| Err(runtime_has_ended())),
            Err(error) => Err(error),
        };
        self.settle(index, answered)
    }

    /// As [`ask`](Self::ask), of keys of any ranges, in their order.
    async fn ask_all<R>(
        &self,
        threads: &Threads<K>,
        (kind, keys): (Kind, &[K::Owned]),
        until: Instant,
        answer: &impl Fn(To<Vec<R>>) -> Answer<K>,
    ) -> Together<R> {
        let mut parts: Vec<Vec<K::Owned>> = self.ways.iter().map(|_| Vec::new()).collect();
        let indices: Vec<usize> = keys.iter().map(|key| self.ranges.index_of(key.borrow())).collect();
        for (index, key) in indices.iter().zip(keys) {
            parts[*index].push(key.clone());
        }
        let mut asked: Vec<Asked<Vec<R>>> = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let Some(way) = self.way(index) else { return Together::Elsewhere };
            if part.len() > IN_PLACE && matches!(way, Way::InPlace(_)) {
                return Together::TooMany;
            }
            match way.begin(threads, (kind, Keys::Many(part)), until, answer).answered().await {
                Ok(answered) => asked.push((index, answered)),
                Err(error) => {
                    return self.settle(index, Err(error)).map_or(Together::Elsewhere, Together::Answered);
                }
            }
        }
        let mut answers: Vec<_> = self.ways.iter().map(|_| Vec::new().into_iter()).collect();
        for (index, answered) in asked {
            match self.settle(index, answered.await.unwrap_or_else(|_| Err(runtime_has_ended()))) {
                Some(Ok(part)) => answers[index] = part.into_iter(),
                Some(Err(error)) => return Together::Answered(Err(error)),
                None => return Together::Elsewhere,
            }
        }
        Together::Answered(Ok(indices.into_iter().filter_map(|index| answers[index].next()).collect()))
    }

    /// What a range's answer is to the call; `None` if the range may be elsewhere by now.
    fn settle<R>(&self, index: usize, answered: Result<R, ClientError>) -> Option<Result<R, ClientError>> {
        match answered {
            Err(error) if Pool::<K>::is_gone(&error) => None,
            answered => Some(answered.map_err(|error| self.ranges.named(index, error))),
        }
    }
}
