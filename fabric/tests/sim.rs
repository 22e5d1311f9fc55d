//! What a simulated world must do: show every state, nothing else, and the same again from the same seed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fpcache_fabric::sim::{
    FailureKind, Faults, MemoryOptions, NodeOptions, NodeStart, Process, SimConnection, SimMemory,
    SimOptions, Tear, Verdict, World, explore, search,
};
use fpcache_fabric::{
    Batch, ClientId, Clock, Connection, Deadline, Endpoint, ErrorKind, FabricError, Handled, NodeMemory,
    RemoteAddr, Service, Work,
};

const SECOND: Duration = Duration::from_secs(1);

fn region() -> NodeOptions {
    NodeOptions::new(vec![MemoryOptions::region(4096)])
}

fn storm() -> SimOptions {
    SimOptions { faults: Faults::STORM, ..SimOptions::default() }
}

fn soon(process: &Process) -> Deadline {
    process.sim.clock().deadline(SECOND)
}

/// How a writer publishes two words under a sequence.
#[derive(Clone, Copy, PartialEq)]
enum Writing {
    Right,
    NoFence,
    SequenceLast,
}

/// How a reader reads them.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Right,
    OneBatch,
}

/// Two words, at 64 and 128, that must be seen together: a sequence at 0 is odd while they change.
struct Pair {
    region: Arc<SimMemory>,
    writing: Writing,
}

impl Pair {
    fn put(&self, value: u64) {
        let region = &self.region;
        let sequence = region.load_relaxed(0).unwrap();
        if self.writing != Writing::SequenceLast {
            region.store_relaxed(0, sequence + 1).unwrap();
        }
        if self.writing == Writing::Right {
            region.release();
        }
        region.store_relaxed(64, value).unwrap();
        region.store_relaxed(128, value).unwrap();
        region.store_release(0, sequence + 2).unwrap();
    }
}

impl Service for Pair {
    fn handle(&mut self, _: ClientId, request: &[u8], _: &mut Vec<u8>) -> Handled {
        self.put(u64::from_le_bytes(request.try_into().unwrap()));
        Handled::Now
    }
}

fn read_pair(connection: &SimConnection, reading: Reading) -> Result<Option<[u64; 2]>, FabricError> {
    let mut endpoint = connection.endpoint();
    let mut batch = Batch::new();
    if reading == Reading::OneBatch {
        let all = [0, 64, 128].map(|offset| batch.read(RemoteAddr::region(offset), 8));
        endpoint.run(&mut batch)?;
        let [sequence, one, other] = all.map(|landing| batch.u64(landing));
        return Ok((sequence % 2 == 0).then_some([one, other]));
    }
    let mut before = [0];
    endpoint.read_words(RemoteAddr::region(0), &mut before)?;
    let both = [64, 128].map(|offset| batch.read(RemoteAddr::region(offset), 8));
    endpoint.run(&mut batch)?;
    let after = endpoint.load_after_reads(RemoteAddr::region(0))?;
    let words = both.map(|landing| batch.u64(landing));
    Ok((before[0] == after && after % 2 == 0).then_some(words))
}

