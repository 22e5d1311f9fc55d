//! Jakiro, the key-value store of the RF-RPC paper (Su et al., TPDS 2018, section 5.1): a hash
//! table in partitions, each owned by one server thread, whose buckets have eight slots and evict
//! the least recently used pair. Clients use RF-RPC, with requests by WRITE and results by READ,
//! or, as the paper's `ServerReply`, results that the server sends.
//!
//! | | the paper's | here |
//! |---|---|---|
//! | threads of the server | up to 16; more than two saturate its card (section 5.3) | one for each two processors |
//! | buckets | not told | enough for the data set to fit without a pair given up |
//! | R, F | 5, 256 bytes | 5 over sockets, 200 over shared memory, where a fetch is that much shorter; 256 |

mod channel;
mod server;
mod store;

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fpcache_datasets::{Bar, KeySet, Progress};
use fpcache_rf_rpc::{Mode, Results};

use super::server::{Server, cpu_time, free_port};
use super::{Facts, Reader, System, SystemName};
use crate::data::{DataKeys, DataSet};
use crate::run::transport::Transport;
use crate::run::values::ValueBytes;
use channel::Channel;

pub use server::{CLIENTS, JakiroNodeArgs, serve};

/// The two RPCs.
const GET: u16 = 1;
const PUT: u16 = 2;
/// Pairs that are stored with one call, and their bytes unless there is one alone.
const STORED_TOGETHER: (usize, usize) = (64, 48 << 10);
/// Memory that buckets may take.
const MOST_BUCKET_BYTES: usize = 8 << 30;

/// A server that holds a data set.
#[derive(Debug)]
pub struct Jakiro<K> {
    name: SystemName,
    server: Arc<Server>,
    /// Where each partition is.
    addresses: Vec<String>,
    facts: Facts,
    _keys: PhantomData<fn() -> K>,
}

impl<K: DataKeys> Jakiro<K> {
    /// Starts a server as a second process and stores a data set. To be called by the main thread.
    ///
    /// # Errors
    /// If it cannot be started, or the data set needs more buckets than there may be.
    pub fn load(dataset: &K::Set, values: ValueBytes, over: Transport, bar: &Bar) -> anyhow::Result<Self> {
        let partitions = thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Self::load_into(partitions, dataset, values, over, bar)
    }

    fn load_into(
        partitions: usize,
        dataset: &K::Set,
        values: ValueBytes,
        over: Transport,
        bar: &Bar,
    ) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let buckets = buckets_for::<K>(dataset, partitions)?;
        let (server, addresses) = start(partitions, buckets, over)?;
        let facts = Facts { transport: Some(over.as_str()), ..Facts::default() };
        let name = SystemName::Jakiro;
        let mut system = Self { name, server: Arc::new(server), addresses, facts, _keys: PhantomData };
        let count = dataset.len() as u64;
        bar.during("loading jakiro", count, || system.store(dataset, values, bar))?;
        system.facts.load = Some(begun.elapsed());
        Ok(system)
    }

    /// The same server under this name, which says how its results come.
    pub fn by(&self, name: SystemName) -> Self {
        let (server, addresses) = (Arc::clone(&self.server), self.addresses.clone());
        Self { name, server, addresses, facts: self.facts, _keys: PhantomData }
    }

    fn store(&self, dataset: &K::Set, values: ValueBytes, bar: &Bar) -> anyhow::Result<()> {
        let mut channels = Channels::of(self);
        let mut waiting: Vec<Vec<Vec<u8>>> = vec![Vec::new(); self.addresses.len()];
        let (mut buffer, mut key) = (Vec::new(), Vec::new());
        for i in 0..dataset.len() {
            encode::<K>(dataset.key(i, &mut buffer), &mut key);
            let partition = store::partition_of(store::hash(&key), waiting.len());
            // Keys have at most 4 KiB.
            let mut pair = [&(key.len() as u16).to_le_bytes(), &key[..]].concat();
            values.append(dataset.value(i), &mut pair);
            let pairs = &mut waiting[partition];
            let bytes: usize = pairs.iter().chain([&pair]).map(|pair| pair.len() + 4).sum();
            if pairs.len() == STORED_TOGETHER.0 || bytes > STORED_TOGETHER.1 {
                channels.store(partition, pairs)?;
                bar.advance(i as u64);
            }
            pairs.push(pair);
        }
        (0..waiting.len()).try_for_each(|partition| channels.store(partition, &mut waiting[partition]))
    }
}

