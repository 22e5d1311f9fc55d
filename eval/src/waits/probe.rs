//! Puts at a steady rate, timed while something else is in progress.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::KeyKind;
use fpcache_client::{Client, ClientConfig, TableClient, TableParameters, Tables, U64Keys};
use hdrhistogram::Histogram;

/// How long a request may take.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Records of the table that gets the puts.
const KEYS: u64 = 1000;

/// A table that gets a put every so often.
pub struct Probe {
    client: TableClient<U64Keys>,
    every: Duration,
    /// The process of the memory node, whose first thread serves.
    node: u32,
}

/// Latencies of puts, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// As the client saw them.
    pub seen: Histogram<u64>,
    /// Without the time for which the client's thread or the memory node's could run and had no
    /// processor; `None` where the operating system does not tell.
    pub own: Option<Histogram<u64>>,
}

/// For how long a thread could run and had no processor, in all its life.
struct RunDelay(File);

impl RunDelay {
    fn of(path: &str) -> Option<Self> {
        let delay = Self(File::open(path).ok()?);
        delay.nanoseconds().map(|_| delay)
    }

    /// The second of three numbers: on a processor, waiting for one, and how often.
    fn nanoseconds(&self) -> Option<u64> {
        let mut text = [0; 96];
        let len = self.0.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.split_whitespace().nth(1)?.parse().ok()
    }
}

/// Says when the puts count.
#[derive(Debug, Default)]
pub struct Probing {
    /// Begins and ends of the work beside which they count: odd while it is under way.
    edges: AtomicU64,
    /// Puts that counted.
    counted: AtomicU64,
    ends: AtomicBool,
}

impl Probing {
    /// Has the puts count that are under way while `work` is, be it for a part of their time.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        self.edges.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.edges.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Whether no put has counted yet.
    pub fn has_none(&self) -> bool {
        self.counted.load(Ordering::SeqCst) == 0
    }

    fn edges(&self) -> u64 {
        self.edges.load(Ordering::SeqCst)
    }
}

/// Ends the puts, however their companion ends.
struct End<'p>(&'p Probing);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::SeqCst);
    }
}

impl Probe {
    /// Makes the table of the puts, one every `every_us` microseconds, at the memory node of this
    /// process.
    pub fn new(url: &str, node: u32, every_us: u64) -> anyhow::Result<Self> {
        let table = "probe".parse()?;
        Tables::connect_with(url, ClientConfig::default().with_deadline(DEADLINE))?.create(
            &table,
            KeyKind::U64,
            Default::default(),
        )?;
        let config = ClientConfig::default().with_table(table).with_deadline(DEADLINE);
        let client = Client::connect_with(url, config)?;
        let mut load = client.load(TableParameters::default(), KEYS)?;
        (0..KEYS).try_for_each(|key| load.push(key, &key.to_le_bytes()))?;
        load.finish()?;
        Ok(Self { client, every: Duration::from_micros(every_us), node })
    }

    /// Puts beside `work`; returns the latencies of the puts that counted, and what `work` did.
    pub fn beside<R>(
        &self,
        work: impl FnOnce(&Probing) -> anyhow::Result<R>,
    ) -> anyhow::Result<(Latencies, R)> {
        let probing = Probing::default();
        thread::scope(|scope| {
            let puts = scope.spawn(|| self.put(&probing));
            let ending = End(&probing);
            let worked = work(&probing);
            drop(ending);
            let latencies = puts.join().map_err(|_| anyhow::anyhow!("the thread of the puts has failed"))?;
            Ok((latencies.context("a put to the other table")?, worked?))
        })
    }

    fn put(&self, probing: &Probing) -> anyhow::Result<Latencies> {
        let delays = [
            RunDelay::of("/proc/thread-self/schedstat"),
            RunDelay::of(&format!("/proc/{}/schedstat", self.node)),
        ];
        let delayed =
            || delays.iter().map(|delay| delay.as_ref().and_then(RunDelay::nanoseconds)).sum::<Option<u64>>();
        let mut seen = Histogram::new(3)?;
        let mut own = delayed().map(|_| seen.clone());
        let every = self.every.as_nanos() as u64;
        let mut due = Instant::now();
        for number in 0u64.. {
            if probing.ends.load(Ordering::SeqCst) {
                break;
            }
            due += self.every;
            let now = Instant::now();
            if due > now {
                thread::sleep(due - now);
            } else {
                due = now;
            }
            let (edges, before) = (probing.edges(), delayed());
            let began = Instant::now();
            self.client.put(number.wrapping_mul(7) % KEYS, &number.to_le_bytes())?;
            let nanoseconds = began.elapsed().as_nanos() as u64;
            if edges.is_multiple_of(2) && edges == probing.edges() {
                continue;
            }
            seen.record_correct(nanoseconds.max(1), every)?;
            if let (Some(own), Some((after, before))) = (&mut own, delayed().zip(before)) {
                let delayed = after.saturating_sub(before);
                own.record_correct(nanoseconds.saturating_sub(delayed).max(1), every)?;
            }
            probing.counted.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Latencies { seen, own })
    }
}
