//! Reads of tables over several memory nodes: each range of keys has a way of its own.
//!
//! A call's keys go to the queues of their ranges, where they share doorbell batches with those of
//! other tasks, and a memory node that is silent holds up its own queue alone. A range that has not
//! been connected yet, or is not where the map has it, is read on a thread by the code that the
//! blocking client has for that, and no other range with it: the thread waits for one memory node.

use std::borrow::Borrow;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::read::Side;
use fpcache_fabric::FabricError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout_at;

use super::config::AsyncConfig;
use super::counters::Counts;
use super::group::{Group, Keys, Kind, QueuedRead, Replier, ReplyTo};
use super::look_turns::{LookTurn, LookTurns};
use super::route::{IN_PLACE, ReadRoute};
use super::threads::Threads;
use super::unanswered::runtime_has_ended;
use crate::client::Record;
use crate::core::{Section, SectionRead};
use crate::error::ClientError;
use crate::one_node::with_direct;
use crate::pool::{Pool, Ranges};

/// The ways to all ranges of a table, by the map in use.
pub(super) struct Divided<K: BuildKeys> {
    pool: Arc<Pool<K>>,
    config: AsyncConfig,
    runtime: Handle,
    /// Of all maps' workers.
    counts: Arc<Counts>,
    current: Mutex<Arc<RangeRoutes<K>>>,
}

/// The ways to the ranges of one map. Calls that are under way hold on to those by which they went.
struct RangeRoutes<K: BuildKeys> {
    ranges: Arc<Ranges<K>>,
    /// Of each range, once it is connected.
    ways: Box<[OnceLock<ReadRoute<K>>]>,
    /// Of each range the turn to connect it, or to find out where it is.
    turns: Box<[LookTurns]>,
    /// Of each range those of the client's threads that its calls may take, once one wants any.
    threads: Box<[OnceLock<Threads>]>,
    config: AsyncConfig,
    /// That of the workers.
    runtime: Handle,
    counts: Arc<Counts>,
}

impl<K: BuildKeys> Divided<K> {
    /// The workers are to be that runtime's.
    pub(super) fn new(
        pool: Arc<Pool<K>>,
        config: AsyncConfig,
        runtime: Handle,
        counts: &Arc<Counts>,
    ) -> Self {
        let current = Mutex::new(Arc::new(RangeRoutes::to(pool.ranges(), config, &runtime, counts)));
        Self { pool, config, runtime, counts: Arc::clone(counts), current }
    }

