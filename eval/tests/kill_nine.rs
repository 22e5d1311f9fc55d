//! Memory nodes that are killed at any instant and started again on the same folder, under clients
//! that go on by themselves; and clients that are killed.
//!
//! Every round is a history, checked for linearizability with the kill in its middle: what was
//! acknowledged is there, nothing is half there, nothing was done twice. `FPCACHE_KILLS` sets the
//! rounds of each test; `FPCACHE_MEMSERVER` names the program of the memory node,
//! `fpcache-memserver` for one, instead of this package's own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "rdma")]
#[path = "kill_nine/by_cards.rs"]
mod by_cards;
#[path = "kill_nine/caller.rs"]
mod caller;
#[path = "kill_nine/place.rs"]
mod place;
#[path = "kill_nine/rounds.rs"]
mod rounds;
#[allow(dead_code)]
mod support;
#[path = "kill_nine/tables.rs"]
mod tables;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{ByteKeys, Grouping, Plan, TableParameters, U64Keys};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::store::Store;
use fpcache_memserver::durability::SyncPolicy;
use place::{Node, Place, Reached};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rounds::{Loss, Test};
use tables::{KEYS, THREADS, connect, key, patient};

/// Rounds of a test unless told otherwise.
const KILLS: usize = 6;

fn kills() -> usize {
    std::env::var("FPCACHE_KILLS").map_or(KILLS, |text| text.parse().unwrap())
}

/// Kills over and over; then the last one's memory is looked through, and lost.
fn survives_kills<K: NumberedKeys>(place: Place, seed: u64) {
    let mut test = Test::<K>::new(place, seed);
    let sync = test.place.sync;
    test.run(kills(), Loss::Process);
    eprintln!("--fsync {sync}: {} operations, {} of them open", test.operations, test.unknown);
    let failure = test.callers.iter().find_map(|caller| caller.first_failure.as_ref());
    assert_eq!((test.unknown, failure), (0, None), "what was in flight is answered by the successor");
    if test.place.reached != Reached::SharedMemory {
        // Its way is `at-node`, and the last memory node, too, looks keys up once it knows the
        // table.
        // But for values that lie outside their slots.
        let begun = Instant::now();
        let mut asked = (0..KEYS).cycle().map(|place| test.callers[0].store.get(key(place)).unwrap().1);
        while asked.next() != Some(Some(Plan::AtNode)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the memory node answers nothing");
        }
    }
    let before = test.contents();
    assert!(before.len() > 10, "{} keys", before.len());

    test.node.take().unwrap().kill();
    test.place.audit::<K>();
    test.node = Some(test.place.start());
    assert_eq!(test.contents(), before);

    match test.place.sync {
        SyncPolicy::Always => test.node.take().unwrap().kill(),
        // It brings its log to the disk.
        _ => test.node.take().unwrap().end(),
    }
    test.place.lose_memory();
    test.node = Some(test.place.start());
    assert_eq!(test.contents(), before);
}

#[test]
fn nothing_acknowledged_is_lost_with_fsync_always() {
    survives_kills::<U64Keys>(Place::new::<U64Keys>("always", None), 1);
}

#[test]
fn nothing_acknowledged_is_lost_with_an_interval() {
    survives_kills::<U64Keys>(Place::new::<U64Keys>("10ms", None), 2);
}

#[test]
fn nothing_acknowledged_is_lost_without_fsync_and_with_the_region_elsewhere() {
    let region = std::path::Path::new("/dev/shm").is_dir().then_some("/dev/shm");
    survives_kills::<U64Keys>(Place::new::<U64Keys>("never", region), 3);
}

#[test]
fn nothing_acknowledged_is_lost_where_keys_are_byte_strings() {
    survives_kills::<ByteKeys>(Place::new::<ByteKeys>("10ms", None), 6);
}

#[test]
fn nothing_acknowledged_is_lost_over_sockets() {
    survives_kills::<U64Keys>(Place::new::<U64Keys>("10ms", None).over(Reached::Sockets), 9);
}

/// Several tables under one memory node, each with queues of its own.
#[test]
fn nothing_acknowledged_is_lost_of_many_tables() {
    many_tables_survive_kills(Place::new::<U64Keys>("10ms", None));
}

fn many_tables_survive_kills(place: Place) {
    let tables = [U64Keys::small_segments(); THREADS as usize];
    let mut test = Test::<U64Keys>::over(&tables, place, 7);
    let deleted = |test: &Test<U64Keys>| test.callers.iter().map(|caller| caller.deleted).sum::<u64>();
    test.run(kills().div_ceil(2), Loss::Process);
    test.run_on(10 * kills(), Loss::Process, |test| deleted(test) > 20);
    assert_eq!(test.unknown, 0, "what was in flight is answered by the successor");
    assert!(deleted(&test) > 20, "oldest keys were deleted: {}", deleted(&test));
}

