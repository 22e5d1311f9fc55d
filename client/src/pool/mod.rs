//! Tables over several memory nodes.
//!
//! A [`Pool`] has the calls of a [`Core`](crate::core::Core), which is for a table on one memory
//! node. It knows the table's partition map and has a core for each range, connected on first use.
//! The name of a range's table is never reused for other keys, so a core can be out of date but not
//! wrong: when its table is gone, the map is fetched again.

mod map_retries;
pub(crate) mod maps;
mod ordered;
pub(crate) mod overtaken;
mod range;
pub(crate) mod range_lanes;
mod read;
mod renewing;
mod stats;
pub(crate) mod table_creation;
pub(crate) mod trusted_nodes;
mod write;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crossbeam::utils::CachePadded;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::RecordShape;
use fpcache::map::{MapState, RangeMap};
use fpcache::matching::Matcher;
use fpcache::message::ErrorCode;
use fpcache::read::Outcomes;
use fpcache_fabric::tcp::Token;
use thread_local::ThreadLocal;

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::one_node::{ReaderCore, SharedCore, with_direct};
use crate::thread_exit::{ThreadRelease, here};
use crate::timed_lock::TimedLock;
use crate::url::Url;
#[cfg(feature = "tokio")]
pub(crate) use map_retries::is_much_longer;
use map_retries::{ENOUGH_FOR_A_MAP, FailedMapSearch, Tries};
use maps::{Answered, Chosen, choose, fetch_all};
use range::PoolRange;
pub(crate) use range::Ranges;
use trusted_nodes::follow;

/// What all handles of a client of a table over several memory nodes share.
pub(crate) struct Pool<K: BuildKeys> {
    config: ClientConfig,
    /// The memory nodes that the client was given.
    urls: Vec<Url>,
    matcher: Matcher,
    current: Mutex<Arc<Ranges<K>>>,
    /// The number of the map in use: those who hold another one notice by it.
    number: CachePadded<AtomicU64>,
    /// One thread at a time fetches maps.
    renewing: TimedLock,
    /// The last time that there was no newer map.
    failed_search: Mutex<Option<FailedMapSearch>>,
    threads: ThreadLocal<RefCell<PoolHeld<K>>>,
    weak_self: Weak<Self>,
}

/// What one reader holds of a pool.
#[derive(Default)]
pub(crate) struct PoolHeld<K: BuildKeys> {
    ranges: Option<Arc<Ranges<K>>>,
    /// Of each range the reader's place, once it has one.
    held: Vec<Option<ReaderCore<K>>>,
    /// Of a group of keys the ranges that they are of.
    assigned: Vec<u16>,
    /// Of each range the answers for its part of a group, and those of all in the order of the
    /// keys.
    parts: Vec<Outcomes>,
    answers: Outcomes,
}

/// What came of looking for the map of a table.
pub(crate) enum Looked<K: BuildKeys> {
    Found(Arc<Pool<K>>),
    /// No memory node has one.
    Nothing,
    /// Those that answered have none, and this is the error of one that did not; or there is only
    /// one that is not whole yet, which perhaps never will be, and this says so.
    Unknown(ClientError),
}

impl<K: BuildKeys> Pool<K> {
    /// A client of the table that the settings name, if one of these memory nodes publishes a map
    /// of it; they are asked in turn.
    pub(crate) fn open(
        urls: &[Url],
        config: &ClientConfig,
        within: Duration,
    ) -> Result<Looked<K>, ClientError> {
        let tries = Tries::begun(within);
        let mut found: Vec<(String, RangeMap)> = Vec::new();
        let (mut asked, mut slowest): (Vec<Url>, _) = (Vec::new(), Duration::ZERO);
        let mut unanswered = None;
        let mut ask = |others: &[Url], within: Duration, found: &mut Vec<(String, RangeMap)>| {
            let new: Vec<Url> = others.iter().filter(|url| !asked.contains(url)).cloned().collect();
            for (url, answer) in fetch_all(&new, config, within) {
                match answer {
                    Ok(Answered { map, took }) => {
                        slowest = slowest.max(took);
                        found.extend(map.map(|map| (url.to_string(), map)));
                    }
                    Err(error) => unanswered = Some(error),
                }
                asked.push(url);
            }
            slowest
        };
        for (at, url) in urls.iter().enumerate() {
            // A machine that is silent must not take all of the call's time.
            let share = tries.left() / ((urls.len() - at) as u32 + 1);
            let slowest = ask(std::slice::from_ref(url), share, &mut found);
            let Chosen::Whole(map) = choose(&found, None)? else { continue };
            // A memory node that was away may have the map of a table that was dropped since. One
            // that is silent is not waited for as long as one whose keys are asked for.
            let others: Result<Vec<Url>, _> =
                map.ranges.iter().map(|range| follow(&range.node, urls)).collect();
            ask(&others?, ENOUGH_FOR_A_MAP.max(slowest * 4).min(tries.left() / 2), &mut found);
            match choose(&found, None)? {
                Chosen::Whole(map) if !map.kind.is::<K>() => {
                    return Err(ClientError::OtherKeys { theirs: map.kind, own: K::NAME });
                }
                Chosen::Whole(map) => return Self::over(map, urls.to_vec(), config).map(Looked::Found),
                Chosen::NotWhole(_) | Chosen::Nothing => {}
            }
        }
        match choose(&found, None)? {
            // It hides no table of its name that another memory node has whole.
            Chosen::NotWhole(map) if map.state == MapState::Making => {
                Ok(Looked::Unknown(maps::not_whole(&map)))
            }
            Chosen::NotWhole(map) => Err(maps::not_whole(&map)),
            _ => Ok(unanswered.map_or(Looked::Nothing, Looked::Unknown)),
        }
    }

