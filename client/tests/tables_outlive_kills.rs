//! A durable memory node that is killed at random instants while tables are made, written and
//! dropped: what was acknowledged holds when it starts again, with the memory it left and without.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tables_outlive_kills/over_three.rs"]
mod over_three;

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Directory, PATIENCE, TestKeys, wait_until};
use fpcache_client::{
    ByteKeys, Client, ClientConfig, ClientError, CreateOptions, KeyKind, Nodes, TableClient, TableName,
    TableParameters, Tables, U64Keys,
};
use fpcache_fabric::shm::{ConnectOptions, ShmAddress, connect};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Daemon, DaemonConfig, DurableConfig};

const DATA: &str = "FPCACHE_TABLES_TEST_DATA";
const REGION: &str = "FPCACHE_TABLES_TEST_REGION";
const SOCKET: &str = "FPCACHE_TABLES_TEST_SOCKET";
const URL: &str = "FPCACHE_TABLES_TEST_URL";

/// Not a test of its own: the memory node that the others start and kill.
#[test]
fn played_by_another_process() {
    let (Ok(data), Ok(region), Ok(url)) = (std::env::var(DATA), std::env::var(REGION), std::env::var(URL))
    else {
        return;
    };
    let folders = Folders { data: data.into(), region: region.into() };
    let config = DaemonConfig {
        capacity: 32 << 20,
        exit_with_parent: Some(std::os::unix::process::parent_id()),
        durable: Some(DurableConfig { folders, sync: SyncPolicy::Always }),
        sockets: std::env::var(SOCKET).map(|socket| socket.parse().unwrap()).into_iter().collect(),
        ..DaemonConfig::at(url.parse().unwrap())
    };
    Daemon::open(&config).unwrap().serve().unwrap();
}

/// Where a memory node listens and keeps its data.
struct Place {
    directory: Directory,
    data: PathBuf,
    region: PathBuf,
}

impl Place {
    fn new(region: &str) -> Self {
        let directory = Directory::new();
        let within = directory.socket().parent().unwrap().to_owned();
        Self { directory, data: within.join("data"), region: within.join(region) }
    }