fn pairs_agree(world: &mut World, writing: Writing, reading: Reading) -> Verdict {
    let node = world.add_node(region(), move |start: NodeStart| {
        Box::new(Pair { region: Arc::clone(&start.memories[0]), writing })
    })?;
    world.spawn("writer", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        for value in 1..=10u64 {
            // Lost requests and a dead memory node are not what this is about.
            let _ = connection.call(&value.to_le_bytes(), &mut Vec::new(), soon(&process));
        }
    });
    let torn = Arc::new(AtomicU64::new(0));
    for _ in 0..2 {
        let torn = Arc::clone(&torn);
        world.spawn("reader", move |process| {
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            for _ in 0..20 {
                match read_pair(&connection, reading) {
                    Ok(Some([one, other])) if one != other => _ = torn.fetch_add(1, Ordering::Relaxed),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
    }
    world.run()?;
    match torn.load(Ordering::Relaxed) {
        0 => Ok(()),
        some => Err(format!("{some} torn pairs were taken for whole").into()),
    }
}

#[test]
fn a_right_protocol_holds_in_every_world_and_each_broken_one_is_found() {
    let explored =
        explore(0..400, &SimOptions::default(), |world| pairs_agree(world, Writing::Right, Reading::Right));
    assert!(explored.events > 400 * 200, "{explored:?}");
    let stormy = explore(0..300, &storm(), |world| pairs_agree(world, Writing::Right, Reading::Right));
    assert!(stormy.deaths > 10 && stormy.killed > 5, "{stormy:?}");
    for (writing, reading) in [
        (Writing::NoFence, Reading::Right),
        (Writing::SequenceLast, Reading::Right),
        (Writing::Right, Reading::OneBatch),
    ] {
        let found =
            search(0..200, &SimOptions::default(), |world| pairs_agree(world, writing, reading)).unwrap_err();
        assert!(found.why.contains("torn") && !found.trace.is_empty(), "{found:?}");
    }
}

#[test]
fn equal_seeds_give_equal_worlds() {
    let run = |seed| {
        let mut world = World::new(storm().with_seed(seed));
        pairs_agree(&mut world, Writing::Right, Reading::Right).unwrap();
        world.report()
    };
    let reports: Vec<_> = (0..60).map(run).collect();
    assert_eq!(reports, (0..60).map(run).collect::<Vec<_>>());
    let mut hashes: Vec<_> = reports.iter().map(|report| report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), reports.len(), "other seeds, other worlds");
}

/// Fills words 0, 1, 2, … of a surviving memory with their numbers and publishes none of them in particular.
struct Filler(Arc<SimMemory>);

impl Service for Filler {
    fn handle(&mut self, _: ClientId, _: &[u8], reply: &mut Vec<u8>) -> Handled {
        for word in 0..20 {
            self.0.store_relaxed(word * 8, word + 1).unwrap();
        }
        reply.push(1);
        Handled::Now
    }
}

fn prefix(words: &[u64]) -> u64 {
    let filled = words.iter().take_while(|&&word| word != 0).count();
    assert!(words.iter().zip(1..).take(filled).all(|(&word, number)| word == number), "{words:?}");
    assert!(words[filled..].iter().all(|&word| word == 0), "not a beginning: {words:?}");
    filled as u64
}

fn fill_and_die(options: SimOptions, after: u64) -> (u64, bool) {
    let mut world = World::new(options);
    let found = Arc::new(Mutex::new(Vec::new()));
    let node = world
        .add_node(NodeOptions::new(vec![MemoryOptions::region(160).surviving()]), {
            let found = Arc::clone(&found);
            move |start: NodeStart| {
                let mut bytes = [0; 160];
                start.memories[0].read_bytes(0, &mut bytes).unwrap();
                let words: Vec<u64> =
                    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
                found.lock().unwrap().push(prefix(&words));
                Box::new(Filler(Arc::clone(&start.memories[0])))
            }
        })
        .unwrap();
    world.kill_node_after(node, after);
    let replied = Arc::new(AtomicU64::new(0));
    let said = Arc::clone(&replied);
    world.spawn("client", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        match connection.call(&[], &mut Vec::new(), soon(&process)) {
            Ok(()) => said.store(1, Ordering::Relaxed),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Reconnect, "{error}");
                assert!(!connection.is_alive());
                let again = process.sim.connect(node, soon(&process)).unwrap();
                assert_eq!(again.incarnation(), connection.incarnation() + 1);
            }
        }
    });
    world.run().unwrap();
    let found = found.lock().unwrap();
    assert_eq!(found[0], 0);
    (found.get(1).copied().unwrap_or(20), replied.load(Ordering::Relaxed) == 1)
}

#[test]
fn a_memory_node_dies_between_any_two_stores_and_leaves_a_beginning_of_them() {
    for after in 0..20 {
        assert_eq!(fill_and_die(SimOptions::calm(), after), (after, false), "killed after {after}");
    }
    // Dead after the last store, perhaps before the reply is out.
    assert_eq!(fill_and_die(SimOptions::calm(), 20).0, 20);
    assert_eq!(fill_and_die(SimOptions::calm(), 21), (20, true));
    // In whatever order stores were seen, a dead process leaves them in program order.
    let reorder = Faults { reorder_stores: true, ..Faults::NONE };
    for seed in 0..200 {
        let options = SimOptions { faults: reorder, seed, ..SimOptions::calm() };
        let (found, _) = fill_and_die(options, seed % 20);
        assert!(found >= seed % 20, "{found} of {}", seed % 20);
    }
}

