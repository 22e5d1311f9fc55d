//! Calls are executed once at most, whatever happens meanwhile.

use super::*;

/// A request that was told to be answered by the server, and was received after the mode had
/// changed back, was waited for for ever.
#[test]
fn a_batch_written_in_one_mode_is_received_in_the_other() {
    let mut world = World::new(SimOptions::without_faults().with_seed(4));
    let load = Arc::new(Load::default());
    let node = add_node(&mut world, &load, true);
    world.spawn("client", move |process| {
        let mut client = open(&process, node, ClientOptions::default()).unwrap();
        let mut results = Results::new();
        load.set(Duration::from_micros(60));
        while client.mode(ECHO) == Mode::Fetch {
            client.call(ECHO, b"slow", &mut Vec::new(), Deadline::NONE).unwrap();
        }
        load.set(Duration::ZERO);
        // The first is posted and the others are written, and the second of these is received by
        // fetching.
        let sent = [(); 4].map(|()| client.send(ECHO, &[b"quick"], Deadline::NONE).unwrap());
        for sent in sent {
            client.recv(sent, &mut results, process.sim.clock().deadline(Duration::from_millis(1))).unwrap();
            assert!(results.iter().eq([b"kciuq"]));
        }
        assert_eq!(client.mode(ECHO), Mode::Fetch);
    });
    world.run().unwrap();
}

/// Clients that call on until all is done, whatever dies: what was answered was executed once, and
/// nothing twice.
fn each_once(world: &mut World) -> Verdict {
    let load = Arc::new(Load::default());
    load.set(Duration::from_nanos(world.seed() % 7 * 3000));
    let node = add_node(world, &load, false);
    let answered = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3u64 {
        let answered = Arc::clone(&answered);
        world.spawn("client", move |process| {
            let mut client = None;
            for call in 0..40u64 {
                let mut this =
                    match client.take().map_or_else(|| open(&process, node, ClientOptions::default()), Ok) {
                        Ok(this) => this,
                        Err(_) => continue,
                    };
                let tokens = [0, 1, 2].map(|entry| ((number << 32) | (call << 2) | entry).to_le_bytes());
                let deadline = process.sim.clock().deadline(Duration::from_micros(400));
                let mut results = Results::new();
                let outcome = this
                    .send(ECHO, &tokens, deadline)
                    .and_then(|sent| this.recv(sent, &mut results, deadline));
                match outcome {
                    Ok(()) => {
                        assert!(
                            results
                                .iter()
                                .eq(tokens.map(|token| answer(ECHO, &token)).iter().map(Vec::as_slice))
                        );
                        answered.lock().unwrap().extend(tokens.map(u64::from_le_bytes));
                        client = Some(this);
                    }
                    Err(
                        RfError::Fabric(FabricError::DeadlinePassed { .. } | FabricError::Crowded)
                        | RfError::Lost,
                    ) => {
                        client = Some(this);
                    }
                    Err(RfError::Fabric(FabricError::Disconnected { .. })) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    world.run()?;
    let executed = load.executed.lock().unwrap();
    if let Some((token, times)) = executed.iter().find(|(_, times)| **times > 1) {
        return Err(format!("{token:#x} was executed {times} times").into());
    }
    match answered.lock().unwrap().iter().find(|token| !executed.contains_key(token)) {
        None => Ok(()),
        Some(token) => Err(format!("{token:#x} was answered and never executed").into()),
    }
}

#[test]
fn no_call_is_executed_twice_in_any_storm() {
    let storm = SimOptions { faults: Faults::STORM, ..SimOptions::default() };
    let explored = explore(0..100, &storm, each_once);
    assert!(explored.deaths > 5 && explored.killed > 3, "{explored:?}");
}
