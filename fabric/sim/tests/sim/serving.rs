//! Requests that come twice or never, replies that come later, and turns.

use super::*;

#[test]
fn requests_come_twice_or_never_when_the_fabric_is_so() {
    let always = |faults| SimOptions { faults, ..SimOptions::without_faults() };
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
        let mut world = World::new(SimOptions::without_faults());
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

/// What was posted goes on while its process does other things; its reply is its own, whatever
/// happens to others.
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