#[test]
fn memory_that_does_not_survive_is_empty_in_the_next_life() {
    let mut world = World::new(SimOptions::calm());
    let memories = vec![MemoryOptions::region(64), MemoryOptions::private(64).surviving()];
    let node = world
        .add_node(NodeOptions::new(memories), |start: NodeStart| {
            let [region, notes] = &start.memories[..] else { panic!("two memories") };
            assert_eq!(region.load_relaxed(0).unwrap(), 0);
            assert_eq!(notes.load_relaxed(0).unwrap(), start.life - 1);
            notes.store_release(0, start.life).unwrap();
            region.store_release(0, 7).unwrap();
            Box::new(Filler(Arc::clone(region)))
        })
        .unwrap();
    let deaths = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&deaths);
    world.on_death(node, move |death| told.store(death.life, Ordering::Relaxed));
    world.spawn("client", move |process| {
        for life in 1..=3 {
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            assert_eq!(connection.incarnation(), life);
            process.sim.kill_node(node);
            assert!(process.sim.is_down(node));
            let error = connection.endpoint().read_words(RemoteAddr::region(0), &mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reconnect);
        }
    });
    world.run().unwrap();
    assert_eq!(deaths.load(Ordering::Relaxed), 3);
    assert!(world.settle(1000));
    assert_eq!(world.visible(node, 1).load_acquire(0).unwrap(), 4);
}

#[test]
fn a_world_where_nobody_can_go_on_says_who_waits_for_what() {
    let mut world = World::new(SimOptions::calm());
    let node = world.add_node(region(), |start| Box::new(Filler(Arc::clone(&start.memories[0])))).unwrap();
    world.spawn("watcher", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        let _ = connection.endpoint().wait_changed(RemoteAddr::region(24), 0, Deadline::NONE);
        unreachable!("nobody stores");
    });
    let failure = world.run().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let text = failure.to_string();
    for part in ["deadlock", "watcher", "word at 24", "FPCACHE_SIM_SEED=0", "connected"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[test]
fn panics_and_endless_worlds_are_reported_and_everybody_unwinds() {
    struct Set(Arc<AtomicU64>);
    impl Drop for Set {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let ended = Arc::new(AtomicU64::new(0));
    let mut world = World::new(SimOptions::calm());
    for panics in [true, false] {
        let set = Set(Arc::clone(&ended));
        world.spawn("sleeper", move |process| {
            let _set = set;
            process.sleep(SECOND);
            assert!(!panics, "as it should");
            process.sleep(SECOND);
        });
    }
    let failure = world.run().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Panicked);
    assert!(failure.text.contains("as it should"), "{failure}");
    assert_eq!(ended.load(Ordering::Relaxed), 2);

    let mut world = World::new(SimOptions { max_events: 1000, ..SimOptions::calm() });
    world.spawn("sleeper", |process| {
        loop {
            process.sleep(SECOND);
        }
    });
    assert_eq!(world.run().unwrap_err().kind, FailureKind::Circles);

    let patience = Duration::from_millis(20);
    let mut world = World::new(SimOptions { patience, ..SimOptions::calm() });
    world.spawn("stuck", |_| std::thread::sleep(Duration::from_millis(300)));
    assert_eq!(world.run().unwrap_err().kind, FailureKind::Stuck);
}

/// Replies with how many requests came before, and notes who is there.
#[derive(Default)]
struct Counter {
    requests: u64,
    clients: Arc<AtomicU64>,
}

impl Service for Counter {
    fn handle(&mut self, _: ClientId, _: &[u8], reply: &mut Vec<u8>) -> Handled {
        reply.extend(self.requests.to_le_bytes());
        self.requests += 1;
        Handled::Now
    }

    fn connected(&mut self, _: ClientId, _: &[u8]) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&mut self, _: ClientId) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn requests_come_twice_or_never_when_the_fabric_is_so() {
    let always = |faults| SimOptions { faults, ..SimOptions::calm() };
    let mut world = World::new(always(Faults { duplicate: 1_000_000, ..Faults::NONE }));
    let node = world.add_node(region(), |_| Box::new(Counter::default())).unwrap();
    world.spawn("client", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        let mut reply = Vec::new();
        for _ in 0..10 {
            connection.call(&[], &mut reply, soon(&process)).unwrap();
            process.sleep(Duration::from_millis(1));
        }
        connection.call(&[], &mut reply, soon(&process)).unwrap();
        let before = u64::from_le_bytes(reply[..].try_into().unwrap());
        assert!(before >= 20, "{before} requests for ten that came twice");
    });
    world.run().unwrap();

    let mut world = World::new(always(Faults { drop: 1_000_000, ..Faults::NONE }));
    let node = world.add_node(region(), |_| Box::new(Counter::default())).unwrap();
    world.spawn("client", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        let before = process.sim.clock().elapsed();
        let error = connection.call(&[], &mut Vec::new(), soon(&process)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        let waited = process.sim.clock().elapsed() - before;
        assert!(waited >= SECOND && waited < SECOND + Duration::from_micros(1), "{waited:?}");
        assert!(connection.is_alive());
        connection.call(&[], &mut Vec::new(), Deadline::NONE).expect("without a deadline nothing is lost");
    });
    world.run().unwrap();
}