    fn ways(&self) -> Arc<RangeRoutes<K>> {
        // Replaced in one assignment.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.pool.is_in_use(&current.ranges) {
            *current =
                Arc::new(RangeRoutes::to(self.pool.ranges(), self.config, &self.runtime, &self.counts));
        }
        Arc::clone(&current)
    }

    /// Those of the client's threads that calls to the range may take that a section begins in.
    pub(super) fn threads(&self, threads: &Threads, section: &Section<K>) -> Threads {
        let ways = self.ways();
        let (index, ..) = ways.ranges.part_of(&section.span, section.is_down);
        ways.threads(threads, index).clone()
    }

    /// Has one key read.
    pub(super) async fn ask<R>(
        &self,
        threads: &Threads,
        (kind, key): (Kind, K::Owned),
        until: Instant,
        answer: impl Fn(Replier<R>) -> ReplyTo<K>,
    ) -> Result<R, ClientError> {
        loop {
            let ways = self.ways();
            let index = ways.ranges.index_of(key.borrow());
            let keys = || Keys::One(key.clone());
            if let Some(answered) =
                self.ask_range(threads, (&ways, index), (kind, keys), until, &answer).await?
            {
                return Ok(answered);
            }
        }
    }

    /// Has keys read, of all ranges at once, and each range's by themselves: those that have to be
    /// looked for keep no other range, nor its turn, from any call.
    pub(super) async fn ask_all<R>(
        &self,
        threads: &Threads,
        (kind, keys): (Kind, Vec<K::Owned>),
        until: Instant,
        answer: impl Fn(Replier<Vec<R>>) -> ReplyTo<K>,
    ) -> Result<Vec<R>, ClientError> {
        let mut answers: Vec<Option<R>> = keys.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..keys.len()).collect();
        while !left.is_empty() {
            let ways = self.ways();
            let parts = ways.ranges.divide(left.iter().map(|at| (*at, keys[*at].borrow())));
            let parts = parts.iter().enumerate().filter(|(_, part)| !part.is_empty());
            let asked = parts.map(|(index, part)| {
                Box::pin(self.ask_pieces(threads, (&ways, index), (kind, &keys, part), until, &answer))
            });
            for (at, own) in all_of(asked.collect()).await?.into_iter().flatten() {
                answers[at] = Some(own);
            }
            left.retain(|at| answers[*at].is_none());
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Has keys of one range read that are at these places, and gives the answers with theirs: of
    /// what is looked up in place a piece at a time, between which others have their turns. The
    /// rest has no answers if it is to be begun again.
    async fn ask_pieces<R>(
        &self,
        threads: &Threads,
        (ways, index): (&RangeRoutes<K>, usize),
        (kind, keys, part): (Kind, &[K::Owned], &[usize]),
        until: Instant,
        answer: &impl Fn(Replier<Vec<R>>) -> ReplyTo<K>,
    ) -> Result<Vec<(usize, R)>, ClientError> {
        let is_in_place = matches!(ways.way(threads, index), Some(ReadRoute::InPlace(_)));
        let mut answers = Vec::with_capacity(part.len());
        for piece in part.chunks(if is_in_place { IN_PLACE } else { part.len() }) {
            if !answers.is_empty() {
                yield_now().await;
            }
            let own = || Keys::Many(piece.iter().map(|at| keys[*at].clone()).collect());
            let asked = self.ask_range(threads, (ways, index), (kind, own), until, answer).await?;
            let Some(answered) = asked else { break };
            answers.extend(piece.iter().copied().zip(answered));
        }
        Ok(answers)
    }

    /// Has keys of one range read: by its way, or on a thread if it is not connected, or not where
    /// the map has it. `None` if that is to be begun again: there is a newer map, or another call
    /// has got the range back meanwhile, so that its queue answers all who waited.
    async fn ask_range<R>(
        &self,
        threads: &Threads,
        (ways, index): (&RangeRoutes<K>, usize),
        (kind, keys): (Kind, impl Fn() -> Keys<K::Owned>),
        until: Instant,
        answer: &impl Fn(Replier<R>) -> ReplyTo<K>,
    ) -> Result<Option<R>, ClientError> {
        let way = ways.way(threads, index);
        if let Some(way) = way {
            match way.ask(ways.threads(threads, index), (kind, keys()), until, answer).await {
                Err(error) if Pool::<K>::is_gone(&error) => {}
                answered => return answered.map(Some).map_err(|error| ways.ranges.named(index, error)),
            }
        }
        let since = Instant::now();
        let turn = ways.turn(index, until).await?;
        let is_connected = way.is_none() && ways.way(threads, index).is_some();
        if is_connected || !self.pool.is_in_use(&ways.ranges) {
            return Ok(None);
        }
        if let Some(found) = turn.found_since(since, until) {
            return found.map(|()| None);
        }
        let (to, answered) = oneshot::channel();
        let mut group = Group::of(kind, QueuedRead { keys: keys(), answer: answer(to), until });
        let (pool, ranges) = (Arc::clone(&self.pool), Arc::clone(&ways.ranges));
        let read = move || {
            if !group.is_wanted_still() {
                return Ok(true);
            }
            let begun = Instant::now();
            let within = until.saturating_duration_since(begun);
            let looked = pool.at_range(&ranges, index, within, |core, left| {
                with_direct!(core, core => core.here(|held| group.try_to_read(&**core, held, left)))
            });
            // Not when the call is given up: the next one would take another thread.
            turn.end::<K>((begun, until), &looked);
            looked
        };
        match threads.run_alone(read).await?? {
            true => {
                let answer = answered.await.map_err(|_| runtime_has_ended())?;
                answer.map(Some).map_err(|error| ways.ranges.named(index, error))
            }
            false => Ok(None),
        }
    }

    /// The records nearest to keys, in the order of these: in their own ranges, of which all are
    /// asked at once, or in the next ones that have any.
    pub(super) async fn all_nearest(
        &self,
        threads: &Threads,
        (side, keys): (Side, Vec<K::Owned>),
        until: Instant,
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let mut nearest: Vec<Option<Record<K>>> = keys.iter().map(|_| None).collect();
        loop {
            let ways = self.ways();
            let left: Vec<usize> = (0..keys.len()).filter(|at| nearest[*at].is_none()).collect();
            let own = left.iter().map(|at| keys[*at].clone()).collect();
            let own = (Kind::Nearest(side), own);
            let found = self.ask_all(threads, own, until, ReplyTo::AllNearest).await?;
            left.iter().zip(found).for_each(|(at, found)| nearest[*at] = found);
            // With a newer map, other ranges may have been the keys' own.
            let own_are_asked = self.pool.is_in_use(&ways.ranges);
            if own_are_asked
                && self.ask_neighbour_ranges(threads, (&ways, side), (&keys, &mut nearest), until).await?
            {
                return Ok(nearest);
            }
        }
    }

    /// Finds the records nearest to those keys that have none in their own ranges. Each range is
    /// asked once for all that have found nothing before it. `false` if that is to be begun again.
    async fn ask_neighbour_ranges(
        &self,
        threads: &Threads,
        (ways, side): (&RangeRoutes<K>, Side),
        (keys, nearest): (&[K::Owned], &mut [Option<Record<K>>]),
        until: Instant,
    ) -> Result<bool, ClientError> {
        let left = keys.iter().map(Borrow::borrow).enumerate().filter(|(at, _)| nearest[*at].is_none());
        let mut own = ways.ranges.divide(left);
        let mut beyond: Vec<usize> = Vec::new();
        for (index, edge) in ways.ranges.in_search_order(side) {
            if !beyond.is_empty() {
                let asked = (Kind::Nearest(side), || Keys::One(edge.to_owned()));
                let found =
                    self.ask_range(threads, (ways, index), asked, until, &ReplyTo::AllNearest).await?;
                match found.map(|found| found.into_iter().flatten().next()) {
                    Some(None) => {}
                    Some(found) => beyond.drain(..).for_each(|at| nearest[at].clone_from(&found)),
                    None => return Ok(false),
                }
            }
            beyond.append(&mut own[index]);
        }
        Ok(true)
    }

    /// The first part of a section, which ends with the range that it begins in at the latest.
    pub(super) async fn scan_part(
        &self,
        threads: &Threads,
        section: Section<K>,
        until: Instant,
    ) -> Result<SectionRead<K>, ClientError> {
        loop {
            let ways = self.ways();
            let (index, span, beyond) = ways.ranges.part_of(&section.span, section.is_down);
            let own = Section { span, ..section };
            let keys = || Keys::One(own.span.start.clone());
            let answer = |to| ReplyTo::Scanned(own.clone(), to);
            let part = self.ask_range(threads, (&ways, index), (Kind::Scan, keys), until, &answer).await?;
            let Some(SectionRead { records, rest }) = part else { continue };
            // One that is full goes on within the range, if there is another key.
            let within = rest.map(|rest| section.after_part(rest));
            return Ok(SectionRead { records, rest: within.or(beyond) });
        }
    }
}

