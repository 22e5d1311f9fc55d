//! Errors of creating and dropping a table when a step fails, and what remains then.

use std::cell::Cell;
use std::sync::{Condvar, Mutex};

use super::*;

/// Asks as another one does, and lets its hearer say of each request first whether it fails, or
/// what happens before it.
struct Heard<'w, F> {
    actor: Actor<'w>,
    hear: F,
}

/// What is asked of a memory node.
enum Asked<'r> {
    Map,
    Range(&'r RangeRequest),
    Drop,
}

impl<F: Fn(&str, &Asked<'_>) -> Result<(), ClientError>> NodeRequests for Heard<'_, F> {
    fn map(&self, node: &str) -> Result<Option<RangeMap>, ClientError> {
        (self.hear)(node, &Asked::Map)?;
        self.actor.map(node)
    }

    fn range(&self, node: &str, request: &RangeRequest) -> Result<(), ClientError> {
        (self.hear)(node, &Asked::Range(request))?;
        self.actor.range(node, request)
    }

    fn drop_range(&self, node: &str, table: &TableName) -> Result<(), ClientError> {
        (self.hear)(node, &Asked::Drop)?;
        self.actor.drop_range(node, table)
    }
}

fn one_in(world: &(Mutex<World>, Condvar)) -> Actor<'_> {
    Actor { number: 0, drops: false, lives: Cell::new(u32::MAX), world }
}

#[test]
fn an_attempt_that_fails_while_it_looks_at_the_maps_anew_leaves_no_range() {
    let all = nodes(2);
    let mut world = World { random: 1, going: vec![0], ..World::default() };
    world.closed.insert(all[1].clone());
    let shared = (Mutex::new(world), Condvar::new());
    let looks = Cell::new(0);
    let hear = |_: &str, asked: &Asked<'_>| match asked {
        Asked::Map if looks.replace(looks.get() + 1) >= all.len() => Err(killed()),
        _ => Ok(()),
    };
    let ask = Heard { actor: one_in(&shared), hear };
    begin(&ask, &all, |creation| map_over(&all, creation), 5, None).expect_err("a memory node is away");
    assert!(shared.0.lock().expect("nobody panics").is_empty());
}

#[test]
fn maps_that_name_more_and_more_memory_nodes_are_an_error() {
    struct Endless(Cell<usize>);
    impl NodeRequests for Endless {
        fn map(&self, node: &str) -> Result<Option<RangeMap>, ClientError> {
            let next = self.0.replace(self.0.get() + 1);
            Ok(Some(map_over(&[node.to_owned(), format!("tcp://n:{}", 1 + next)], next as u64)?))
        }
        fn range(&self, _: &str, _: &RangeRequest) -> Result<(), ClientError> {
            Err(killed())
        }
        fn drop_range(&self, _: &str, _: &TableName) -> Result<(), ClientError> {
            Err(killed())
        }
    }
    let endless = Endless(Cell::new(1));
    let error = collect_maps(&endless, &nodes(1)).expect_err("it has no end");
    assert!(matches!(error, ClientError::MapsDisagree { .. }), "{error:?}");
    assert!(endless.0.get() <= MOST_ASKED + 1, "{}", endless.0.get());
}

#[test]
fn a_range_that_is_lost_while_the_table_becomes_whole_is_told_to_be_lost() {
    let all = nodes(3);
    let world = World { random: 1, going: vec![0], ..World::default() };
    let shared = (Mutex::new(world), Condvar::new());
    let hear = |node: &str, asked: &Asked<'_>| {
        if let Asked::Range(RangeRequest::Map { map, .. }) = asked
            && map.state == MapState::Whole
            && node == all[1]
        {
            shared.0.lock().expect("nobody panics").nodes.remove(node);
        }
        Ok(())
    };
    let ask = Heard { actor: one_in(&shared), hear };
    let Begun::Made(map) = begin(&ask, &all, |creation| map_over(&all, creation), 5, None).expect("made")
    else {
        panic!("there is none yet")
    };
    let error = finish(&ask, &map).expect_err("a range is lost");
    assert!(error.to_string().contains(&format!("{} has lost its range", all[1])), "{error}");
}

