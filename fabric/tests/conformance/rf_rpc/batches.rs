//! Batches of requests and of results.

use super::*;

/// Results of every length come back: in one READ, in two, split over batches, by server reply.
#[test]
fn batches_of_every_shape_come_back() {
    let options = SimOptions { faults: Faults::WEATHER, ..SimOptions::default() };
    explore(0..8, &options, |world| {
        let load = Arc::new(Load::default());
        let node = add_node(world, &load, false);
        for fixed in [None, Some(Mode::Reply)] {
            world.spawn("client", move |process| {
                let options = ClientOptions { fixed, ..ClientOptions::default() };
                let mut client = open(&process, node, options).unwrap();
                let mut results = Results::new();
                for lengths in BATCHES {
                    let requests: Vec<_> = lengths.iter().map(|len| len.to_le_bytes()).collect();
                    let sent = client.send(MANY, &requests, Deadline::NONE).unwrap();
                    client.recv(sent, &mut results, Deadline::NONE).unwrap();
                    let expected: Vec<_> = requests.iter().map(|request| answer(MANY, request)).collect();
                    assert!(results.iter().eq(expected.iter().map(Vec::as_slice)), "{lengths:?}");
                }
                let sent = client.send(ECHO, &[[7; 50_000]], Deadline::NONE).unwrap();
                client.recv(sent, &mut results, Deadline::NONE).unwrap();
                assert!(results.iter().eq([&[7; 50_000][..]]), "a long request");
                let sent = client.send(MANY, &[(2u32 << 20).to_le_bytes()], Deadline::NONE).unwrap();
                let error = client.recv(sent, &mut results, Deadline::NONE).unwrap_err();
                assert!(matches!(error, RfError::ResultsTooLong), "{error}");
            });
        }
        world.run()?;
        Ok(())
    });
}

#[test]
fn requests_are_batched_by_number_bytes_and_time() {
    let options = SimOptions { faults: Faults::WEATHER, ..SimOptions::default() };
    explore(0..8, &options, |world| {
        let load = Arc::new(Load::default());
        let node = add_node(world, &load, false);
        world.spawn("client", move |process| {
            let clock: Arc<dyn Clock> = Arc::new(process.sim.clock());
            let mut client = open(&process, node, ClientOptions::default()).unwrap();
            let bounds = BatcherOptions { entries: 7, in_flight: 3, ..BatcherOptions::default() };
            let (mut answers, mut sent) = (Vec::new(), Vec::new());
            let mut batcher =
                Batcher::new(&mut client, Arc::clone(&clock), ECHO, bounds.clone(), Deadline::NONE);
            for number in 0..100u64 {
                let request = number.to_le_bytes().repeat(1 + number as usize % 60);
                assert_eq!(batcher.push(&request, &mut answers).unwrap(), number);
                sent.push(request);
            }
            batcher.finish(&mut answers).unwrap();
            let mut all = Vec::new();
            for answer in &answers {
                assert_eq!(answer.first, all.len() as u64);
                assert!(answer.results.len() <= 7);
                all.extend(answer.results.iter().map(<[u8]>::to_vec));
            }
            assert!(
                all.iter().eq(sent.iter().map(|request| answer(ECHO, request)).collect::<Vec<_>>().iter())
            );
            // One waits for others, but not for ever.
            let before = client.counts().batches;
            let mut batcher = Batcher::new(&mut client, Arc::clone(&clock), ECHO, bounds, Deadline::NONE);
            batcher.push(b"alone", &mut answers).unwrap();
            batcher.tick(&mut answers).unwrap();
            assert!(batcher.receive().unwrap().is_none(), "it waits");
            process.sleep(Duration::from_millis(5));
            batcher.tick(&mut answers).unwrap();
            assert_eq!(batcher.receive().unwrap().unwrap().results.len(), 1);
            drop(batcher);
            assert_eq!(client.counts().batches, before + 1);
        });
        world.run()?;
        Ok(())
    });
}

#[test]
fn a_tuned_batch_keeps_the_bound_on_latency() {
    let mut world = World::new(SimOptions::calm().with_seed(3));
    let load = Arc::new(Load::default());
    load.set(Duration::from_nanos(500));
    let node = add_node(&mut world, &load, true);
    world.spawn("client", move |process| {
        let clock: Arc<dyn Clock> = Arc::new(process.sim.clock());
        let mut client = open(&process, node, ClientOptions::default()).unwrap();
        for (bound, sizes) in [(Duration::from_micros(1), 1..=1), (Duration::from_millis(1), 16..=16)] {
            let options =
                BatcherOptions { tuner: Some(Tuner::new(bound, 50_000, 16)), ..BatcherOptions::default() };
            let mut batcher = Batcher::new(&mut client, Arc::clone(&clock), ECHO, options, Deadline::NONE);
            let mut answers = Vec::new();
            for _ in 0..6000 {
                batcher.push(b"request", &mut answers).unwrap();
                answers.clear();
            }
            assert!(sizes.contains(&batcher.batch_size()), "{bound:?}: {}", batcher.batch_size());
        }
    });
    world.run().unwrap();
}
