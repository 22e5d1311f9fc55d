//! Puts at a steady rate, timed while something else is under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::KeyKind;
use fpcache_client::{Client, ClientConfig, TableParameters, Tables, U64Keys};
use hdrhistogram::Histogram;

use super::loads::DEADLINE;

/// Records of the table that gets the puts.
const KEYS: u64 = 1000;

/// A table that gets a put every so often.
pub struct Probe {
    client: Client<U64Keys>,
    every: Duration,
}

/// Says when the puts count.
#[derive(Debug, Default)]
pub struct Probing {
    counts: AtomicBool,
    ends: AtomicBool,
}

impl Probing {
    /// Has the puts count that are under way while `work` is.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        self.counts.store(true, Ordering::SeqCst);
        let result = work();
        self.counts.store(false, Ordering::SeqCst);
        result
    }

    fn counts(&self) -> bool {
        self.counts.load(Ordering::SeqCst)
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
    /// Makes the table of the puts, one every so many microseconds.
    pub fn new(url: &str, every_us: u64) -> anyhow::Result<Self> {
        let table = "probe".parse()?;
        Tables::connect_with(url, DEADLINE)?.create(&table, KeyKind::U64, Default::default())?;
        let config = ClientConfig { table, deadline: DEADLINE, ..ClientConfig::default() };
        let client = Client::connect_with(url, config)?;
        let mut load = client.load(TableParameters::default(), KEYS)?;
        (0..KEYS).try_for_each(|key| load.push(key, &key.to_le_bytes()))?;
        load.finish()?;
        Ok(Self { client, every: Duration::from_micros(every_us) })
    }

    /// Puts beside `work`; returns the latencies in nanoseconds of the puts that counted, and what `work` did.
    pub fn beside<R>(
        &self,
        work: impl FnOnce(&Probing) -> anyhow::Result<R>,
    ) -> anyhow::Result<(Histogram<u64>, R)> {
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

    fn put(&self, probing: &Probing) -> anyhow::Result<Histogram<u64>> {
        let mut latencies = Histogram::new(3)?;
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
            let counted = probing.counts();
            let began = Instant::now();
            self.client.put(number.wrapping_mul(7) % KEYS, &number.to_le_bytes())?;
            let nanoseconds = began.elapsed().as_nanos() as u64;
            if counted || probing.counts() {
                latencies.record_correct(nanoseconds.max(1), every)?;
            }
        }
        Ok(latencies)
    }
}
