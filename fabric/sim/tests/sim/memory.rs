//! Memory of a world: what survives an end, what is refused, and how reads tear.

use super::*;

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
        assert_eq!(fill_and_die(SimOptions::without_faults(), after), (after, false), "killed after {after}");
    }
    // Dead after the last store, perhaps before the reply is out.
    assert_eq!(fill_and_die(SimOptions::without_faults(), 20).0, 20);
    assert_eq!(fill_and_die(SimOptions::without_faults(), 21), (20, true));
    // In whatever order stores were seen, a dead process leaves them in program order.
    let reorder = Faults { reorder_stores: true, ..Faults::NONE };
    for seed in 0..200 {
        let options = SimOptions { faults: reorder, seed, ..SimOptions::without_faults() };
        let (found, _) = fill_and_die(options, seed % 20);
        assert!(found >= seed % 20, "{found} of {}", seed % 20);
    }
}

#[test]
fn memory_that_does_not_survive_is_empty_in_the_next_life() {
    let mut world = World::new(SimOptions::without_faults());
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
fn what_was_flushed_survives_and_handles_of_a_dead_life_store_nothing() {
    let mut world = World::new(SimOptions::without_faults());
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
    let mut world = World::new(SimOptions::without_faults());
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
            let mut world = World::new(SimOptions { faults, seed, ..SimOptions::without_faults() });
            let node =
                world.add_node(region(), |start| Box::new(Lines(Arc::clone(&start.memories[0]), 0))).unwrap();
            let (within, between) = (Arc::clone(&within), Arc::clone(&between));
            world.spawn("reader", move |process| {
                let connection = process.sim.connect(node, soon(&process)).unwrap();
                let mut endpoint = connection.endpoint();
                let mut words = [0; 16];
                for _ in 0..20 {
                    endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap();
                    // Stores go upwards: later words never show more than earlier ones, in one
                    // instant.
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