#[test]
fn a_process_dies_at_any_fabric_call_and_the_memory_node_learns_it() {
    for step in 1..12 {
        let mut world = World::new(SimOptions::calm());
        let clients = Arc::new(AtomicU64::new(0));
        let node = world
            .add_node(region(), {
                let clients = Arc::clone(&clients);
                move |_| Box::new(Counter { clients: Arc::clone(&clients), ..Default::default() })
            })
            .unwrap();
        let reached = Arc::new(AtomicU64::new(0));
        let progress = Arc::clone(&reached);
        let victim = world.spawn("victim", move |process| {
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            let mut endpoint = connection.endpoint();
            for _ in 0..5 {
                endpoint.read_words(RemoteAddr::region(0), &mut [0]).unwrap();
                progress.fetch_add(1, Ordering::Relaxed);
                connection.call(&[], &mut Vec::new(), soon(&process)).unwrap();
                progress.fetch_add(1, Ordering::Relaxed);
            }
        });
        let beside = world.spawn_beside(victim, "beside", |process| process.sleep(SECOND));
        let other = world.spawn("other", |process| process.sleep(2 * SECOND));
        world.kill_process_at(victim, step);
        let report = world.run().unwrap();
        assert_eq!(report.killed, [victim, beside], "and not {other:?}");
        assert_eq!(reached.load(Ordering::Relaxed), step.saturating_sub(2));
        assert!(world.settle(10_000));
        assert_eq!(clients.load(Ordering::Relaxed), 0);
    }
}

/// Answers each request a while later.
struct Slow {
    clock: Arc<dyn Clock>,
    asked: Vec<(std::time::Instant, ClientId)>,
}

impl Service for Slow {
    fn handle(&mut self, client: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        assert!(self.asked.iter().all(|(_, other)| *other != client), "one at a time");
        self.asked.push((self.clock.now() + Duration::from_millis(3), client));
        Handled::Later
    }

    fn work(&mut self) -> Work {
        self.asked.iter().map(|(at, _)| *at).min().map_or(Work::Nothing, Work::At)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let now = self.clock.now();
        let index = self.asked.iter().position(|(at, _)| *at <= now)?;
        reply.push(9);
        Some(self.asked.swap_remove(index).1)
    }
}

#[test]
fn later_replies_come_when_the_memory_node_works_at_its_time() {
    explore(0..50, &SimOptions::default(), |world| {
        let node = world
            .add_node(region(), |start| Box::new(Slow { clock: Arc::new(start.clock), asked: Vec::new() }))?;
        for _ in 0..3 {
            world.spawn("client", move |process| {
                let clock = process.sim.clock();
                let connection = process.sim.connect(node, soon(&process)).unwrap();
                let mut reply = Vec::new();
                let short = clock.deadline(Duration::from_millis(1));
                assert!(connection.call(&[], &mut reply, short).is_err());
                let begun = clock.elapsed();
                connection.call(&[], &mut reply, soon(&process)).unwrap();
                assert_eq!(reply, [9]);
                let waited = clock.elapsed() - begun;
                assert!(waited >= Duration::from_millis(4), "the first was in hand still: {waited:?}");
            });
        }
        world.run()?;
        Ok(())
    });
}

#[test]
fn a_waiting_process_is_woken_by_the_store() {
    explore(0..100, &SimOptions::default(), |world| {
        let node = world.add_node(region(), |start: NodeStart| {
            Box::new(Pair { region: Arc::clone(&start.memories[0]), writing: Writing::Right })
        })?;
        world.spawn("watcher", move |process| {
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            let mut endpoint = connection.endpoint();
            let value = endpoint.wait_changed(RemoteAddr::region(64), 0, soon(&process)).unwrap();
            assert_eq!(value, 5);
            let until = process.sim.clock().deadline(Duration::from_millis(2));
            let error = endpoint.wait_changed(RemoteAddr::region(64), 5, until).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Deadline);
        });
        world.spawn("writer", move |process| {
            process.sleep(Duration::from_millis(5));
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            connection.call(&5u64.to_le_bytes(), &mut Vec::new(), soon(&process)).unwrap();
            let mut word = [0];
            connection.endpoint().read_words(RemoteAddr::region(64), &mut word).unwrap();
            assert_eq!(word, [5], "a reply comes behind the stores before it");
        });
        world.run()?;
        Ok(())
    });
}

