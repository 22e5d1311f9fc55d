//! Tables over three memory nodes, of which one is killed, or the client that makes or drops them.

use std::os::unix::process::ExitStatusExt;

use super::*;

const URLS: &str = "FPCACHE_TABLES_TEST_URLS";
const DROPS: &str = "FPCACHE_TABLES_TEST_DROPS";

/// Not a test of its own: the client that makes the table, or drops it, until it is killed.
#[test]
fn played_by_another_client() {
    let Ok(urls) = std::env::var(URLS) else { return };
    let work = if std::env::var_os(DROPS).is_some() { drop_over } else { make_over };
    work(&urls).unwrap();
}

/// The memory nodes of a table over three, of which the second is reached over a socket.
struct Three {
    places: [Place; 3],
    children: [Child; 3],
}

impl Three {
    fn start() -> Self {
        let places = ["a", "b", "c"].map(Place::new);
        let children = places.each_ref().map(Place::start);
        Self { places, children }
    }

    fn url(&self, which: usize) -> String {
        match which {
            1 => self.places[1].socket_url(),
            _ => self.places[which].directory.url(),
        }
    }

    fn urls(&self) -> String {
        [0, 1, 2].map(|which| self.url(which)).join(",")
    }

    fn kill(&mut self, which: usize) {
        self.children[which].kill().unwrap();
        self.children[which].wait().unwrap();
    }

    fn restart(&mut self, which: usize) {
        self.children[which] = self.places[which].start();
    }
}