    /// A client of the table that has this map, whole or not.
    pub(crate) fn over(
        map: RangeMap,
        urls: Vec<Url>,
        config: &ClientConfig,
    ) -> Result<Arc<Self>, ClientError> {
        let ranges = Arc::new(Ranges::of(map, 0, None, &urls)?);
        Ok(Arc::new_cyclic(|weak_self| Self {
            config: config.clone(),
            urls,
            matcher: Matcher::detect(),
            current: Mutex::new(ranges),
            number: CachePadded::new(AtomicU64::new(0)),
            renewing: TimedLock::default(),
            failed_search: Mutex::new(None),
            threads: ThreadLocal::new(),
            weak_self: Weak::clone(weak_self),
        }))
    }

    /// The memory nodes that the client was given.
    pub(crate) fn urls(&self) -> &[Url] {
        &self.urls
    }

    /// The token that the client was given, if any.
    pub(crate) fn token(&self) -> Option<Token> {
        self.config.token
    }

    /// Runs `f` with what the calling thread holds.
    #[inline]
    pub(crate) fn here<R>(&self, f: impl FnOnce(&mut PoolHeld<K>) -> R) -> R {
        here(&self.threads, |held| held.ranges.is_none().then(|| self.weak_self.clone()), f)
    }

    /// The ranges of the map in use.
    pub(crate) fn ranges(&self) -> Arc<Ranges<K>> {
        Arc::clone(&self.lock())
    }