/// Puts the bytes of a key in place of what `out` holds.
fn encode<K: DataKeys>(key: K::View<'_>, out: &mut Vec<u8>) {
    out.resize(K::encoded_len(key.borrow()), 0);
    K::encode(key.borrow(), out);
}

/// How many buckets of each partition hold a data set of which no pair is to be given up.
fn buckets_for<K: DataKeys>(dataset: &K::Set, partitions: usize) -> anyhow::Result<usize> {
    let (mut buffer, mut key) = (Vec::new(), Vec::new());
    let mut hash_of = |i| {
        encode::<K>(dataset.key(i, &mut buffer), &mut key);
        store::hash(&key)
    };
    let hashes: Vec<u64> = (0..dataset.len()).map(&mut hash_of).collect();
    let mut buckets = (dataset.len() / (2 * partitions)).max(1);
    loop {
        ensure!(
            buckets * partitions * 64 <= MOST_BUCKET_BYTES,
            "jakiro: {} keys need more than {MOST_BUCKET_BYTES} bytes of buckets so that none is given up: use fewer keys",
            dataset.len()
        );
        let mut filled = vec![0u8; buckets * partitions];
        let fits = hashes.iter().all(|hash| {
            let partition = store::partition_of(*hash, partitions);
            let count = &mut filled[partition * buckets + store::bucket_of(*hash, buckets)];
            *count += 1;
            usize::from(*count) <= store::SLOTS
        });
        if fits {
            return Ok(buckets);
        }
        buckets *= 2;
    }
}

/// Starts the server's process, and says where each partition listens.
fn start(partitions: usize, buckets: usize, over: Transport) -> anyhow::Result<(Server, Vec<String>)> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let ports = (0..partitions).map(|_| free_port()).collect::<anyhow::Result<Vec<_>>>()?;
    let mut addresses = Vec::new();
    let words = |folder: &std::path::Path| {
        addresses = ports
            .iter()
            .enumerate()
            .map(|(partition, port)| {
                let socket = folder.join(partition.to_string());
                match over {
                    Transport::Tcp | Transport::Rdma => format!("{}://{port}", over.as_str()),
                    Transport::Unix => format!("tcp+unix://{}", socket.display()),
                    // The options refuse the others.
                    _ => format!("shm://{}", socket.display()),
                }
            })
            .collect();
        let mut words = vec!["jakiro-node".to_owned(), "--buckets".to_owned(), buckets.to_string()];
        words.extend(["--ready".to_owned(), folder.join("ready").display().to_string()]);
        addresses.iter().for_each(|address| words.extend(["--listen".to_owned(), address.clone()]));
        words
    };
    let server = Server::start_as("jakiro", &program, "node", words, |folder| folder.join("ready").exists())?;
    Ok((server, addresses))
}

impl<K: DataKeys> System for Jakiro<K> {
    type Keys = K;
    type Reader<'a> = JakiroReader<'a, K>;

    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn server_cpu(&self) -> Option<Duration> {
        cpu_time(self.server.process_id())
    }

    fn reader(&self) -> JakiroReader<'_, K> {
        let partitions = self.addresses.len();
        let asked = (0..partitions).map(|_| Asked::default()).collect();
        JakiroReader {
            channels: Channels::of(self),
            asked,
            places: Vec::new(),
            key: Vec::new(),
            _keys: PhantomData,
        }
    }
}

/// One thread's channels to the partitions, opened when they are first asked.
struct Channels<'a> {
    addresses: &'a [String],
    mode: Option<Mode>,
    open: Vec<Option<Channel>>,
}