#[test]
fn what_was_flushed_survives_and_handles_of_a_dead_life_store_nothing() {
    let mut world = World::new(SimOptions::calm());
    let old = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&old);
    let memory = MemoryOptions::region(64).surviving();
    let node = world
        .add_node(NodeOptions::new(vec![memory]), move |start: NodeStart| {
            let memory = &start.memories[0];
            if start.life == 1 {
                memory.store_relaxed(0, 1).unwrap();
                memory.flush();
                memory.store_relaxed(8, 2).unwrap();
                *kept.lock().unwrap() = Some(Arc::clone(memory));
            }
            Box::new(Counter::default())
        })
        .unwrap();
    world.sim().kill_node(node);
    old.lock().unwrap().as_ref().unwrap().store_release(16, 3).unwrap();
    assert!(world.settle(1000));
    let visible = world.visible(node, 0);
    let words = [0, 8, 16].map(|offset| visible.load_acquire(offset).unwrap());
    assert_eq!((words[0], words[2]), (1, 0), "{words:?}");
}

#[test]
fn memory_refuses_what_mapped_memory_refuses_and_merges_odd_bytes() {
    let mut world = World::new(SimOptions::calm());
    let node = world
        .add_node(NodeOptions::new(vec![MemoryOptions::region(64)]), |start: NodeStart| {
            let memory = &start.memories[0];
            assert!(memory.store_relaxed(60, 1).is_err() && memory.store_release(64, 1).is_err());
            assert!(memory.write_bytes(60, &[0; 5]).is_err() && memory.fill_words(4, 1, 0).is_err());
            assert!(memory.fill_words(0, 9, 0).is_err() && memory.load_acquire(u64::MAX - 7).is_err());
            memory.fill_words(0, 8, u64::MAX).unwrap();
            memory.write_bytes(3, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
            let mut bytes = [0; 16];
            memory.read_bytes(0, &mut bytes).unwrap();
            assert_eq!(bytes[..11], [255, 255, 255, 1, 2, 3, 4, 5, 6, 7, 255]);
            Box::new(Counter::default())
        })
        .unwrap();
    assert!(world.settle(1000));
    let mut bytes = [0; 12];
    world.visible(node, 0).read_bytes(0, &mut bytes).unwrap();
    assert_eq!(bytes, [255, 255, 255, 1, 2, 3, 4, 5, 6, 7, 255, 255]);
}

#[test]
fn reads_tear_at_lines_or_words_or_not_at_all() {
    // A memory node that counts two lines of words up together, without any order between them.
    let torn = |tear| {
        let faults = Faults { tear, ..Faults::NONE };
        let (within, between) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for seed in 0..60 {
            let mut world = World::new(SimOptions { faults, seed, ..SimOptions::calm() });
            let node =
                world.add_node(region(), |start| Box::new(Lines(Arc::clone(&start.memories[0]), 0))).unwrap();
            let (within, between) = (Arc::clone(&within), Arc::clone(&between));
            world.spawn("reader", move |process| {
                let connection = process.sim.connect(node, soon(&process)).unwrap();
                let mut endpoint = connection.endpoint();
                let mut words = [0; 16];
                for _ in 0..20 {
                    endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap();
                    // Stores go upwards: later words never show more than earlier ones, in one instant.
                    let rises = |words: &[u64]| words.windows(2).any(|pair| pair[1] > pair[0]);
                    let inside = rises(&words[..8]) || rises(&words[8..]);
                    within.fetch_add(u64::from(inside), Ordering::Relaxed);
                    between.fetch_add(u64::from(words[8] > words[7]), Ordering::Relaxed);
                }
            });
            world.run().unwrap();
        }
        (within.load(Ordering::Relaxed), between.load(Ordering::Relaxed))
    };
    assert_eq!(torn(Tear::Never), (0, 0));
    let (within, between) = torn(Tear::Lines);
    assert!(within == 0 && between > 0, "{within} {between}");
    let (within, between) = torn(Tear::Words);
    assert!(within > 0 && between > 0, "{within} {between}");
}

#[test]
fn processes_that_share_a_connection_take_turns() {
    let mut world = World::new(SimOptions::default());
    let node = world.add_node(region(), |_| Box::new(Counter::default())).unwrap();
    let connection = Arc::new(world.sim().connect(node, Deadline::NONE).unwrap());
    let counts = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..4 {
        let (connection, counts) = (Arc::clone(&connection), Arc::clone(&counts));
        world.spawn("caller", move |process| {
            let mut reply = Vec::new();
            for _ in 0..10 {
                connection.call(&[], &mut reply, soon(&process)).unwrap();
                counts.lock().unwrap().push(u64::from_le_bytes(reply[..].try_into().unwrap()));
            }
        });
    }
    let report = world.run().unwrap();
    assert_eq!(*counts.lock().unwrap(), (0..40).collect::<Vec<_>>());
    assert!(report.switches >= 4 && report.elapsed < Duration::from_millis(10), "{report:?}");
}

/// Counts sixteen words up, for ever.
struct Lines(Arc<SimMemory>, u64);

impl Service for Lines {
    fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        Handled::Now
    }

    fn work(&mut self) -> Work {
        self.1 += 1;
        for word in 0..16 {
            self.0.store_relaxed(word * 8, self.1).unwrap();
        }
        Work::More
    }
}

