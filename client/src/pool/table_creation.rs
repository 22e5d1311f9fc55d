//! Creation and dropping of tables over several memory nodes: the requests, one after another, and
//! what they decide.
//!
//! A range's map goes through the versions 1 *making*, 2 *making* (prepared), 3 *whole*, and
//! *dropping* after any of them. A memory node takes later versions only, so that of two that are
//! sent with one number the first one counts. Rounds go through the ranges in the map's order: none
//! has a later version than the one before it, and the first range *decides*. The table is there
//! from when that one is whole, and is gone from when that one is dropping. `docs/design.md` argues
//! for each step.

use fpcache::TableName;
use fpcache::map::{MAX_NODES, MapError, MapState, RangeMap};
use fpcache::message::{ErrorCode, RangeRequest, Refusal};

use super::maps::{disagree, newest_of};
use crate::error::ClientError;

/// How often the maps are read again because another client changed them.
const LOOKS: u32 = 8;
/// The most memory nodes that are asked for maps: those of a command, and of a few tables of the
/// name that were left half made or half dropped elsewhere.
const MOST_ASKED: usize = 4 * MAX_NODES;
/// The version of ranges that were made, of which others may not have been.
const MADE: u32 = 1;

/// Asks memory nodes, each by its URL.
pub(crate) trait NodeRequests {
    /// The map that a memory node publishes of the table.
    fn map(&self, node: &str) -> Result<Option<RangeMap>, ClientError>;

    /// Makes a range, or gives it a map. [`TableClosed`](ClientError::TableClosed) if it is there
    /// and closed.
    fn range(&self, node: &str, request: &RangeRequest) -> Result<(), ClientError>;

    /// Drops a range's table; done if there is none.
    fn drop_range(&self, node: &str, table: &TableName) -> Result<(), ClientError>;
}

/// Maps that were found, each with the memory node that has it.
pub(crate) type NodeMaps = Vec<(String, RangeMap)>;

/// A table that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Its ranges were created, but it is not visible yet.
    Made(RangeMap),
    /// It was there, as it was to be, and is whole everywhere.
    There(RangeMap),
}

/// Whether a step was taken, or another client was faster.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    Raced,
}

/// The maps of these memory nodes, and of all that those maps name. Maps that lead on and on are an
/// error.
pub(crate) fn collect_maps(ask: &impl NodeRequests, nodes: &[String]) -> Result<NodeMaps, ClientError> {
    let (mut asked, mut found, mut next) = (nodes.to_vec(), Vec::new(), 0);
    while let Some(node) = asked.get(next).cloned() {
        next += 1;
        let Some(map) = ask.map(&node)? else { continue };
        for range in &map.ranges {
            if asked.contains(&range.node) {
                continue;
            }
            if asked.len() == MOST_ASKED {
                return Err(endless(&map, &node));
            }
            asked.push(range.node.clone());
        }
        found.push((node, map));
    }
    Ok(found)
}

/// Makes the ranges of a table, of which `with` gives the map for a creation number, at these
/// memory nodes. What was left half made or half dropped is cleared away; a table that is whole
/// never is. What a failed attempt has made is taken back.
pub(crate) fn begin(
    ask: &impl NodeRequests,
    nodes: &[String],
    with: impl Fn(u64) -> Result<RangeMap, MapError>,
    creation: u64,
    region_bytes: Option<u64>,
) -> Result<Begun, ClientError> {
    let mine = with(creation)?;
    let mut beginning = Beginning { ask, nodes, mine: &mine, region_bytes, tried: false, hidden: None };
    let begun = beginning.run(with);
    if beginning.tried && !matches!(begun, Ok(Begun::Made(_))) {
        undo(ask, &mine);
    }
    begun
}

/// An attempt to create the ranges of a table.
struct Beginning<'a, A> {
    ask: &'a A,
    nodes: &'a [String],
    mine: &'a RangeMap,
    region_bytes: Option<u64>,
    /// Whether some of its ranges may have been made.
    tried: bool,
    /// What kept a range from being made, of which no map tells.
    hidden: Option<ClientError>,
}