impl<'a> Channels<'a> {
    fn of<K>(system: &'a Jakiro<K>) -> Self {
        let addresses = &system.addresses;
        let mode = (system.name == SystemName::JakiroReply).then_some(Mode::Reply);
        Self { addresses, mode, open: addresses.iter().map(|_| None).collect() }
    }

    fn to(&mut self, partition: usize) -> anyhow::Result<&mut Channel> {
        match &mut self.open[partition] {
            Some(channel) => Ok(channel),
            none => Ok(none.insert(Channel::open(&self.addresses[partition], self.mode)?)),
        }
    }

    fn store(&mut self, partition: usize, pairs: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        let channel = self.to(partition)?;
        channel.send(PUT, pairs)?;
        let mut results = Results::new();
        channel.receive(&mut results)?;
        ensure!(results.iter().all(|result| result == [1]), "jakiro gave up a pair for another one");
        pairs.clear();
        Ok(())
    }
}

/// What a partition is asked for, and has answered.
#[derive(Default)]
struct Asked {
    keys: Vec<Vec<u8>>,
    /// Of which this many are in use.
    count: usize,
    results: Results,
}

/// One thread's way to look things up.
pub struct JakiroReader<'a, K> {
    channels: Channels<'a>,
    asked: Vec<Asked>,
    /// Of each key of the last group: partition, and number there.
    places: Vec<(usize, usize)>,
    /// The bytes of a key.
    key: Vec<u8>,
    _keys: PhantomData<fn() -> K>,
}

impl<K: DataKeys> JakiroReader<'_, K> {
    fn ask(&mut self, keys: &[K::View<'_>]) -> anyhow::Result<()> {
        let Self { channels, asked, places, key, .. } = self;
        asked.iter_mut().for_each(|asked| asked.count = 0);
        places.clear();
        for view in keys {
            encode::<K>(*view, key);
            let partition = store::partition_of(store::hash(key), asked.len());
            let Asked { keys, count, .. } = &mut asked[partition];
            places.push((partition, *count));
            match keys.get_mut(*count) {
                Some(place) => std::mem::swap(place, key),
                None => keys.push(std::mem::take(key)),
            }
            *count += 1;
        }
        // All are asked before the first has to answer.
        for (partition, asked) in asked.iter().enumerate().filter(|(_, asked)| asked.count > 0) {
            channels.to(partition)?.send(GET, &asked.keys[..asked.count])?;
        }
        for (partition, asked) in asked.iter_mut().enumerate().filter(|(_, asked)| asked.count > 0) {
            channels.to(partition)?.receive(&mut asked.results)?;
            ensure!(asked.results.len() == asked.count, "jakiro left keys without an answer");
        }
        Ok(())
    }
}

impl<K: DataKeys> Reader<K> for JakiroReader<'_, K> {
    fn get(&mut self, key: K::View<'_>) -> anyhow::Result<Option<&[u8]>> {
        self.ask(&[key])?;
        Ok(self.answer(0))
    }

    fn get_many(&mut self, keys: &[K::View<'_>]) -> anyhow::Result<()> {
        self.ask(keys)
    }

    fn answer(&self, index: usize) -> Option<&[u8]> {
        let (partition, number) = *self.places.get(index)?;
        let (is_there, value) = self.asked[partition].results.get(number)?.split_first()?;
        (*is_there == 1).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_so_many_that_no_pair_is_given_up() {
        let dataset = "uniform:20K".parse().unwrap();
        let set = <fpcache_client::U64Keys as DataKeys>::open(&dataset, &Default::default()).unwrap();
        let buckets = buckets_for::<fpcache_client::U64Keys>(&set, 2).unwrap();
        let mut partitions = [store::Partition::new(buckets), store::Partition::new(buckets)];
        let mut key = Vec::new();
        for i in 0..set.len() {
            encode::<fpcache_client::U64Keys>(set.keys()[i], &mut key);
            let partition = store::partition_of(store::hash(&key), 2);
            assert!(!partitions[partition].put(&key, b"value"));
        }
    }
}
