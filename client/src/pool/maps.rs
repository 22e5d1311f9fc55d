//! The maps that memory nodes publish.

use std::time::Duration;

use fpcache::map::{MapState, RangeMap};

use crate::access::token_for;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::tables::Tables;
use crate::url::Url;

/// The map to go by, of those that were found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// This one: newer than what is known.
    Whole(RangeMap),
    /// There is one, of a table that is being made or dropped.
    NotWhole(RangeMap),
    /// None that is newer.
    Nothing,
}

/// The map of a table that a memory node publishes, if it has one.
pub(super) fn fetch(
    url: &Url,
    config: &ClientConfig,
    within: Duration,
) -> Result<Option<RangeMap>, ClientError> {
    let maps = Tables::at(url.clone(), token_for(url, config.token)?, within)?.maps()?;
    Ok(maps.into_iter().find(|map| map.name == config.table))
}

/// Chooses among maps of one table, each with the memory node that publishes it. One of another creation than the `known` one is
/// taken only if nobody has that any more.
pub(super) fn choose(found: &[(String, RangeMap)], known: Option<&RangeMap>) -> Result<Chosen, ClientError> {
    let Some((first, map)) = found.first() else { return Ok(Chosen::Nothing) };
    if let Some((other, _)) = found.iter().find(|(_, other)| other.creation != map.creation) {
        return Err(disagree(map, first, other));
    }
    let (its, newest) =
        found.iter().max_by_key(|(_, map)| map.version).map_or((first, map), |(at, map)| (at, map));
    if let Some((at, _)) =
        found.iter().find(|(_, map)| map.version == newest.version && !map.has_ranges_of(newest))
    {
        return Err(disagree(map, at, its));
    }
    Ok(match known {
        Some(known) if newest.creation == known.creation && newest.version <= known.version => {
            Chosen::Nothing
        }
        _ if newest.state == MapState::Whole => Chosen::Whole(newest.clone()),
        _ => Chosen::NotWhole(newest.clone()),
    })
}

fn disagree(map: &RangeMap, one: &str, other: &str) -> ClientError {
    let table = map.name;
    ClientError::MapsDisagree {
        why: format!(
            "the memory nodes {one} and {other} have different maps of the table `{table}`, as after a table was made anew while one \
             of them was away: drop what is left of the older one with `fpcache-cli drop {table} --nodes URL --yes`, naming the memory \
             node that has it"
        ),
    }
}

/// The error of a table that is being made or dropped.
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
    ClientError::NoSuchTable { why }
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

    fn at(maps: &[RangeMap]) -> Vec<(String, RangeMap)> {
        maps.iter().enumerate().map(|(i, map)| (format!("shm://{i}"), map.clone())).collect()
    }

    #[test]
    fn the_newest_map_is_chosen_and_no_older_one_than_is_known() {
        let (making, whole) = (map(7), map(7).next(MapState::Whole));
        let found = at(&[making.clone(), whole.clone()]);
        assert_eq!(choose(&found, None).expect("agreed"), Chosen::Whole(whole.clone()));
        assert_eq!(choose(&found, Some(&making)).expect("agreed"), Chosen::Whole(whole.clone()));
        assert_eq!(choose(&found, Some(&whole)).expect("agreed"), Chosen::Nothing);
        assert_eq!(choose(&found[..1], Some(&whole)).expect("agreed"), Chosen::Nothing);
        assert_eq!(choose(&found[..1], None).expect("agreed"), Chosen::NotWhole(making));
        assert_eq!(choose(&[], None).expect("agreed"), Chosen::Nothing);
        let anew = map(9).next(MapState::Whole);
        assert_eq!(
            choose(&at(std::slice::from_ref(&anew)), Some(&whole)).expect("agreed"),
            Chosen::Whole(anew)
        );
    }

    #[test]
    fn memory_nodes_that_disagree_on_the_map_are_named() {
        let (one, other) = (map(7).next(MapState::Whole), map(8).next(MapState::Whole));
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