impl<A: NodeRequests> Beginning<'_, A> {
    fn run(&mut self, with: impl Fn(u64) -> Result<RangeMap, MapError>) -> Result<Begun, ClientError> {
        let (ask, mine) = (self.ask, self.mine);
        for _ in 0..LOOKS {
            let found = collect_maps(ask, self.nodes)?;
            if self.tried && !has_first_range(&found, mine) {
                return Err(self.hidden.take().unwrap_or_else(|| overtaken(mine)));
            }
            let groups = groups_of(&found)?;
            let mut whole = groups.iter().filter(|map| map.state == MapState::Whole);
            if let Some(there) = whole.next() {
                if let Some(other) = whole.next() {
                    return Err(disagree(there, node_of(&found, there), node_of(&found, other)));
                }
                if !with(there.creation)?.has_ranges_of(there) {
                    return Err(other_ranges(there));
                }
                complete(ask, there, &found)?;
                return Ok(Begun::There(there.clone()));
            }
            if self.clear_others(&groups, &found)? == Step::Done && self.make_ranges()? == Step::Done {
                return Ok(Begun::Made(mine.clone()));
            }
        }
        Err(overtaken(mine))
    }

    /// Clears away what was left of other tables of the name.
    fn clear_others(&self, groups: &[RangeMap], found: &NodeMaps) -> Result<Step, ClientError> {
        for left in groups.iter().filter(|left| left.creation != self.mine.creation) {
            // Of two concurrent attempts one continues.
            if self.tried && left.creation > self.mine.creation && has_first_range(found, left) {
                return Err(overtaken(self.mine));
            }
            if clear(self.ask, left, found, false)? == Step::Raced {
                return Ok(Step::Raced);
            }
        }
        Ok(Step::Done)
    }

    /// Has each memory node create its range.
    fn make_ranges(&mut self) -> Result<Step, ClientError> {
        let (ask, mine) = (self.ask, self.mine);
        self.tried = true;
        for range in &mine.ranges {
            let request = RangeRequest::Create {
                map: mine.clone(),
                number: range.number,
                region_bytes: self.region_bytes,
            };
            match ask.range(&range.node, &request) {
                Ok(()) => {}
                // Of the same table, begun by another client meanwhile; else that is found again.
                Err(error @ ClientError::TableExists { .. }) => {
                    let found = collect_maps(ask, self.nodes)?;
                    let is_seen = groups_of(&found)?.iter().any(|map| map.creation != mine.creation);
                    if is_seen || self.hidden.is_none() {
                        // One that is not seen may be gone by now; else it is none of this kind.
                        self.hidden = (!is_seen).then_some(error);
                        return Ok(Step::Raced);
                    }
                    return Err(error);
                }
                Err(error) if is_gone_or_later(&error) => return Err(overtaken(mine)),
                Err(error) => return Err(error),
            }
        }
        Ok(Step::Done)
    }
}

