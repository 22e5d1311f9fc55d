//! Calls that go on with a newer map, when a range is not where theirs has it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::map::{MapState, RangeMap};
use fpcache::message::{ErrorCode, Refusal};
use fpcache_fabric::{Deadline, FabricError, SystemClock};

use super::map_retries::{FailedMapSearch, NoNewerMap, Tries};
use super::maps::{self, Answered, Chosen, choose, fetch_all};
use super::range::Ranges;
use super::{Pool, table_creation};
use crate::config::ClientConfig;
use crate::error::ClientError;
#[cfg(feature = "tokio")]
use crate::one_node::SharedCore;
use crate::tables::Tables;
use crate::url::Url;

/// The least time between two searches for a newer map that find none, of all threads.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

impl<K: BuildKeys> Pool<K> {
    /// Prepares a retry after a range's call failed: finds a newer map, if the range is not where
    /// this one has it. Else gives the error, which names the memory node.
    #[cold]
    pub(super) fn recover_range(
        &self,
        ranges: &Ranges<K>,
        index: usize,
        error: ClientError,
        tries: &mut Tries,
    ) -> Result<(), ClientError> {
        let failed = Instant::now();
        let has_tries = tries.go_on(failed);
        // The creator of a table means the ranges that it created, and no others of its name.
        let is_final = ranges.map.state != MapState::Whole;
        if !Self::is_gone(&error) || is_final || !has_tries {
            return Err(ranges.named(index, error));
        }
        self.renew(ranges, (index, error), failed, tries)
    }

    /// Reads of one range of a map, which is connected now if it is not. `false` if there is a
    /// newer map, by which the read has to begin again.
    #[cfg(feature = "tokio")]
    pub(crate) fn at_range(
        &self,
        ranges: &Ranges<K>,
        index: usize,
        within: Duration,
        read: impl FnOnce(&SharedCore<K>, Duration) -> Result<(), ClientError>,
    ) -> Result<bool, ClientError> {
        let mut tries = Tries::begun(within);
        let core = ranges.core(index, &self.config, &tries);
        match core.and_then(|core| read(core, tries.left())) {
            Ok(()) => Ok(true),
            Err(error) => self.recover_range(ranges, index, error, &mut tries).map(|()| false),
        }
    }