#[test]
fn a_table_that_is_dropped_while_it_is_completed_is_not_told_to_be_lost() {
    let all = nodes(2);
    let whole = {
        let prepared = map_over(&all, 5).and_then(|made| made.next(MapState::Making));
        prepared.and_then(|map| map.next(MapState::Whole)).expect("a version")
    };
    let dropping = whole.next(MapState::Dropping).expect("a version");
    let mut world = World { random: 1, going: vec![0], ..World::default() };
    let first = &whole.ranges[0];
    let tables = world.nodes.entry(first.node.clone()).or_default();
    tables.insert(whole.table(first).expect("a name"), dropping);
    let shared = (Mutex::new(world), Condvar::new());
    // What was found before the drop began.
    let found = vec![(all[0].clone(), whole.clone())];
    let error = complete(&one_in(&shared), &whole, &found).expect_err("it goes");
    assert!(is_refused(&error, |code| code == ErrorCode::Busy), "{error}");
}

/// A table of which the first memory nodes have these maps.
fn world_with(maps: &[&RangeMap]) -> (Mutex<World>, Condvar) {
    let mut world = World { random: 1, going: vec![0], ..World::default() };
    for (range, map) in maps[0].ranges.iter().zip(maps) {
        let tables = world.nodes.entry(range.node.clone()).or_default();
        tables.insert(map.table(range).expect("a name"), (*map).clone());
    }
    (Mutex::new(world), Condvar::new())
}

#[test]
fn a_range_is_told_that_its_table_is_whole_whatever_its_memory_node_has_of_another_one() {
    let all = nodes(2);
    let prepared = map_over(&all, 5).and_then(|made| made.next(MapState::Making)).expect("a version");
    let whole = prepared.next(MapState::Whole).expect("a version");
    // Left there of another table of the name, whose map has changed as often.
    let other = map_over(&all, 7).and_then(|made| made.next(MapState::Making));
    let other = other.and_then(|map| map.next(MapState::Dropping)).expect("a version");
    let shared = world_with(&[&whole, &prepared]);
    let found =
        vec![(all[0].clone(), whole.clone()), (all[1].clone(), other), (all[1].clone(), prepared.clone())];
    complete(&one_in(&shared), &whole, &found).expect("all are there");
    let world = shared.0.lock().expect("nobody panics");
    let table = whole.table(&whole.ranges[1]).expect("a name");
    assert_eq!(world.nodes[&all[1]][&table].state, MapState::Whole);
}

#[test]
fn a_first_range_that_is_lost_is_told_to_be_lost_unless_the_table_is_being_dropped() {
    let all = nodes(3);
    let prepared = map_over(&all, 5).and_then(|made| made.next(MapState::Making)).expect("a version");
    let whole = prepared.next(MapState::Whole).expect("a version");
    let dropping = whole.next(MapState::Dropping).expect("a version");
    for (is_lost, maps) in [(true, [&whole, &whole, &whole]), (false, [&whole, &dropping, &dropping])] {
        let shared = world_with(&maps);
        shared.0.lock().expect("nobody panics").nodes.remove(&all[0]);
        // What was found before a drop began.
        let found = all[1..].iter().map(|node| (node.clone(), whole.clone())).collect();
        let error = complete(&one_in(&shared), &whole, &found).expect_err("the first one is gone");
        let (says_lost, text) = (matches!(error, ClientError::NoSuchTable { .. }), error.to_string());
        assert_eq!(says_lost, is_lost, "{text}");
        assert_eq!(text.contains(&format!("{} has lost its range", all[0])), is_lost, "{text}");
    }
}