impl<K: BuildKeys> RangeRoutes<K> {
    fn to(ranges: Arc<Ranges<K>>, config: AsyncConfig, runtime: &Handle, counts: &Arc<Counts>) -> Self {
        let ways = (0..ranges.count()).map(|_| OnceLock::new()).collect();
        let turns = (0..ranges.count()).map(|_| LookTurns::new()).collect();
        let threads = (0..ranges.count()).map(|_| OnceLock::new()).collect();
        Self { ranges, ways, turns, threads, config, runtime: runtime.clone(), counts: Arc::clone(counts) }
    }

    /// Waits for the turn to look for a range.
    async fn turn(&self, index: usize, until: Instant) -> Result<LookTurn, ClientError> {
        let turn = timeout_at(until.into(), self.turns[index].take()).await;
        turn.map_err(|_| {
            let waiting_for = "another call of the client, which connects";
            self.ranges.named(index, FabricError::DeadlinePassed { waiting_for }.into())
        })
    }

    /// Those of the client's `threads` that a range's calls may take.
    fn threads(&self, threads: &Threads, index: usize) -> &Threads {
        self.threads[index].get_or_init(|| threads.for_another())
    }

    /// The way to a range, if it is connected.
    fn way(&self, threads: &Threads, index: usize) -> Option<&ReadRoute<K>> {
        let way = &self.ways[index];
        way.get().or_else(|| {
            let connected = self.ranges.connected(index)?;
            let shared = (&self.counts, self.threads(threads, index));
            Some(way.get_or_init(|| ReadRoute::to(connected, self.config, || self.runtime.clone(), shared)))
        })
    }
}

/// Waits for all of these at once, or until one fails.
async fn all_of<R, F: Future<Output = Result<R, ClientError>>>(
    mut coming: Vec<Pin<Box<F>>>,
) -> Result<Vec<R>, ClientError> {
    let mut came: Vec<Option<R>> = coming.iter().map(|_| None).collect();
    let all = poll_fn(|context| {
        let mut has_all = true;
        for (coming, came) in coming.iter_mut().zip(&mut came).filter(|(_, came)| came.is_none()) {
            match coming.as_mut().poll(context) {
                Poll::Ready(Ok(answer)) => *came = Some(answer),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => has_all = false,
            }
        }
        if has_all { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    all.await?;
    Ok(came.into_iter().flatten().collect())
}
