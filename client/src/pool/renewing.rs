//! Calls that go on with a newer map, when a range is not where theirs has it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::map::{MapState, RangeMap};
use fpcache_fabric::{Deadline, FabricError, SystemClock};

use super::maps::{self, Answered, Chosen, choose, fetch_all};
use super::{Pool, Ranges};
use crate::error::ClientError;
use crate::url::Url;

/// How often a call continues with a newer map before it gives up.
const MAPS: u32 = 8;

/// What was found when there was no newer map.
#[derive(Clone, Debug)]
pub(super) struct Fruitless {
    /// The number of the map that was in use, and when its memory nodes began to be asked.
    number: u64,
    begun: Instant,
    found: NoNewer,
}

/// What memory nodes said of a table of which there was no newer map.
#[derive(Clone, Debug)]
pub(super) struct NoNewer {
    /// The memory nodes that have ranges of the same table still, and have it for whole.
    pub(super) with_it: Vec<String>,
    /// One that could not be asked.
    pub(super) silent: Option<String>,
}

/// What a look for a newer map has found.
pub(super) enum Renewed {
    Newer,
    Not(NoNewer),
}

/// Within this time, or four times that of the slowest answer, memory nodes tell the map of a table
/// that another one has told. A first packet that is lost is sent again after a second: one that is
/// away may have the map of a table that was dropped since, which those who answer late know.
pub(super) const ENOUGH_FOR_A_MAP: Duration = Duration::from_millis(1500);

/// The least time between two searches for a newer map that find none, of all threads.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A call's patience with maps that change.
pub(super) struct Tries {
    within: Duration,
    started: Option<Instant>,
    maps: u32,
}

impl Tries {
    pub(super) fn new(within: Duration) -> Self {
        Self { within, started: None, maps: 0 }
    }

    /// Of a call that asks several memory nodes: its time begins now.
    pub(super) fn begun(within: Duration) -> Self {
        Self { within, started: Some(Instant::now()), maps: 0 }
    }

    /// What is left of the call's time, which begins with its first failure.
    pub(super) fn left(&self) -> Duration {
        self.started.map_or(self.within, |started| self.within.saturating_sub(started.elapsed()))
    }
}

impl<K: BuildKeys> Pool<K> {
    /// Prepares a retry after a range's call failed: finds a newer map, if the range is not where
    /// this one has it. Else gives the error, which names the memory node.
    #[cold]
    pub(super) fn get_over(
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
}

/// Some milliseconds at most, different ones each time.
fn jitter() -> Duration {
    let bits = fpcache_fabric::random_bits().unwrap_or(0);
    Duration::from_micros(bits % 4_000)
}