    /// Whether these are the ranges of the map in use.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_in_use(&self, ranges: &Ranges<K>) -> bool {
        ranges.number == self.number.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Ranges<K>>> {
        // Replaced in one assignment.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a reader go by the map in use, and gives its ranges.
    #[inline]
    fn follow(&self, held: &mut PoolHeld<K>) -> Arc<Ranges<K>> {
        match &held.ranges {
            Some(ranges) if ranges.number == self.number.load(Ordering::Acquire) => Arc::clone(ranges),
            _ => self.replace_ranges(held),
        }
    }

    #[cold]
    fn replace_ranges(&self, held: &mut PoolHeld<K>) -> Arc<Ranges<K>> {
        let ranges = self.ranges();
        held.held = ranges.ranges.iter().map(|_| None).collect();
        held.parts = ranges.ranges.iter().map(|_| Outcomes::default()).collect();
        held.ranges = Some(Arc::clone(&ranges));
        ranges
    }

    /// Whether a range's call failed as where the range is not, so that there may be a newer map.
    pub(crate) fn is_gone(error: &ClientError) -> bool {
        match error {
            ClientError::NoSuchTable { .. } => true,
            ClientError::Refused(refusal) => matches!(refusal.code, ErrorCode::WrongRange { .. }),
            _ => false,
        }
    }

    /// Of each range what `of` says of it and its core, in the time that is left, in the order of
    /// keys.
    fn each<R>(
        &self,
        within: Duration,
        mut of: impl FnMut(&PoolRange<K>, &SharedCore<K>, Duration) -> Result<R, ClientError>,
    ) -> Result<Vec<R>, ClientError> {
        let mut tries = Tries::begun(within);
        loop {
            let ranges = self.ranges();
            let asked: Result<Vec<R>, _> = (0..ranges.ranges.len())
                .map(|index| {
                    let core = ranges.core(index, &self.config, &tries);
                    let asked = core.and_then(|core| of(&ranges.ranges[index], core, tries.left()));
                    asked.map_err(|error| (index, error))
                })
                .collect();
            match asked {
                Ok(all) => return Ok(all),
                Err((index, error)) => self.recover_range(&ranges, index, error, &mut tries)?,
            }
        }
    }

    /// All ranges in the order of keys: the key that each ends before, the URL of its memory node,
    /// and its core.
    #[allow(clippy::type_complexity, reason = "taken apart at once")]
    pub(crate) fn connected(
        &self,
        within: Duration,
    ) -> Result<Vec<(Option<K::Owned>, String, SharedCore<K>)>, ClientError> {
        self.each(within, |range, core, _| Ok((range.end.clone(), range.url.to_string(), core.clone())))
    }

    /// How records lie in slots: in all ranges alike that have parameters, so that it is as the
    /// first one says that can be asked. If there is none, but one is not where the map has it,
    /// there may be a newer map.
    pub(crate) fn shape(&self, within: Duration) -> Result<RecordShape, ClientError> {
        let mut tries = Tries::begun(within);
        loop {
            let ranges = self.ranges();
            let mut told = Err(ClientError::Open(fpcache::table_view::OpenError::Empty));
            let mut gone = None;
            for index in 0..ranges.ranges.len() {
                let share = tries.left() / (ranges.ranges.len() - index) as u32;
                told = match self.shape_of(&ranges, index, share) {
                    Err(error) if Self::is_gone(&error) => {
                        gone.get_or_insert((index, error.clone()));
                        Err(error)
                    }
                    Ok(shape) => return Ok(shape),
                    Err(error) => Err(error),
                };
            }
            match gone {
                Some((index, error)) => self.recover_range(&ranges, index, error, &mut tries)?,
                None => return told,
            }
        }
    }

    /// Has something done at the range of a key, and goes on with a newer map if it is not there.
    fn at_range_of<R>(
        &self,
        key: &K::Key,
        within: Duration,
        mut run: impl FnMut(&Ranges<K>, usize, &Tries) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let mut tries = Tries::begun(within);
        loop {
            let ranges = self.ranges();
            let index = ranges.index_of(key);
            match run(&ranges, index, &tries) {
                Err(error) => self.recover_range(&ranges, index, error, &mut tries)?,
                done => return done,
            }
        }
    }

    fn shape_of(
        &self,
        ranges: &Ranges<K>,
        index: usize,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        let tries = Tries::begun(within);
        with_direct!(ranges.core(index, &self.config, &tries)?, core => core.shape(tries.left()))
    }

    /// What the keys of the table are.
    pub(crate) fn key_kind(&self, _: Duration) -> Result<Option<KeyKind>, ClientError> {
        Ok(Some(self.ranges().map.kind))
    }

    /// The creation number of the table's map.
    pub(crate) fn creation(&self) -> u64 {
        self.ranges().map.creation
    }

    /// The URL of the memory node that has a key.
    pub(crate) fn node_of(&self, key: &K::Key) -> String {
        let ranges = self.ranges();
        ranges.ranges[ranges.index_of(key)].url.to_string()
    }
}

impl<K: BuildKeys> ThreadRelease for Pool<K> {
    fn leave(&self) {
        if let Some(held) = self.threads.get() {
            held.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use fpcache::key_space::U64Keys;

    use super::*;

    /// The time of a change began with its first failure, so that it took twice as long.
    #[test]
    fn a_change_whose_time_is_over_does_not_look_for_a_newer_map() {
        let within = Duration::from_millis(5);
        let name: fpcache::TableName = "t".parse().expect("a name");
        let nodes = ["shm://nobody-is-here".to_owned()];
        let made = RangeMap::divide(name, KeyKind::U64, 7, &nodes, &[]).expect("a map");
        let whole = made.next(MapState::Whole).expect("a version");
        let urls = vec![nodes[0].parse().expect("a URL")];
        let pool = Pool::<U64Keys>::over(whole, urls, &ClientConfig::default()).expect("a pool");
        let mut had = Vec::new();
        let ended: Result<(), _> = pool.at_range_of(&5, within, |_, _, tries| {
            had.push(tries.left());
            std::thread::sleep(2 * within);
            Err(ClientError::NoSuchTable { why: "it has moved".to_owned() })
        });
        let error = ended.expect_err("it is not there").to_string();
        // A look for a newer map would have found that the memory node is not there.
        assert!(error.contains("it has moved"), "{error}");
        assert!(had.len() == 1 && had[0] <= within, "{had:?}");
    }
}
