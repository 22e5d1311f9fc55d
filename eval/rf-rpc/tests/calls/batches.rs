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