/// Two tables in groups of these forms, the first without fingerprints, which inserts and rebuilds
/// change all the time, each with a caller who asks by groups.
fn survives_kills_in_groups<K: NumberedKeys>(place: Place, groupings: [Grouping; 2], seed: u64) {
    let mut tables = groupings.map(|of| TableParameters { groups: Some(of), ..K::small_segments() });
    tables[0].stores_fingerprints = false;
    let mut test = Test::<K>::over(&tables, place, seed);
    test.run(kills(), Loss::Process);
    let least = 20 * kills();
    test.run_on(10 * kills(), Loss::Process, |test| test.by_groups > least);
    eprintln!("in groups: {} operations, {} by groups", test.operations, test.by_groups);
    assert_eq!(test.unknown, 0, "what was in flight is answered by the successor");
    assert!(test.by_groups > least, "{} operations were answered by groups", test.by_groups);
    test.node.take().unwrap().kill();
    test.place.audit::<K>();
}

#[test]
fn nothing_acknowledged_is_lost_in_groups_with_separators_and_with_pilots() {
    let place = Place::new::<U64Keys>("10ms", None);
    survives_kills_in_groups::<U64Keys>(place, [Grouping::plain(3, 4), Grouping::pilots(6, 2)], 10);
}

#[test]
fn nothing_acknowledged_is_lost_in_groups_of_byte_strings() {
    let place = Place::new::<ByteKeys>("10ms", None);
    survives_kills_in_groups::<ByteKeys>(place, [Grouping::seeded(2, 3), Grouping::pilots(4, 2)], 11);
}

#[test]
fn with_fsync_always_the_disk_alone_has_all_that_anybody_saw() {
    loses_its_memory(Place::new::<U64Keys>("always", None));
}

/// The page cache stays, so this shows that the log is complete, not that it is on the medium.
fn loses_its_memory(place: Place) {
    let mut test = Test::<U64Keys>::new(place, 4);
    test.run(kills().div_ceil(2), Loss::Machine);
    eprintln!("losing memory: {} operations, {} of them open", test.operations, test.unknown);
}

const PART: &str = "FPCACHE_EVAL_TEST_PART";
const URL: &str = "FPCACHE_EVAL_TEST_URL";

/// Starts this test binary again to play one part of `played_by_another_process`.
fn play(part: &str, url: &str) -> Node {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "played_by_another_process", "--nocapture"])
        .env(PART, part)
        .env(URL, url)
        .stdout(Stdio::piped())
        .spawn();
    Node(child.unwrap())
}

/// Not a test of its own: what the second process does when another test has started it.
#[test]
fn played_by_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let client = connect::<U64Keys>(&std::env::var(URL).unwrap(), patient());
    if part == "loader" {
        let mut load = client.load(U64Keys::small_segments(), 0).unwrap();
        let value = vec![7; U64Keys::value_bytes(0)];
        (0..100_000u64).for_each(|key| load.push(key, &value).unwrap());
        println!("loading");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    // A writer of one key, which the part names.
    let place: u64 = part.parse().unwrap();
    let mut bytes = Vec::new();
    for number in 1.. {
        ClientStore::<U64Keys>::encode(number, &mut bytes);
        while client.put(key(place), &bytes).is_err() {
            thread::sleep(Duration::from_millis(2));
        }
        writeln!(std::io::stdout(), "\nacknowledged {number}").unwrap();
    }
}

#[test]
fn clients_that_are_killed_leave_nothing_locked_and_nothing_torn() {
    clients_are_killed(Place::new::<U64Keys>("10ms", None));
}

fn clients_are_killed(place: Place) {
    let mut node = Some(place.start());
    let mut loader = play("loader", &place.url());
    let output = BufReader::new(loader.0.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("loading")));
    loader.kill();

    let client = connect::<U64Keys>(&place.url(), patient());
    let created = support::eventually(|| client.create(U64Keys::small_segments()).is_ok());
    assert!(created, "the load of a client that was killed is given up");
    let mut store = ClientStore::new(client.clone());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    for round in 0..kills() as u64 {
        let places: Vec<u64> = (0..3).map(|i| round * 3 + i).collect();
        let mut writers: Vec<Node> =
            places.iter().map(|place_of| play(&place_of.to_string(), &place.url())).collect();
        thread::sleep(Duration::from_millis(random.random_range(50..300)));
        if round % 2 == 1 {
            // The memory node first: the writers wait for its successor.
            node.take().unwrap().kill();
        }
        for writer in &mut writers {
            writer.0.kill().unwrap();
        }
        if node.is_none() {
            node = Some(place.start());
        }
        // Until the memory node has noticed their end it may execute what they had sent.
        let is_alone = || client.stats().is_ok_and(|stats| stats.clients == 1);
        assert!(support::eventually(is_alone), "clients that were killed are still there");
        for (place_of, mut writer) in places.into_iter().zip(writers) {
            let output = BufReader::new(writer.0.stdout.take().unwrap());
            let numbers = output.lines().map_while(Result::ok);
            let numbers = numbers.filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
            let acknowledged = numbers.last().unwrap_or(0);
            let key = key(place_of);
            // The request in flight when it was killed, if there was one, was executed or was not;
            // its number is the next.
            let now = store.get(key).unwrap().0.unwrap_or(0);
            assert!(
                (acknowledged..=acknowledged + 1).contains(&now),
                "{now} where {acknowledged} was acknowledged"
            );
            store.put(key, 1 << 50).unwrap();
            assert_eq!(store.get(key).unwrap().0, Some(1 << 50));
            assert!(store.delete(key).unwrap().0);
        }
    }
    node.take().unwrap().kill();
    place.audit::<U64Keys>();
}