impl Drop for Three {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn over_three() -> ClientConfig {
    ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(Duration::from_secs(2))
}

/// The greatest keys of the first two ranges are below these.
const SPLIT_AT: [u64; 2] = [1000, 2000];

fn make_over(urls: &str) -> Result<(), ClientError> {
    let nodes = Nodes::at_with(urls, ClientConfig::default().with_deadline(Duration::from_secs(10)))?;
    nodes.create::<U64Keys>(&"t".parse().unwrap(), TableParameters::default(), &SPLIT_AT, Default::default())
}

fn drop_over(urls: &str) -> Result<(), ClientError> {
    Nodes::at_with(urls, ClientConfig::default().with_deadline(Duration::from_secs(10)))?
        .drop_table(&"t".parse().unwrap())
}

#[test]
fn of_three_memory_nodes_one_that_is_killed_fails_its_range_and_loses_no_acknowledged_write() {
    let mut three = Three::start();
    make_over(&three.urls()).unwrap();
    let client = Client::connect_with(&three.url(1), over_three()).unwrap();
    let is_over = AtomicBool::new(false);
    let written: [AtomicU64; 3] = Default::default();
    let known = thread::scope(|scope| {
        // A thread for each range puts ever greater values, and one reads all ranges together.
        let writers = [0, 1, 2].map(|range| {
            let (client, is_over, written) = (client.clone(), &is_over, &written[range]);
            scope.spawn(move || {
                let mut known: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
                for value in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = range as u64 * 1000 + value % 100;
                    let (acknowledged, tried) = known.entry(key).or_default();
                    *tried = value;
                    match client.put(key, &value.to_le_bytes()) {
                        Ok(()) => {
                            *acknowledged = value;
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(ClientError::OutcomeUnknown { .. }) => {}
                        Err(error) => {
                            assert!(error.is_retryable(), "{error}");
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                }
                known
            })
        });
        let (reading, is_over) = (client.clone(), &is_over);
        scope.spawn(move || {
            let keys: Vec<u64> = (0..300).map(|i| i % 3 * 1000 + i / 3).collect();
            while !is_over.load(Ordering::Relaxed) {
                if let Err(error) = reading.multi_get(&keys) {
                    assert!(error.is_retryable(), "{error}");
                }
            }
        });
        let progress = |which: usize| {
            let (before, begun) = (written[which].load(Ordering::Relaxed), Instant::now());
            while written[which].load(Ordering::Relaxed) < before + 20 {
                assert!(begun.elapsed() < PATIENCE, "range {which} takes no writes");
                thread::sleep(Duration::from_millis(1));
            }
        };
        for which in [0, 1, 2, 1] {
            (0..3).for_each(progress);
            three.kill(which);
            (0..3).filter(|other| *other != which).for_each(progress);
            let own_key = which as u64 * 1000 + 500;
            let begun = Instant::now();
            let error = loop {
                match client.get(own_key) {
                    Err(error) => break error,
                    Ok(_) => assert!(begun.elapsed() < PATIENCE, "mapped memory is believed a moment longer"),
                }
            };
            assert!(error.is_retryable() && error.to_string().contains(&three.url(which)), "{error}");
            three.restart(which);
        }
        (0..3).for_each(progress);
        is_over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap())
    });
    for (key, (acknowledged, tried)) in known.into_iter().flatten() {
        let value = client.get(key).unwrap().map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        assert!((acknowledged..=tried).contains(&value), "{key}: {value} of {acknowledged} to {tried}");
    }
}

#[test]
fn a_table_over_three_memory_nodes_that_is_half_made_or_half_dropped_is_finished_by_repeating() {
    let mut three = Three::start();
    let urls = three.urls();
    let mut rng = Rng(7);
    for round in 0..6 {
        let is_drop = round % 2 == 1;
        if is_drop {
            let client = Client::connect_with(&three.url(round % 3), over_three()).unwrap();
            [0, 1500, 2500].into_iter().for_each(|key| client.put(key, &[7; 8]).unwrap());
        }
        let work = if is_drop { drop_over } else { make_over };
        let which = round % 3;
        let asked = urls.clone();
        let working = thread::spawn(move || work(&asked));
        thread::sleep(Duration::from_micros(rng.next() % 30_000));
        three.kill(which);
        let first = working.join().unwrap();
        let seen = Client::connect_with(&three.url((which + 1) % 3), over_three());
        match (is_drop, &first, seen) {
            // A client that sees it sees it whole.
            (_, _, Ok(client)) => {
                let key = [0, 1500, 2500][(which + 1) % 3];
                match client.get(key) {
                    Ok(found) => assert_eq!(found.is_some(), is_drop),
                    Err(error) => assert!(is_drop && first.is_err(), "{error}"),
                }
            }
            (false, Ok(()), Err(error)) => panic!("it was made: {error}"),
            (_, _, Err(ClientError::NoSuchTable { .. } | ClientError::TableNotWhole { .. })) => {}
            (_, _, Err(error)) => panic!("{error}"),
        }
        three.restart(which);
        match (is_drop, first, work(&urls)) {
            (_, _, Ok(())) | (true, Ok(()), Err(ClientError::NoSuchTable { .. })) => {}
            // All of it was gone when the first call lost its memory node.
            (true, Err(_), Err(ClientError::NoSuchTable { .. })) => {}
            (_, first, Err(error)) => panic!("{error}, after {first:?}"),
        }
        for which in 0..3 {
            match Client::connect_with(&three.url(which), over_three()) {
                Ok(client) => assert!(!is_drop && client.get(5).unwrap().is_none()),
                Err(error) => assert!(is_drop, "{error}"),
            }
        }
    }
}

#[test]
fn a_drop_over_three_memory_nodes_takes_a_closed_range_along() {
    for closed in [0, 1] {
        let mut three = Three::start();
        let urls = three.urls();
        make_over(&urls).unwrap();
        let client = Client::connect_with(&three.url(2), over_three()).unwrap();
        let keys = [5, 1500, 2500];
        keys.into_iter().for_each(|key| client.put(key, &[7; 8]).unwrap());
        three.kill(closed);
        three.places[closed].lose_memory();
        let tables = three.places[closed].data.join("tables");
        let ranges = || names_in(&tables).into_iter().filter(|name| name.starts_with("t@"));
        let range = ranges().next().unwrap();
        for file in names_in(&tables.join(&range)) {
            if file.ends_with(".fps") || file.ends_with(".fpl") {
                let path = tables.join(&range).join(file);
                let whole = fs::read(&path).unwrap();
                fs::write(&path, whole.iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>()).unwrap();
            }
        }
        three.restart(closed);
        // It is there and may be mended: not lost.
        let begun = Instant::now();
        let error = loop {
            match client.get(keys[closed]) {
                Err(error) if error.is_retryable() && begun.elapsed() < PATIENCE => {}
                Ok(_) => assert!(begun.elapsed() < PATIENCE),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ClientError::TableClosed { .. }), "{error}");
        assert_eq!(client.get(2500).unwrap(), Some(vec![7; 8]));
        // It does not know who has the others.
        let error = drop_over(&three.url(closed)).unwrap_err().to_string();
        assert!(error.contains("closed") && error.contains("--nodes"), "{error}");
        assert!(make_over(&urls).is_err(), "what it has is not lost");
        drop_over(&three.url(2)).unwrap();
        assert_eq!(ranges().next(), None, "it would come back when it is mended");
        make_over(&urls).unwrap();
    }
}

#[test]
fn a_table_over_three_memory_nodes_whose_client_is_killed_is_whole_or_finished_by_repeating() {
    const KEYS: [u64; 3] = [0, 1500, 2500];
    let three = Three::start();
    let urls = three.urls();
    let start = |is_drop: bool| {
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", "over_three::played_by_another_client"]).env(URLS, &urls);
        if is_drop {
            client.env(DROPS, "");
        }
        client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // As long as one takes that is not killed.
    let usual = [false, true].map(|is_drop| {
        let begun = Instant::now();
        assert!(start(is_drop).wait().unwrap().success());
        begun.elapsed()
    });
    let (mut rng, mut killed) = (Rng(11), 0);
    for round in 0..12 {
        let is_drop = round % 2 == 1;
        if is_drop {
            let client = Client::connect_with(&three.url(round % 3), over_three()).unwrap();
            KEYS.into_iter().for_each(|key| client.put(key, &[7; 8]).unwrap());
        }
        let mut child = start(is_drop);
        let most = usual[usize::from(is_drop)].as_micros() as u64;
        thread::sleep(Duration::from_micros(rng.next() % most));
        child.kill().unwrap();
        killed += u64::from(child.wait().unwrap().signal().is_some());
        for which in 0..3 {
            match Client::connect_with(&three.url(which), over_three()) {
                // A client that sees it sees it whole, unless it is being dropped.
                Ok(client) => KEYS.into_iter().for_each(|key| match client.get(key) {
                    Ok(found) => assert_eq!(found.is_some(), is_drop),
                    Err(error) => assert!(is_drop, "{error}"),
                }),
                Err(ClientError::NoSuchTable { .. } | ClientError::TableNotWhole { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        match if is_drop { drop_over(&urls) } else { make_over(&urls) } {
            Err(ClientError::NoSuchTable { .. }) if is_drop => {}
            ended => ended.unwrap(),
        }
        for (which, place) in three.places.iter().enumerate() {
            // Nothing is left of another one that was half made.
            for within in [&place.data, &place.region] {
                let mut names = names_in(&within.join("tables"));
                names.retain(|name| name != "default");
                assert_eq!(names.len(), usize::from(!is_drop), "round {round}, {which}: {names:?}");
            }
            match Client::connect_with(&three.url(which), over_three()) {
                Ok(client) => assert!(!is_drop && client.get(5).unwrap().is_none()),
                Err(error) => assert!(is_drop, "{error}"),
            }
        }
    }
    assert!(killed > 0, "all ended before they were killed");
}
