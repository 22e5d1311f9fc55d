//! Concurrent creation and dropping of one table, interleaved at every request and interrupted at
//! any: what must hold of the protocol, over a model of memory nodes.

#[path = "table_creation_tests/world.rs"]
mod world;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::thread;

use fpcache::key_space::KeyKind;

use super::*;
use crate::pool::maps::{Chosen, choose};
use world::{Actor, World, killed};

fn nodes(count: usize) -> Vec<String> {
    ["a", "b", "c"][..count].iter().map(|name| format!("shm://{name}")).collect()
}

fn map_over(nodes: &[String], creation: u64) -> Result<RangeMap, MapError> {
    let split_at: Vec<Vec<u8>> = (1..nodes.len() as u64).map(|i| i.to_be_bytes().to_vec()).collect();
    RangeMap::divide("t".parse().expect("a name"), KeyKind::U64, creation, nodes, &split_at)
}

/// What `create` does.
fn create(actor: &Actor<'_>, nodes: &[String], creation: u64) -> Result<u64, ClientError> {
    match begin(actor, nodes, |creation| map_over(nodes, creation), creation, None)? {
        Begun::There(map) => Ok(map.creation),
        Begun::Made(map) => finish(actor, &map).map(|()| creation),
    }
}

/// What a client does: finds the table, and changes a record of each range.
fn write(actor: &Actor<'_>, nodes: &[String]) {
    let mut found = Vec::new();
    for node in nodes {
        if let Ok(Some(map)) = actor.map(node) {
            found.push((node.clone(), map));
        }
    }
    let Ok(Chosen::Whole(map)) = choose(&found, None) else { return };
    for range in &map.ranges {
        let Ok(table) = map.table(range) else { continue };
        let put = |world: &mut World| {
            if world.nodes.get(&range.node).is_some_and(|tables| tables.contains_key(&table)) {
                world.written.insert((range.node.clone(), table, map.creation));
            }
            Ok(())
        };
        let _ = actor.step(put, |_| {});
    }
}

/// What the actors of a world are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Create,
    /// Over the same memory nodes in another order.
    CreateBackwards,
    Drop,
    Write,
}

/// Runs actors against each other, and gives the world with how the creators ended.
fn run(seed: u64, count: usize, kills: bool, does: &[Does]) -> (World, Vec<Result<u64, ClientError>>) {
    let mut world = World { random: seed * 0x9E37_79B9 + 1, ..World::default() };
    (0..20).for_each(|_| _ = world.below(2));
    world.going = (0..does.len()).collect();
    let lives: Vec<u32> = does
        .iter()
        .map(|_| if kills && world.below(3) > 0 { 1 + world.below(22) as u32 } else { u32::MAX })
        .collect();
    world.pass();
    let shared = (Mutex::new(world), Condvar::new());
    let ended = thread::scope(|scope| {
        let running: Vec<_> = (0..does.len())
            .map(|number| {
                let (what, lives, shared) = (does[number], lives[number], &shared);
                scope.spawn(move || {
                    let drops = what == Does::Drop;
                    let actor = Actor { number, drops, lives: Cell::new(lives), world: shared };
                    let mut nodes = nodes(count);
                    let ended = match what {
                        Does::Create => Some(create(&actor, &nodes, 100 + number as u64)),
                        Does::CreateBackwards => {
                            nodes.reverse();
                            Some(create(&actor, &nodes, 100 + number as u64))
                        }
                        Does::Drop => {
                            let _ = drop_all(&actor, &nodes);
                            None
                        }
                        Does::Write => {
                            (0..6).for_each(|_| write(&actor, &nodes));
                            None
                        }
                    };
                    actor.end();
                    ended
                })
            })
            .collect();
        running.into_iter().filter_map(|actor| actor.join().expect("no panic")).collect()
    });
    (shared.0.into_inner().expect("nobody panics"), ended)
}

