//! Tables over several memory nodes.
//!
//! A [`Pool`] has the calls of a [`Core`](crate::core::Core), which is for a table on one memory
//! node. It knows the table's partition map and has a core for each range, connected on first use.
//! The name of a range's table is never reused for other keys, so a core can be out of date but not
//! wrong: when its table is gone, the map is fetched again.
//!
//! | module | holds |
//! |---|---|
//! | `maps` | the maps that memory nodes publish, and which of them counts |
//! | `range` | the ranges of a map, each connected or not |
//! | `read`, `ordered`, `write` | the calls |
//! | `stats` | statistics of all memory nodes |
//! | `lanes` | writes in flight |
//! | `nodes` | creating and dropping such tables |
//! | `making` | the protocol for that |

mod lanes;
mod making;
mod maps;
pub(crate) mod nodes;
mod ordered;
#[cfg(feature = "tokio")]
mod part;
mod range;
mod read;
mod stats;
mod write;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use fpcache::key_space::{BuildKeys, KeyKind, KeySpace};
use fpcache::layout::RecordShape;
use fpcache::map::{MapState, RangeMap};
use fpcache::matching::Matcher;
use fpcache::message::ErrorCode;
use fpcache::read::Outcomes;
use fpcache_fabric::{Deadline, FabricError, SystemClock};
use thread_local::ThreadLocal;

use crate::client::TableClient;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::leave::{Leave, when_thread_ends};
use crate::turn::Turn;
use crate::url::Url;
pub(crate) use lanes::PoolLanes;
use maps::{Answered, Chosen, choose, fetch_all};
pub(crate) use range::{Direct, Ranges};
use range::{DirectHeld, Spot};

/// How often a call continues with a newer map before it gives up.
const MAPS: u32 = 8;

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
    renewing: Turn,
    /// The last time that there was no newer map.
    fruitless: Mutex<Option<Fruitless>>,
    threads: ThreadLocal<RefCell<PoolHeld<K>>>,
    me: Weak<Self>,
}

/// What one reader holds of a pool.
pub(crate) struct PoolHeld<K: BuildKeys> {
    ranges: Option<Arc<Ranges<K>>>,
    /// Of each range what a reader holds of its core.
    held: Vec<DirectHeld<K>>,
    /// Of a group of keys the ranges that they are of.
    assigned: Vec<u16>,
    answers: Outcomes,
}

impl<K: BuildKeys> Default for PoolHeld<K> {
    fn default() -> Self {
        Self { ranges: None, held: Vec::new(), assigned: Vec::new(), answers: Outcomes::default() }
    }
}

/// A client of one range, with the key that the range ends before.
pub(crate) type RangeClient<K> = (Option<<K as KeySpace>::Owned>, TableClient<K>);

/// What was found when there was no newer map.
#[derive(Clone, Debug)]
struct Fruitless {
    /// The number of the map that was in use, and when its memory nodes began to be asked.
    number: u64,
    begun: Instant,
    found: NoNewer,
}

/// What memory nodes said of a table of which there was no newer map.
#[derive(Clone, Debug)]
pub(super) struct NoNewer {
    /// The memory nodes that have ranges of the same table still, and have it for whole.
    with_it: Vec<String>,
    /// One that could not be asked.
    silent: Option<String>,
}

/// What a look for a newer map has found.
enum Renewed {
    Newer,
    Not(NoNewer),
}

/// Within this time, or four times that of the slowest answer, memory nodes tell the map of a table
/// that another one has told. A first packet that is lost is sent again after a second: one that is
/// away may have the map of a table that was dropped since, which those who answer late know.
const ENOUGH_FOR_A_MAP: Duration = Duration::from_millis(1500);

/// The least time between two searches for a newer map that find none, of all threads.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A call's patience with maps that change.
struct Tries {
    within: Duration,
    started: Option<Instant>,
    maps: u32,
}

impl Tries {
    fn new(within: Duration) -> Self {
        Self { within, started: None, maps: 0 }
    }

    /// Of a call that asks several memory nodes: its time begins now.
    fn begun(within: Duration) -> Self {
        Self { within, started: Some(Instant::now()), maps: 0 }
    }

    /// What is left of the call's time, which begins with its first failure.
    fn left(&self) -> Duration {
        self.started.map_or(self.within, |started| self.within.saturating_sub(started.elapsed()))
    }
}