    /// Finds a map that is newer than the one of these ranges, with which a call of one `failed` at
    /// that time; else gives the error by what the search has found instead. Never goes back to an
    /// older one. However many calls fail, it is looked for ten times a second.
    fn renew(
        &self,
        seen: &Ranges<K>,
        of_range: (usize, ClientError),
        failed: Instant,
        tries: &Tries,
    ) -> Result<(), ClientError> {
        let turn = self.renewing.take(Deadline::after(tries.left()), &SystemClock);
        let _turn = turn.ok_or(FabricError::DeadlinePassed {
            waiting_for: "another thread, which fetches the table's map",
        })?;
        if self.number.load(Ordering::Acquire) != seen.number {
            return Ok(());
        }
        let last = self.failed_search().clone().filter(|last| last.number == seen.number);
        if let Some(last) = last {
            if last.begun >= failed && last.is_enough_for(tries.left()) {
                return Err(self.verdict(seen, of_range, last, tries.left() / 2));
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
        let (mut found, mut silent, mut may_have_own) = (Vec::new(), None, false);
        // A machine that is silent must not take all of the call's time.
        for (url, answer) in fetch_all(&urls, &self.config, within / 2) {
            match answer {
                Ok(Answered { map, .. }) => found.extend(map.map(|map| (url.to_string(), map))),
                // Of those that are silent, one of this map's is what counts.
                Err(_) if !may_have_own => {
                    silent = Some(url.to_string());
                    may_have_own = seen.ranges.iter().any(|range| range.url == url);
                }
                Err(_) => {}
            }
        }
        let map = match choose(&found, Some(&seen.map))? {
            // One that is silent may publish this map still, and the other one be of a table that
            // was dropped before.
            Chosen::Whole(map) if map.creation == seen.map.creation || !may_have_own => map,
            Chosen::NotWhole(map) => return Err(maps::not_whole(&map)),
            Chosen::Whole(_) | Chosen::Nothing => {
                let same = |map: &RangeMap| map.creation == seen.map.creation && map.state == MapState::Whole;
                let with_it = found.into_iter().filter(|(_, map)| same(map)).map(|(node, _)| node).collect();
                let found = NoNewerMap { with_it, silent };
                let (number, lost) = (seen.number, HashMap::new());
                let search = FailedMapSearch { number, begun, time_limit: within, found, lost };
                return Err(self.verdict(seen, of_range, search, tries.left() / 2));
            }
        };
        if !map.kind.is::<K>() {
            return Err(ClientError::OtherKeys { theirs: map.kind, own: K::NAME });
        }
        // Of clients that all have lost the same range not all begin again at once.
        std::thread::sleep(jitter());
        let newer = Arc::new(Ranges::of(map, seen.number + 1, Some(seen), &self.urls)?);
        let _old = std::mem::replace(&mut *self.lock(), newer);
        self.number.store(seen.number + 1, Ordering::Release);
        Ok(())
    }

    /// The error of a range's call after a search for a newer map that found none, which keeps it
    /// for other calls. The caller has its turn: one at a time asks the memory node, and does not
    /// take all of its time for it, in which others wait.
    fn verdict(
        &self,
        seen: &Ranges<K>,
        (index, error): (usize, ClientError),
        mut search: FailedMapSearch,
        within: Duration,
    ) -> ClientError {
        let verdict = match (&error, search.lost.get(&index)) {
            (ClientError::NoSuchTable { .. }, Some(lost)) => lost.clone(),
            (ClientError::NoSuchTable { .. }, None) => {
                match seen.lost(index, &self.config, &search.found, within) {
                    Ok(lost) => search.lost.entry(index).or_insert(lost).clone(),
                    Err(unasked) => unasked,
                }
            }
            _ => seen.named(index, error),
        };
        *self.failed_search() = Some(search);
        verdict
    }

    fn failed_search(&self) -> MutexGuard<'_, Option<FailedMapSearch>> {
        // Replaced in one assignment.
        self.failed_search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: BuildKeys> Ranges<K> {
    /// The error for a range that its memory node does not have, though the map says so, by what is
    /// known of the others; another one if the memory node does not say.
    #[cold]
    fn lost(
        &self,
        index: usize,
        config: &ClientConfig,
        found: &NoNewerMap,
        within: Duration,
    ) -> Result<ClientError, ClientError> {
        let (range, name) = (&self.ranges[index], self.map.name);
        let (node, table) = (range.url.to_string(), range.table.to_string());
        let listed = Tables::before(&range.url, config.token, Deadline::after(within))
            .and_then(|tables| tables.find(&range.table));
        match listed.map_err(|error| error.at(&node))? {
            Some(info) if info.is_closed() => return Ok(ClientError::TableClosed { address: node, table }),
            // It was on its way.
            Some(_) => {
                let why = format!("{node}: `{table}` is there again");
                return Err(Refusal::new(ErrorCode::Busy, why).into());
            }
            None => {}
        }
        if found.with_it.iter().any(|other| *other != node) {
            return Ok(table_creation::lost(&self.map, &node));
        }
        let why = match &found.silent {
            Some(silent) => format!(
                "the memory node {node} has no range of the table `{name}`: it was dropped, or {node} has lost it; {silent}, which may \
                 know, does not answer"
            ),
            None => format!("there is no table `{name}` over several memory nodes any more: it was dropped"),
        };
        Ok(ClientError::NoSuchTable { why })
    }
}

/// Some milliseconds at most, different ones each time.
fn jitter() -> Duration {
    let bits = fpcache_fabric::random_bits().unwrap_or(0);
    Duration::from_micros(bits % 4_000)
}