/// Makes a table whole of which all ranges were made. It is there once its first range says so,
/// whatever becomes of this call.
pub(crate) fn finish(ask: &impl NodeRequests, made: &RangeMap) -> Result<(), ClientError> {
    let prepared = made.next(MapState::Making)?;
    for map in [&prepared, &prepared.next(MapState::Whole)?] {
        for range in &map.ranges {
            let request = RangeRequest::Map { map: map.clone(), number: range.number };
            match ask.range(&range.node, &request) {
                Ok(()) => {}
                Err(error) if is_gone_or_later(&error) => {
                    // Ranges that others did not know of. Of those that were prepared none is
                    // whole, and none will be; in the round after that the first one may be, and
                    // those that were prepared refuse this.
                    undo(ask, if map.state == MapState::Making { &prepared } else { made });
                    return Err(missing(ask, map, &range.node, error));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Tells the remaining ranges of a whole table that it is whole, if its creator did not get that
/// far.
pub(crate) fn complete(
    ask: &impl NodeRequests,
    whole: &RangeMap,
    found: &NodeMaps,
) -> Result<(), ClientError> {
    for range in &whole.ranges {
        // Not by what the memory node has of another table of the name.
        let has_it = |(node, map): &(String, RangeMap)| {
            *node == range.node && map.creation == whole.creation && map.version >= whole.version
        };
        if found.iter().any(has_it) {
            continue;
        }
        let request = RangeRequest::Map { map: whole.clone(), number: range.number };
        match ask.range(&range.node, &request) {
            Err(error) if is_gone_or_later(&error) => {
                return Err(missing(ask, whole, &range.node, error));
            }
            asked => asked?,
        }
    }
    Ok(())
}

/// Takes back what a failed attempt has made, as far as its memory nodes can be reached. No client
/// has been told to take it for whole.
pub(crate) fn undo(ask: &impl NodeRequests, made: &RangeMap) {
    let Ok(dropping) = made.next(MapState::Dropping) else { return };
    for range in &made.ranges {
        // Each may be given up by itself: its maker makes none of them whole any more.
        let request = RangeRequest::Map { map: dropping.clone(), number: range.number };
        if ask.range(&range.node, &request).is_ok()
            && let Ok(table) = made.table(range)
        {
            let _ = ask.drop_range(&range.node, &table);
        }
    }
}

/// Drops a table: all that exists of it, and all that is half created or half dropped under its
/// name. `nodes` are all of its memory nodes.
pub(crate) fn drop_all(ask: &impl NodeRequests, nodes: &[String]) -> Result<(), ClientError> {
    'look: for _ in 0..LOOKS {
        let found = collect_maps(ask, nodes)?;
        let groups = groups_of(&found)?;
        let mut whole = groups.iter().filter(|map| map.state == MapState::Whole);
        if let (Some(one), Some(other)) = (whole.next(), whole.next()) {
            return Err(disagree(one, node_of(&found, one), node_of(&found, other)));
        }
        for map in &groups {
            if clear(ask, map, &found, true)? == Step::Raced {
                continue 'look;
            }
        }
        return Ok(());
    }
    let why = "others make and drop the table at the same time: repeat the command";
    Err(Refusal::new(ErrorCode::Busy, why).into())
}

/// Drops all there is of a table by its newest map: first it is decided, then the ranges go, and
/// the first one last. Unless that `is_meant`, a table that is whole, or may have been, stays.
fn clear(
    ask: &impl NodeRequests,
    map: &RangeMap,
    found: &NodeMaps,
    is_meant: bool,
) -> Result<Step, ClientError> {
    let Some(first) = map.ranges.first() else { return Ok(Step::Done) };
    // Where one was given up by itself another may have gone on to the same version.
    let has_gone_on = |(_, other): &(String, RangeMap)| {
        other.creation == map.creation && other.version >= map.version && other.state != MapState::Dropping
    };
    let dropping = match map.state {
        MapState::Dropping if !found.iter().any(has_gone_on) => map.clone(),
        _ => map.next(MapState::Dropping)?,
    };
    let mut is_decided = is_meant;
    let (mut closed, mut told) = (Vec::new(), Vec::new());
    for range in &dropping.ranges {
        let request = RangeRequest::Map { map: dropping.clone(), number: range.number };
        match ask.range(&range.node, &request) {
            Ok(()) => {
                is_decided |= range == first;
                told.push(range);
            }
            Err(ClientError::NoSuchTable { .. }) => {}
            Err(ClientError::TableClosed { .. }) if is_meant => closed.push(range),
            Err(error) if is_later(&error) => return Ok(Step::Raced),
            Err(error) => return Err(error),
        }
        // Without the first range's word, no range is given up that may have been part of a whole
        // table.
        let may_be_whole = |(_, other): &(String, RangeMap)| {
            other.creation == map.creation && other.version > MADE && other.state != MapState::Dropping
        };
        if !is_decided && found.iter().any(may_be_whole) {
            return Err(lost(map, &first.node));
        }
    }
    // Closed ones do not know: they go before any that does.
    closed.extend(told);
    if is_decided {
        let others = dropping.ranges.iter().filter(|range| !closed.contains(range));
        let others: Vec<_> = others.collect();
        closed.extend(others);
    }
    closed.sort_by_key(|range| *range == first);
    for range in closed {
        ask.drop_range(&range.node, &map.table(range)?)?;
    }
    Ok(Step::Done)
}

/// The newest map of each table among these.
fn groups_of(found: &NodeMaps) -> Result<Vec<RangeMap>, ClientError> {
    let mut groups: Vec<RangeMap> = Vec::new();
    for (_, map) in found {
        if !groups.iter().any(|group| group.creation == map.creation) {
            groups.push(newest_of(found, map.creation)?.unwrap_or(map).clone());
        }
    }
    Ok(groups)
}

/// Whether the first range of a table that is being made is there as it was made.
fn has_first_range(found: &NodeMaps, map: &RangeMap) -> bool {
    let first = map.ranges.first().map(|range| range.node.as_str());
    found.iter().any(|(node, other)| {
        Some(node.as_str()) == first && other.creation == map.creation && other.state == MapState::Making
    })
}

fn node_of<'f>(found: &'f NodeMaps, map: &RangeMap) -> &'f str {
    found.iter().find(|(_, other)| other == map).map_or("", |(node, _)| node.as_str())
}

fn is_refused(error: &ClientError, of: impl Fn(ErrorCode) -> bool) -> bool {
    matches!(error, ClientError::Refused(refusal) if of(refusal.code))
}

/// Whether a range goes by a later map than the one that was sent, or another one of its version.
fn is_later(error: &ClientError) -> bool {
    is_refused(error, |code| matches!(code, ErrorCode::WrongRange { .. }))
}

fn is_gone_or_later(error: &ClientError) -> bool {
    is_later(error) || matches!(error, ClientError::NoSuchTable { .. })
}

/// The error when a memory node does not have the range of a table that was whole, or was about to
/// be: it has lost it if the first range says that the table is whole, and else others have dropped
/// it. Of the first range the others say it: dropping a table tells them all before that one goes.
fn missing(ask: &impl NodeRequests, map: &RangeMap, node: &str, error: ClientError) -> ClientError {
    let is_whole = |asked: &str| {
        let told = ask.map(asked).ok().flatten();
        told.is_some_and(|told| told.creation == map.creation && told.state == MapState::Whole)
    };
    let mut tell = match map.ranges.split_first() {
        Some((first, others)) if first.node == node => others.iter(),
        _ => map.ranges[..map.ranges.len().min(1)].iter(),
    };
    match error {
        ClientError::NoSuchTable { .. } if tell.any(|range| is_whole(&range.node)) => lost(map, node),
        _ => overtaken(map),
    }
}

/// The error of an attempt that could not go on with a table that it was making: that another
/// client was faster, if that one has cleared the ranges away. It tells the first one before all.
pub(crate) fn or_overtaken(ask: &impl NodeRequests, made: &RangeMap, error: ClientError) -> ClientError {
    let Some(first) = made.ranges.first() else { return error };
    let is_not_there = |told: &RangeMap| told.creation != made.creation || told.state != MapState::Making;
    match ask.map(&first.node) {
        Ok(told) if told.as_ref().is_none_or(is_not_there) => overtaken(made),
        _ => error,
    }
}

/// The error for maps that name more and more memory nodes.
fn endless(map: &RangeMap, node: &str) -> ClientError {
    let why = format!(
        "the maps of the table `{}` lead to more than {MOST_ASKED} memory nodes, the last of them by that of {node}: drop what is left \
         of the table there with `fpcache-cli drop {} --nodes {node} --yes`",
        map.name, map.name
    );
    ClientError::MapsDisagree { why }
}

/// The error when another client has created or dropped the table instead.
fn overtaken(map: &RangeMap) -> ClientError {
    let why = format!(
        "another command has made or dropped the table `{}` meanwhile: see what is there, and repeat this one if it is still wanted",
        map.name
    );
    Refusal::new(ErrorCode::Busy, why).into()
}

fn other_ranges(map: &RangeMap) -> ClientError {
    let name = map.name;
    let why = format!(
        "there is a table `{name}` over other memory nodes or divided at other keys already: use it, drop it, or choose another name"
    );
    Refusal::new(ErrorCode::TableExists, why).into()
}

/// The error for a table one of whose memory nodes has no range of it any more.
pub(super) fn lost(map: &RangeMap, node: &str) -> ClientError {
    let name = map.name;
    let why = format!(
        "the memory node {node} has lost its range of the table `{name}`, or was started on another folder: see that its --data-dir is \
         the right one, that the disk is mounted there, and that the address is its own, and start it again; only if it had no \
         --data-dir, or the folder is gone for good, drop the table with `fpcache-cli drop {name} --yes`, and make it anew"
    );
    ClientError::NoSuchTable { why }
}

#[cfg(test)]
#[path = "table_creation_tests.rs"]
mod tests;