impl<K: BuildKeys> Pool<K> {
    /// A client of the table that the settings name, if one of these memory nodes publishes a map
    /// of it; they are asked in turn. `None` if those that answer have none.
    pub(crate) fn open(
        urls: &[Url],
        config: &ClientConfig,
        within: Duration,
    ) -> Result<Option<Arc<Self>>, ClientError> {
        let tries = Tries::begun(within);
        let mut found: Vec<(String, RangeMap)> = Vec::new();
        let (mut asked, mut slowest): (Vec<Url>, _) = (Vec::new(), Duration::ZERO);
        let mut ask = |others: &[Url], within: Duration, found: &mut Vec<(String, RangeMap)>| {
            let new: Vec<Url> = others.iter().filter(|url| !asked.contains(url)).cloned().collect();
            for (url, answer) in fetch_all(&new, config, within) {
                if let Ok(Answered { map, took }) = answer {
                    slowest = slowest.max(took);
                    found.extend(map.map(|map| (url.to_string(), map)));
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
            let others: Result<Vec<Url>, _> = map.ranges.iter().map(|range| range.node.parse()).collect();
            ask(&others?, ENOUGH_FOR_A_MAP.max(slowest * 4).min(tries.left() / 2), &mut found);
            match choose(&found, None)? {
                Chosen::Whole(map) if !map.kind.is::<K>() => {
                    return Err(ClientError::OtherKeys { theirs: map.kind, own: K::NAME });
                }
                Chosen::Whole(map) => return Self::over(map, urls.to_vec(), config).map(Some),
                Chosen::NotWhole(_) | Chosen::Nothing => {}
            }
        }
        match choose(&found, None)? {
            Chosen::NotWhole(map) => Err(maps::not_whole(&map)),
            _ => Ok(None),
        }
    }

    /// A client of the table that has this map, whole or not.
    pub(crate) fn over(
        map: RangeMap,
        urls: Vec<Url>,
        config: &ClientConfig,
    ) -> Result<Arc<Self>, ClientError> {
        let ranges = Arc::new(Ranges::of(map, 0, None)?);
        Ok(Arc::new_cyclic(|me| Self {
            config: *config,
            urls,
            matcher: Matcher::detect(),
            current: Mutex::new(ranges),
            number: CachePadded::new(AtomicU64::new(0)),
            renewing: Turn::default(),
            fruitless: Mutex::new(None),
            threads: ThreadLocal::new(),
            me: Weak::clone(me),
        }))
    }

    /// The memory nodes that the client was given.
    pub(crate) fn urls(&self) -> &[Url] {
        &self.urls
    }

    /// Runs `f` with what the calling thread holds.
    #[inline]
    pub(crate) fn here<R>(&self, f: impl FnOnce(&mut PoolHeld<K>) -> R) -> R {
        // Nothing that runs inside calls back into this client.
        let mut held = self.threads.get_or_default().borrow_mut();
        if held.ranges.is_none() {
            when_thread_ends(Weak::<Self>::clone(&self.me));
        }
        f(&mut held)
    }

    /// The ranges of the map in use.
    pub(crate) fn ranges(&self) -> Arc<Ranges<K>> {
        Arc::clone(&self.lock())
    }

    /// Whether these are the ranges of the map in use.
    #[cfg(feature = "tokio")]
    pub(crate) fn goes_by(&self, ranges: &Ranges<K>) -> bool {
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
            _ => self.follow_anew(held),
        }
    }

    #[cold]
    fn follow_anew(&self, held: &mut PoolHeld<K>) -> Arc<Ranges<K>> {
        let ranges = self.ranges();
        held.held = ranges.ranges.iter().map(|_| DirectHeld::Nothing).collect();
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

    /// Prepares a retry after a range's call failed: finds a newer map, if the range is not where
    /// this one has it. Else gives the error, which names the memory node.
    #[cold]
    fn get_over(
        &self,
        ranges: &Ranges<K>,
        index: usize,
        error: ClientError,
        tries: &mut Tries,
    ) -> Result<(), ClientError> {
        let failed = Instant::now();
        tries.started.get_or_insert(failed);
        let is_gone = Self::is_gone(&error);
        tries.maps += 1;
        // The creator of a table means the ranges that it created, and no others of its name.
        let is_final = ranges.map.state != MapState::Whole;
        if !is_gone || is_final || tries.maps > MAPS || tries.left().is_zero() {
            return Err(ranges.named(index, error));
        }
        match self.renew(ranges, failed, tries)? {
            Renewed::Newer => Ok(()),
            Renewed::Not(found) => Err(ranges.lost(index, error, &self.config, &found, tries.left())),
        }
    }

    /// Finds a map that is newer than the one of these ranges, with which a call `failed` at that
    /// time. Never goes back to an older one. However many calls fail, it is looked for ten times a
    /// second.
    fn renew(&self, seen: &Ranges<K>, failed: Instant, tries: &Tries) -> Result<Renewed, ClientError> {
        let turn = self.renewing.take(Deadline::after(tries.left()), &SystemClock);
        let _turn = turn.ok_or(FabricError::DeadlinePassed {
            waiting_for: "another thread, which fetches the table's map",
        })?;
        if self.number.load(Ordering::Acquire) != seen.number {
            return Ok(Renewed::Newer);
        }
        let last = self.fruitless().clone().filter(|last| last.number == seen.number);
        if let Some(last) = last {
            if last.begun >= failed {
                return Ok(Renewed::Not(last.found));
            }
            // Those who wait for the turn have what is found after this.
            let pause = BETWEEN_LOOKS.saturating_sub(last.begun.elapsed());
            std::thread::sleep(pause.min(tries.left()));
        }
        let (begun, within) = (Instant::now(), tries.left());
        let mut urls: Vec<Url> = seen.ranges.iter().map(|range| range.url.clone()).collect();
        urls.extend(
            self.urls.iter().filter(|url| !seen.ranges.iter().any(|range| range.url == **url)).cloned(),
        );
        let (mut found, mut silent) = (Vec::new(), None);
        // A machine that is silent must not take all of the call's time.
        for (url, answer) in fetch_all(&urls, &self.config, within / 2) {
            match answer {
                Ok(Answered { map, .. }) => found.extend(map.map(|map| (url.to_string(), map))),
                Err(_) => silent = Some(url.to_string()),
            }
        }
        let map = match choose(&found, Some(&seen.map))? {
            Chosen::Whole(map) => map,
            Chosen::NotWhole(map) => return Err(maps::not_whole(&map)),
            Chosen::Nothing => {
                let same = |map: &RangeMap| map.creation == seen.map.creation && map.state == MapState::Whole;
                let with_it = found.into_iter().filter(|(_, map)| same(map)).map(|(node, _)| node).collect();
                let found = NoNewer { with_it, silent };
                *self.fruitless() = Some(Fruitless { number: seen.number, begun, found: found.clone() });
                return Ok(Renewed::Not(found));
            }
        };
        if !map.kind.is::<K>() {
            return Err(ClientError::OtherKeys { theirs: map.kind, own: K::NAME });
        }
        // Of clients that all have lost the same range not all begin again at once.
        std::thread::sleep(jitter());
        let newer = Arc::new(Ranges::of(map, seen.number + 1, Some(seen))?);
        let _old = std::mem::replace(&mut *self.lock(), newer);
        self.number.store(seen.number + 1, Ordering::Release);
        Ok(Renewed::Newer)
    }

    fn fruitless(&self) -> MutexGuard<'_, Option<Fruitless>> {
        // Replaced in one assignment.
        self.fruitless.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of each range what `of` says, in the order of keys.
    fn each<R>(
        &self,
        within: Duration,
        mut of: impl FnMut(&TableClient<K>) -> Result<R, ClientError>,
    ) -> Result<Vec<R>, ClientError> {
        Ok(self.each_with_end(within, |_, client| of(client))?.1)
    }

    /// As [`each`](Self::each), with the key that a range ends before; and the ranges that were
    /// asked.
    fn each_with_end<R>(
        &self,
        within: Duration,
        mut of: impl FnMut(&Option<K::Owned>, &TableClient<K>) -> Result<R, ClientError>,
    ) -> Result<(Arc<Ranges<K>>, Vec<R>), ClientError> {
        let mut tries = Tries::begun(within);
        loop {
            let ranges = self.ranges();
            let asked: Result<Vec<R>, _> = (0..ranges.ranges.len())
                .map(|index| {
                    let client = ranges.client(index, &self.config, tries.left());
                    let asked = client.and_then(|client| of(&ranges.ranges[index].end, &client));
                    asked.map_err(|error| (index, error))
                })
                .collect();
            match asked {
                Ok(all) => return Ok((ranges, all)),
                Err((index, error)) => self.get_over(&ranges, index, error, &mut tries)?,
            }
        }
    }

    /// A client of each range, in the order of keys, with the key that its range ends before.
    pub(crate) fn clients(&self, within: Duration) -> Result<Vec<RangeClient<K>>, ClientError> {
        let with_end = |end: &Option<K::Owned>, client: &TableClient<K>| {
            Ok((end.clone(), client.clone().with_deadline(within)))
        };
        Ok(self.each_with_end(within, with_end)?.1)
    }

    /// How records lie in slots: in all ranges alike that have parameters, so that it is as the
    /// first one says that can be asked.
    pub(crate) fn shape(&self, within: Duration) -> Result<RecordShape, ClientError> {
        let (ranges, tries) = (self.ranges(), Tries::begun(within));
        let mut told = Err(ClientError::Open(fpcache::table_view::OpenError::Empty));
        for index in 0..ranges.ranges.len() {
            let share = tries.left() / (ranges.ranges.len() - index) as u32;
            told = self.shape_of(&ranges, index, share);
            if told.is_ok() {
                break;
            }
        }
        told
    }

    /// How the record of a key lies in its slot.
    pub(crate) fn shape_at(&self, key: &K::Key, within: Duration) -> Result<RecordShape, ClientError> {
        let mut tries = Tries::begun(within);
        loop {
            let ranges = self.ranges();
            let index = ranges.index_of(key);
            match self.shape_of(&ranges, index, tries.left()) {
                Err(error) if error.is_of_empty_table() => return Err(error),
                Err(error) => self.get_over(&ranges, index, error, &mut tries)?,
                shape => return shape,
            }
        }
    }

    fn shape_of(
        &self,
        ranges: &Ranges<K>,
        index: usize,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        match ranges.core(index, &self.config, within)? {
            Direct::Mapped(core) => core.shape(within),
            Direct::Remote(core) => core.shape(within),
        }
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

impl<K: BuildKeys> Leave for Pool<K> {
    fn leave(&self) {
        if let Some(held) = self.threads.get() {
            held.take();
        }
    }
}

/// Some milliseconds at most, different ones each time.
fn jitter() -> Duration {
    let bits = fpcache_fabric::random_bits().unwrap_or(0);
    Duration::from_micros(bits % 4_000)
}