    /// Starts a memory node and waits until it listens.
    fn start(&self) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "played_by_another_process", "--nocapture"])
            .env(DATA, &self.data)
            .env(REGION, &self.region)
            .env(URL, self.directory.url())
            .env(SOCKET, self.socket_url())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let address: ShmAddress = self.directory.url().parse().unwrap();
        loop {
            assert!(child.try_wait().unwrap().is_none(), "the memory node ended at once");
            match connect(&address, ConnectOptions::default()) {
                Ok(connection) if connection.node_process() == Some(child.id()) => return child,
                // Of the one before, which has yet to end.
                Ok(_) => assert!(begun.elapsed() < PATIENCE),
                Err(error) => assert!(error.is_retryable() && begun.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it listens besides, for the protocol of sockets.
    fn socket_url(&self) -> String {
        format!("tcp+unix://{}", self.directory.socket().with_extension("tcp").display())
    }

    /// What a restart of the machine takes, of the tables that are there.
    fn lose_memory(&self) {
        for table in names_in(&self.data.join("tables")) {
            let _ = fs::remove_file(self.region.join("tables").join(&table).join("region.fpr"));
            let _ = fs::remove_file(self.data.join("tables").join(&table).join("notes.fpn"));
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What is known of a table.
#[derive(Clone, Debug)]
enum Known {
    /// Its drop, or that there was none, was acknowledged.
    Absent,
    Present(Contents),
    /// What was asked last was not acknowledged: it may be there, as this has it, or not.
    Open(Contents),
}

/// What is known of a table's records.
#[derive(Clone, Debug, Default)]
struct Contents {
    acknowledged: BTreeMap<u64, u64>,
    /// A change that was not acknowledged.
    open: Option<(u64, u64)>,
}

/// Makes, writes and drops one table until the memory node is gone, and counts the writes that are
/// acknowledged; one in `drops` of what it does to a table that is there is to drop it.
fn worker<K: TestKeys>(
    url: &str,
    name: TableName,
    (kind, drops): (KeyKind, u64),
    mut known: Known,
    seed: u64,
    written: &AtomicU64,
) -> Known {
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let Ok(tables) = Tables::connect(url) else { return known };
    let mut open: Option<TableClient<K>> = None;
    loop {
        let contents = match &mut known {
            Known::Absent => {
                known = match tables.create(&name, kind, CreateOptions::default()) {
                    Ok(()) => Known::Present(Contents::default()),
                    Err(_) => return Known::Open(Contents::default()),
                };
                continue;
            }
            Known::Present(contents) => contents,
            Known::Open(_) => unreachable!("it was looked at when the memory node was there again"),
        };
        let client = match &open {
            Some(client) => client,
            None => {
                // Writes are sent again until their time is over, and the memory node does not come
                // back.
                let deadline = Duration::from_millis(700);
                let config = ClientConfig::default().with_table(name).with_deadline(deadline);
                let Ok(client) = TableClient::connect_with(url, config) else { return known };
                let parameters = TableParameters { epsilon: 8, ..K::parameters() };
                // Made already, or only now.
                if client.key_kind().is_ok_and(|kind| kind.is_none()) && client.create(parameters).is_err() {
                    return known;
                }
                open.insert(client)
            }
        };
        if random() % drops == 0 {
            let contents = contents.clone();
            open = None;
            known = match tables.drop_table(&name) {
                Ok(()) => Known::Absent,
                Err(_) => return Known::Open(contents),
            };
            continue;
        }
        let (number, value) = (random() % 500, random());
        match client.put(K::key(number << 40), &value.to_le_bytes()) {
            Ok(()) => {
                contents.acknowledged.insert(number, value);
                written.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                contents.open = Some((number, value));
                return known;
            }
        }
    }
}

/// Compares what is there with what is known of a table, and says what is known then.
fn look<K: TestKeys>(url: &str, name: TableName, is_there: bool, known: &Known) -> Known {
    let contents = match known {
        Known::Absent => {
            assert!(!is_there, "{name} was dropped");
            return Known::Absent;
        }
        Known::Open(_) if !is_there => return Known::Absent,
        Known::Present(contents) | Known::Open(contents) => contents,
    };
    assert!(is_there, "{name} was made");
    let config = ClientConfig::default().with_table(name);
    let client = TableClient::<K>::connect_with(url, config).unwrap();
    let mut found = BTreeMap::new();
    if client.key_kind().unwrap().is_some() {
        client
            .scan_with(K::lowest_key(), usize::MAX, |key, value| {
                let number = K::number(std::borrow::Borrow::borrow(&key)) >> 40;
                found.insert(number, u64::from_le_bytes(value.try_into().unwrap()));
            })
            .unwrap();
    }
    let mut expected = contents.acknowledged.clone();
    if let Some((number, value)) = contents.open
        && found.get(&number) == Some(&value)
    {
        expected.insert(number, value);
    }
    assert_eq!(found, expected, "{name}");
    Known::Present(Contents { acknowledged: found, open: None })
}

/// The least key, as calls take it.
trait Lowest: TestKeys {
    fn lowest_key() -> Self::Owned {
        Self::key(0)
    }
}

impl<K: TestKeys> Lowest for K {}

fn rounds(region: &str, seed: u64) {
    const TABLES: u64 = 4;
    let (place, mut random) = (Place::new(region), seed);
    let mut known: Vec<Known> = vec![Known::Absent; TABLES as usize];
    let names: Vec<TableName> = (0..TABLES).map(|i| format!("table-{i}").parse().unwrap()).collect();
    let (mut there, mut gone, mut open, written) = (0, 0, 0, AtomicU64::new(0));
    for round in 0..8 {
        let mut child = place.start();
        let url = place.directory.url();
        let listed = Tables::connect(&url).unwrap().list().unwrap().tables;
        for (i, name) in names.iter().enumerate() {
            let table = listed.iter().find(|table| table.name == *name);
            open += u64::from(matches!(known[i], Known::Open(_)));
            let look = if i % 2 == 0 { look::<U64Keys> } else { look::<ByteKeys> };
            known[i] = look(&url, *name, table.is_some(), &known[i]);
            match known[i] {
                Known::Absent => gone += 1,
                _ => there += 1,
            }
        }
        // Nothing is left of tables half made or half dropped; what is there is listed, and nothing
        // else.
        let mut folders = names_in(&place.data.join("tables"));
        folders.sort();
        let listed: Vec<String> = listed.iter().map(|table| table.name.to_string()).collect();
        assert_eq!(folders, listed);
        let mut regions = names_in(&place.region.join("tables"));
        regions.sort();
        assert_eq!(regions, listed);

        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pause = Duration::from_micros(20_000 + (random >> 33) % 180_000);
        known = thread::scope(|scope| {
            let workers: Vec<_> = std::mem::take(&mut known)
                .into_iter()
                .enumerate()
                .map(|(i, known)| {
                    let (url, name, seed, written) = (&url, names[i], random ^ i as u64, &written);
                    // Two have a drop or a create under way most of the time.
                    let drops = if i < 2 { 40 } else { 2 };
                    scope.spawn(move || match i % 2 {
                        0 => worker::<U64Keys>(url, name, (KeyKind::U64, drops), known, seed, written),
                        _ => worker::<ByteKeys>(url, name, (KeyKind::Bytes, drops), known, seed, written),
                    })
                })
                .collect();
            thread::sleep(pause);
            // So that at least one table is there after a kill.
            wait_until(|| written.load(Ordering::Relaxed) > 0);
            child.kill().unwrap();
            child.wait().unwrap();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        if round % 2 == 1 {
            place.lose_memory();
        }
    }
    assert!(there > 0 && there + gone == 8 * TABLES, "{there} {gone}");
    assert!(open > 0, "no kill came amid a create or a drop");
}

#[test]
fn acknowledged_tables_and_records_outlive_kills() {
    rounds("data", 0x5eed_1234);
}

#[test]
fn acknowledged_tables_outlive_kills_with_their_regions_elsewhere() {
    rounds("regions", 0x00c0_ffee_5eed);
}

#[test]
fn many_tables_outlive_kills_with_a_start_straight_after_each() {
    const TABLES: u64 = 16;
    let place = Place::new("regions");
    let name = |i: u64| -> TableName { format!("table-{i}").parse().unwrap() };
    let url = place.directory.url();
    let open = |i: u64| -> TableClient<U64Keys> {
        TableClient::connect_with(&url, ClientConfig::default().with_table(name(i)).with_deadline(PATIENCE))
            .unwrap()
    };
    let mut child = place.start();
    let tables = Tables::connect(&url).unwrap();
    for i in 0..TABLES {
        tables.create(&name(i), KeyKind::U64, CreateOptions::default()).unwrap();
        open(i).create(U64Keys::parameters()).unwrap();
    }
    for round in 1..=5_u64 {
        for i in 0..TABLES {
            let client = open(i);
            (0..3).for_each(|key| client.put(key, &(round + i + key).to_le_bytes()).unwrap());
        }
        // As a service manager does that starts another as soon as it has sent the signal.
        child.kill().unwrap();
        let next = place.start();
        child.wait().unwrap();
        child = next;
        for i in 0..TABLES {
            let client = open(i);
            for key in 0..3 {
                assert_eq!(client.get(key).unwrap().unwrap(), (round + i + key).to_le_bytes(), "{i}: {key}");
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_table_that_cannot_be_gone_on_with_is_closed_and_the_others_are_served() {
    use fpcache_client::ClientError;
    let place = Place::new("region");
    let mut node = place.start();
    let tables = Tables::connect(&place.directory.url()).unwrap();
    let [good, bad] = ["good", "bad"].map(|name| name.parse::<TableName>().unwrap());
    for name in [&good, &bad] {
        tables.create(name, KeyKind::U64, CreateOptions::default()).unwrap();
        let config = ClientConfig::default().with_table(*name);
        let client = TableClient::connect_with(&place.directory.url(), config).unwrap();
        client.create(U64Keys::parameters()).unwrap();
        client.put(7, &70u64.to_le_bytes()).unwrap();
    }
    node.kill().unwrap();
    node.wait().unwrap();
    place.lose_memory();
    // Its log and snapshots are gone but for damaged ones.
    for file in names_in(&place.data.join("tables/bad")) {
        if file.ends_with(".fps") || file.ends_with(".fpl") {
            let path = place.data.join("tables/bad").join(file);
            let whole = fs::read(&path).unwrap();
            fs::write(&path, whole.iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>()).unwrap();
        }
    }
    let mut node = place.start();
    let config = |table| ClientConfig::default().with_table(table);
    let client = TableClient::connect_with(&place.directory.url(), config(good)).unwrap();
    assert_eq!(client.get(7).unwrap(), Some(70u64.to_le_bytes().to_vec()));
    let refused = TableClient::<U64Keys>::connect_with(&place.directory.url(), config(bad)).map(|_| ());
    assert!(matches!(&refused, Err(ClientError::TableClosed { table, .. }) if table == "bad"), "{refused:?}");
    let tables = Tables::connect(&place.directory.url()).unwrap();
    let listed = |tables: &Tables| -> Vec<(String, bool)> {
        let list = tables.list().unwrap();
        list.tables.iter().map(|table| (table.name.to_string(), table.is_closed())).collect()
    };
    assert!(
        listed(&tables).contains(&("bad".into(), true)) && listed(&tables).contains(&("good".into(), false))
    );
    match tables.create(&bad, KeyKind::U64, CreateOptions::default()) {
        Err(ClientError::TableExists { why }) => {
            assert!(why.contains("closed"), "{why}");
        }
        other => panic!("its name is taken: {other:?}"),
    }
    let missing = tables.create_if_missing(&bad, KeyKind::U64, CreateOptions::default());
    assert!(matches!(&missing, Err(ClientError::TableClosed { .. })), "{missing:?}");
    tables.drop_table(&bad).unwrap();
    assert!(listed(&tables).iter().all(|(name, _)| name != "bad"));
    assert!(!place.data.join("tables/bad").exists());
    tables.create(&bad, KeyKind::U64, CreateOptions::default()).unwrap();
    let client = TableClient::<U64Keys>::connect_with(&place.directory.url(), config(bad)).unwrap();
    drop(client);
    node.kill().unwrap();
    node.wait().unwrap();
}

/// Numbers in no order (xorshift).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
