//! The partition maps that memory nodes publish.

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fpcache::map::{MapState, RangeMap};
use fpcache_fabric::Deadline;

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::tables::Tables;
use crate::url::Url;

/// The map that counts, of those found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// This one: newer than what is known.
    Whole(RangeMap),
    /// There is one, of a table being created or dropped.
    NotWhole(RangeMap),
    /// None that is newer.
    Nothing,
}

/// A memory node's answer about a table.
pub(super) struct Answered {
    /// The map that it publishes, if it has one.
    pub(super) map: Option<RangeMap>,
    /// How long it took to tell.
    pub(super) took: Duration,
}

/// What each of these memory nodes publishes of the table that the settings name: all are asked at
/// once, each within that time.
pub(super) fn fetch_all(
    urls: &[Url],
    config: &ClientConfig,
    within: Duration,
) -> Vec<(Url, Result<Answered, ClientError>)> {
    let fetch = |url: &Url| fetch(url, config, within);
    let answers: Vec<_> = match urls {
        [one] => vec![fetch(one)],
        all => thread::scope(|scope| {
            let ask = |url| thread::Builder::new().spawn_scoped(scope, move || fetch(url));
            let asking: Vec<_> = all.iter().map(|url| (url, ask(url))).collect();
            let panicked = |why| std::panic::resume_unwind(why);
            let answer = |(url, asking)| match asking {
                Ok(asking) => ScopedJoinHandle::join(asking).unwrap_or_else(panicked),
                // No more threads can be started: one after the other, then.
                Err(_) => fetch(url),
            };
            asking.into_iter().map(answer).collect()
        }),
    };
    urls.iter().cloned().zip(answers).collect()
}

fn fetch(url: &Url, config: &ClientConfig, within: Duration) -> Result<Answered, ClientError> {
    let begun = Instant::now();
    let maps = Tables::before(url, config.token, Deadline::after(within))?.maps()?;
    let map = maps.into_iter().find(|map| map.name == config.table);
    Ok(Answered { map, took: begun.elapsed() })
}

/// Chooses among maps of one table, each with the memory node that publishes it. One of another
/// creation than the `known` one is taken only if no memory node has that any more. What is left of
/// one that is only being made hides no other.
pub(crate) fn choose(found: &[(String, RangeMap)], known: Option<&RangeMap>) -> Result<Chosen, ClientError> {
    let is_made = |map: &RangeMap| map.state != MapState::Making;
    let has_made = found.iter().any(|(_, map)| is_made(map));
    let of_made = |map: &RangeMap| found.iter().any(|(_, o)| o.creation == map.creation && is_made(o));
    let mut counting = found.iter().filter(|(_, map)| !has_made || of_made(map));
    let Some((first, map)) = counting.next() else { return Ok(Chosen::Nothing) };
    if let Some((other, _)) = counting.find(|(_, other)| other.creation != map.creation) {
        return Err(disagree(map, first, other));
    }
    let newest = newest_of(found, map.creation)?.unwrap_or(map);
    Ok(match known {
        Some(known) if newest.creation == known.creation && newest.version <= known.version => {
            Chosen::Nothing
        }
        _ if newest.state == MapState::Whole => Chosen::Whole(newest.clone()),
        _ => Chosen::NotWhole(newest.clone()),
    })
}

/// The newest of the maps of one creation.
pub(super) fn newest_of(
    found: &[(String, RangeMap)],
    creation: u64,
) -> Result<Option<&RangeMap>, ClientError> {
    let of_it = || found.iter().filter(|(_, map)| map.creation == creation);
    // Of a table that is being made some ranges may have been given up already.
    let age = |map: &RangeMap| (map.version, map.state == MapState::Dropping);
    let Some((at, newest)) = of_it().max_by_key(|(_, map)| age(map)) else { return Ok(None) };
    let is_other = |map: &RangeMap| map.version == newest.version && !map.has_ranges_of(newest);
    match of_it().find(|(_, map)| is_other(map)) {
        Some((other, _)) => Err(disagree(newest, at, other)),
        None => Ok(Some(newest)),
    }
}

pub(super) fn disagree(map: &RangeMap, one: &str, other: &str) -> ClientError {
    let table = map.name;
    ClientError::MapsDisagree {
        why: format!(
            "the memory nodes {one} and {other} have different maps of the table `{table}`, as after a table was recreated while one \
             of them was away: drop what is left of the older one with `fpcache-cli drop {table} --nodes URL --yes`, naming the memory \
             node that has it"
        ),
    }
}

/// The error of a table being created or dropped.
pub(super) fn not_whole(map: &RangeMap) -> ClientError {
    let (table, at) = (map.name, map.ranges.first().map_or("", |range| range.node.as_str()));
    let why = match map.state {
        MapState::Dropping => format!(
            "the table `{table}` over several memory nodes is being dropped: if nobody is at it, repeat `fpcache-cli --url {at} drop \
             {table} --yes`"
        ),
        _ => format!(
            "the table `{table}` over several memory nodes is not whole yet: if nobody is making it, repeat the command that makes \
             it, or remove it with `fpcache-cli --url {at} drop {table} --yes`"
        ),
    };
    ClientError::TableNotWhole { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::KeyKind;

    fn map(creation: u64) -> RangeMap {
        let nodes = ["shm://a".to_owned(), "shm://b".to_owned()];
        let name = "t".parse().expect("a name");
        RangeMap::divide(name, KeyKind::U64, creation, &nodes, &[vec![1; 8]]).expect("a map")
    }

    fn next(map: RangeMap, state: MapState) -> RangeMap {
        map.next(state).expect("a version")
    }

    fn at(maps: &[RangeMap]) -> Vec<(String, RangeMap)> {
        maps.iter().enumerate().map(|(i, map)| (format!("shm://{i}"), map.clone())).collect()
    }

    #[test]
    fn the_newest_map_is_chosen_and_no_older_one_than_is_known() {
        let (making, whole) = (map(7), next(map(7), MapState::Whole));
        let found = at(&[making.clone(), whole.clone()]);
        assert_eq!(choose(&found, None).expect("agreed"), Chosen::Whole(whole.clone()));
        assert_eq!(choose(&found, Some(&making)).expect("agreed"), Chosen::Whole(whole.clone()));
        assert_eq!(choose(&found, Some(&whole)).expect("agreed"), Chosen::Nothing);
        assert_eq!(choose(&found[..1], Some(&whole)).expect("agreed"), Chosen::Nothing);
        assert_eq!(choose(&found[..1], None).expect("agreed"), Chosen::NotWhole(making));
        assert_eq!(choose(&[], None).expect("agreed"), Chosen::Nothing);
        let anew = next(map(9), MapState::Whole);
        assert_eq!(
            choose(&at(std::slice::from_ref(&anew)), Some(&whole)).expect("agreed"),
            Chosen::Whole(anew)
        );
    }

    #[test]
    fn memory_nodes_that_disagree_on_the_map_are_named() {
        let (one, other) = (next(map(7), MapState::Whole), next(map(8), MapState::Whole));
        let mut moved = one.clone();
        moved.ranges[1].node = "shm://c".to_owned();
        for found in [at(&[one.clone(), other]), at(&[one, moved])] {
            let error = choose(&found, None).expect_err("they disagree").to_string();
            assert!(
                error.contains("shm://0") && error.contains("shm://1") && error.contains("drop t"),
                "{error}"
            );
        }
    }
}