/// What was posted goes on while its process does other things; its reply is its own, whatever happens to others.
#[test]
fn posted_requests_are_under_way_while_their_process_reads() {
    let both_are_under_way = |world: &mut World| -> Verdict {
        let node = world.add_node(region(), |_| Box::new(Counter::default()))?;
        world.spawn("client", move |process| {
            let connect = || process.sim.connect(node, soon(&process));
            let (Ok(first), Ok(second)) = (connect(), connect()) else { return };
            let (mut reply, mut last) = (Vec::new(), None);
            for round in 0..20 {
                let posted = [&first, &second].map(|to| (to, to.post(&[], soon(&process))));
                if first.endpoint().read_words(RemoteAddr::region(0), &mut [0]).is_err() {
                    return;
                }
                for (to, posted) in posted {
                    let Ok(mut posted) = posted else { return };
                    if round % 2 == 0 {
                        process.sleep(Duration::from_micros(100));
                        posted = match to.poll(posted, &mut reply) {
                            Ok(Some(posted)) => posted,
                            Ok(None) => continue,
                            Err(_) => return,
                        };
                    }
                    if round % 5 == 0 {
                        to.give_up(posted);
                    } else if to.wait(posted, &mut reply, soon(&process)).is_ok() {
                        let count = u64::from_le_bytes(reply[..].try_into().unwrap());
                        assert_ne!(last.replace(count), Some(count), "two requests, one reply");
                    }
                }
            }
        });
        world.run()?;
        Ok(())
    };
    explore(0..100, &SimOptions::default(), both_are_under_way);
    let faults = Faults { crash_node: 0, ..Faults::STORM };
    explore(0..100, &SimOptions { faults, ..SimOptions::default() }, both_are_under_way);
}

/// Takes everything, and says whose it was.
struct Order(Arc<Mutex<Vec<(ClientId, u8)>>>);

impl Service for Order {
    fn handle(&mut self, client: ClientId, request: &[u8], _: &mut Vec<u8>) -> Handled {
        self.0.lock().unwrap().push((client, request[0]));
        Handled::Now
    }
}

#[test]
fn requests_without_room_wait_and_each_clients_are_handled_once_and_in_order() {
    let faults = Faults { no_room: 300_000, ..Faults::NONE };
    let options = SimOptions { faults, swarm: false, ..SimOptions::default() };
    let explored = explore(0..30, &options, |world| {
        let handled = Arc::<Mutex<Vec<(ClientId, u8)>>>::default();
        let order = Arc::clone(&handled);
        let node = world.add_node(region(), move |_| Box::new(Order(Arc::clone(&order))))?;
        for _ in 0..3 {
            world.spawn("client", move |process| {
                let connection = process.sim.connect(node, soon(&process)).unwrap();
                for request in 0..20 {
                    connection.call(&[request], &mut Vec::new(), soon(&process)).unwrap();
                }
            });
        }
        world.run()?;
        let mut of: HashMap<ClientId, Vec<u8>> = HashMap::new();
        for (client, request) in handled.lock().unwrap().drain(..) {
            of.entry(client).or_default().push(request);
        }
        assert_eq!(of.len(), 3);
        assert!(of.values().all(|requests| requests.iter().copied().eq(0..20)), "{of:?}");
        Ok(())
    });
    assert!(explored.waits > 300, "{explored:?}");
}