/// Whether what was acknowledged is there.
fn check(seed: u64, world: &World) {
    assert_eq!(world.faults, Vec::<String>::new(), "seed {seed}");
    for (node, table, creation) in &world.written {
        let is_there = world.nodes.get(node).is_some_and(|tables| tables.contains_key(table));
        assert!(is_there || world.meant.contains(creation), "seed {seed}: {table} at {node} is lost");
    }
}

/// Runs one command in a world by itself, until it succeeds.
fn repeat<R>(
    seed: u64,
    mut world: World,
    drops: bool,
    command: impl Fn(&Actor<'_>, u64) -> Result<R, ClientError>,
) -> World {
    for time in 0..3 {
        (world.turn, world.going) = (0, vec![0]);
        let shared = (Mutex::new(world), Condvar::new());
        let actor = Actor { number: 0, drops, lives: Cell::new(u32::MAX), world: &shared };
        let ended = command(&actor, time);
        world = shared.0.into_inner().expect("nobody panics");
        match ended {
            Ok(_) => return world,
            Err(error) => assert!(time < 2, "seed {seed}: {error}"),
        }
    }
    world
}

/// Runs worlds of this kind, and then repeats the commands.
fn worlds(count: usize, kills: bool, does: &[Does]) {
    let seeds = std::env::var("FPCACHE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400);
    for seed in 1..=seeds {
        let (world, ended) = run(seed, count, kills, does);
        check(seed, &world);
        let are_alike = !does.contains(&Does::CreateBackwards);
        if !kills && are_alike && !does.contains(&Does::Drop) {
            assert!(ended.iter().any(Result::is_ok), "seed {seed}: {ended:?}");
        }
        let nodes = nodes(count);
        let mut world = world;
        // The actor with the reversed order may have made it.
        let is_backwards = |world: &World| {
            let whole = |map: &RangeMap| map.state == MapState::Whole && map.ranges[0].node != nodes[0];
            world.nodes.values().flat_map(BTreeMap::values).any(whole)
        };
        while let Some((node, request)) = world.late.pop() {
            let _ = world.range(&node, &request);
        }
        if !is_backwards(&world) {
            world = repeat(seed, world, false, |actor, time| create(actor, &nodes, 900 + time));
            check(seed, &world);
            let whole = |map: &RangeMap| map.state == MapState::Whole;
            let all = world.nodes.values().all(|tables| tables.len() == 1 && tables.values().all(whole));
            assert!(all, "seed {seed}: {:?}", world.nodes);
        }
        world = repeat(seed, world, true, |actor, _| drop_all(actor, &nodes));
        assert!(world.is_empty(), "seed {seed}: {:?}", world.nodes);
    }
}

#[test]
fn two_creators_at_once_drop_no_whole_table_and_one_of_them_makes_it() {
    worlds(2, false, &[Does::Create, Does::Create, Does::Write]);
    worlds(3, false, &[Does::Create, Does::Create, Does::Write]);
}

#[test]
fn creators_that_are_killed_at_any_request_leave_what_the_next_one_finishes_or_clears() {
    worlds(3, true, &[Does::Create, Does::Create, Does::Write]);
    worlds(3, true, &[Does::Create, Does::CreateBackwards, Does::Write]);
}

#[test]
fn a_creator_and_a_dropper_killed_at_any_request_lose_nothing_that_was_not_meant_to_go() {
    worlds(3, true, &[Does::Create, Does::Drop, Does::Create, Does::Write]);
}

#[test]
fn a_table_whose_maker_was_killed_after_the_first_range_was_whole_is_not_dropped_by_a_create_elsewhere() {
    let all = nodes(3);
    let (whole, made) = {
        let made = map_over(&all, 5).expect("a map");
        let prepared = made.next(MapState::Making).expect("a version");
        (prepared.next(MapState::Whole).expect("a version"), prepared)
    };
    let mut world = World { random: 1, going: vec![0], ..World::default() };
    for (range, map) in whole.ranges.iter().zip([&whole, &made, &made]) {
        let name = map.table(range).expect("a name");
        world.nodes.entry(range.node.clone()).or_default().insert(name, map.clone());
    }
    world.whole.insert(5);
    let shared = (Mutex::new(world), Condvar::new());
    let actor = Actor { number: 0, drops: false, lives: Cell::new(u32::MAX), world: &shared };
    let error = create(&actor, &all[1..], 6).expect_err("it is there");
    assert!(matches!(error, ClientError::TableExists { .. }), "{error}");
    // Repeating the command tells the others.
    assert_eq!(create(&actor, &all, 7).expect("it is there"), 5);
    let world = shared.0.lock().expect("nobody panics");
    assert_eq!(world.faults, Vec::<String>::new());
    assert!(world.nodes.values().flat_map(BTreeMap::values).all(|map| *map == whole));
}

#[test]
fn no_range_that_may_have_been_written_is_dropped_by_a_create_when_the_deciding_one_was_lost() {
    let all = nodes(3);
    for lives in 1..=13 {
        let world = World { random: 1, going: vec![0], ..World::default() };
        let shared = (Mutex::new(world), Condvar::new());
        let as_with = |lives| Actor { number: 0, drops: false, lives: Cell::new(lives), world: &shared };
        let _ = create(&as_with(lives), &all, 5);
        write(&as_with(u32::MAX), &all);
        let written = {
            let mut world = shared.0.lock().expect("nobody panics");
            // The memory node is started anew, and keeps nothing.
            world.nodes.remove(&all[0]);
            world.written.retain(|(node, ..)| *node != all[0]);
            world.late.clear();
            world.written.len()
        };
        let created = create(&as_with(u32::MAX), &all, 6);
        assert!(created.is_err() || written == 0, "{lives}: {created:?}");
        check(lives.into(), &shared.0.lock().expect("nobody panics"));
        let dropper = Actor { number: 0, drops: true, lives: Cell::new(u32::MAX), world: &shared };
        drop_all(&dropper, &all).expect("it is meant");
        assert!(shared.0.lock().expect("nobody panics").is_empty());
    }
}

/// A maker prepared the first range and found another one gone; it gave up the third one by itself,
/// and no more.
#[test]
fn what_is_prepared_at_one_memory_node_and_given_up_at_another_is_cleared_away() {
    let all = nodes(3);
    let made = map_over(&all, 5).expect("a map");
    let next = |state| made.next(state).expect("a version");
    for states in [[Some(MapState::Making), None, Some(MapState::Dropping)], [Some(MapState::Making); 3]] {
        for is_dropped in [false, true] {
            let mut world = World { random: 1, going: vec![0], ..World::default() };
            for (range, state) in made.ranges.iter().zip(states) {
                let Some(state) = state else { continue };
                let name = made.table(range).expect("a name");
                world.nodes.entry(range.node.clone()).or_default().insert(name, next(state));
            }
            let shared = (Mutex::new(world), Condvar::new());
            let actor = Actor { number: 0, drops: is_dropped, lives: Cell::new(u32::MAX), world: &shared };
            if is_dropped {
                drop_all(&actor, &all).expect("it goes");
                assert!(shared.0.lock().expect("nobody panics").is_empty());
            } else {
                assert_eq!(create(&actor, &all, 6).expect("another is made"), 6);
            }
            assert_eq!(shared.0.lock().expect("nobody panics").faults, Vec::<String>::new());
        }
    }
}

/// The first range went to its new memory node's own table of that name: the maker learns that.
#[test]
fn a_maker_is_told_what_has_the_name_at_the_first_memory_node() {
    let all = nodes(2);
    let mut world = World { random: 1, going: vec![0], ..World::default() };
    // One that publishes no map.
    world.closed.insert(all[0].clone());
    let shared = (Mutex::new(world), Condvar::new());
    let actor = Actor { number: 0, drops: false, lives: Cell::new(u32::MAX), world: &shared };
    let error = create(&actor, &all, 5).expect_err("the name is taken");
    assert!(matches!(error, ClientError::TableExists { .. }), "{error}");
}

#[path = "table_creation_failures_tests.rs"]
mod failures;
