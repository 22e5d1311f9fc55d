//! A loaded memory node, and the state of the passes over it.

use std::time::Duration;

use anyhow::Context;
use fpcache_datasets::Bar;
use fpcache_datasets::requests::{Growth, Workload};

use super::check::{Checks, everything};
use super::done::Done;
use super::ledger::Ledger;
use super::node_counts::{NodeCounts, Reading};
use super::pass::{self, Course, Hand, Progressing, Timing};
use super::store::Named;
use super::value;
use crate::data::{DataKeys, DataSet};
use crate::run::host::Host;
use crate::run::measure::Measurable;
use crate::run::options::RunArgs;
use crate::systems::fpcache::{self, FpCache, Records};
use crate::systems::{Facts, SystemName};

/// Regions are this many times as large as the data take when loaded: rebuilt segments are less
/// full, and old ones wait before their memory is used again. Pages that are never written take no
/// memory.
const ROOM: u64 = 3;

/// The options with a region large enough for `keys` records that come one by one.
pub fn with_room<K: DataKeys>(run: &RunArgs, set: &K::Set, keys: u64) -> RunArgs {
    let capacity = run.capacity.unwrap_or_else(|| ROOM * run.region_bytes::<K>(&set.lengths(), keys));
    RunArgs { capacity: run.url.is_none().then_some(capacity), ..run.clone() }
}

/// A memory node that holds a table of ours.
#[derive(Debug)]
pub struct Bench<'s, K: DataKeys> {
    /// A client of it.
    pub store: Named<'s, K>,
    /// The same, as `run` sees it.
    pub system: FpCache<K>,
    value_bytes: usize,
    state: Progressing,
    ledger: Ledger,
}

impl<'s, K: DataKeys> Bench<'s, K> {
    /// Loads the keys into a memory node that holds nothing. The inserts are for the passes.
    ///
    /// # Errors
    /// If the memory node is gone, holds a table already, or cannot hold the keys.
    pub fn load(
        host: &Host<K>,
        set: &'s K::Set,
        run: &RunArgs,
        growth: &Growth,
        bar: &Bar,
    ) -> anyhow::Result<Self> {
        let (config, parameters) = (run.client_config(), run.table(&set.lengths()));
        let client = host.connect(config.clone())?;
        let keys = &growth.loaded;
        let value_bytes = run.value_bytes.most() as usize;
        let load = fpcache::load_records(&client, &First::<K> { set, keys, value_bytes }, parameters, bar)
            .with_context(|| format!("loading {} keys into the memory node {}", keys.len(), client.name()))?;
        let system = FpCache::open(client.clone(), SystemName::Fpcache.as_str(), &config, Some(load))?;
        let threads = run.threads as usize;
        let hand = |thread| Hand { inserts: growth.share(thread, threads), inserted: 0 };
        let state = Progressing { hands: (0..threads).map(hand).collect(), base: 0, stretches: 0 };
        Ok(Self { store: Named { client, set }, system, value_bytes, state, ledger: Ledger::default() })
    }

    /// What it is made of.
    pub fn facts(&self) -> Facts {
        Measurable::facts(&self.system)
    }

    /// How long loading took.
    pub fn load_time(&self) -> Duration {
        self.facts().load.unwrap_or_default()
    }

    /// Runs a pass, and says what the memory node did in its time.
    ///
    /// # Errors
    /// If the memory node fails.
    pub fn pass(
        &mut self,
        workload: &Workload,
        course: &Course<'_>,
        timing: Timing,
    ) -> anyhow::Result<(Done, NodeCounts)> {
        let before = Reading::of(&self.store.client)?;
        let mut done = pass::run(&self.store, workload, course, timing, &mut self.state)?;
        let counts = Reading::of(&self.store.client)?.since(&before);
        self.ledger.add(std::mem::take(&mut done.writes));
        report("during the passes", &done.checks);
        Ok((done, counts))
    }

    /// Keys inserted so far.
    pub fn inserted(&self) -> u64 {
        self.state.hands.iter().map(|hand| hand.inserted as u64).sum()
    }

    /// Looks at every record that must be there.
    ///
    /// # Errors
    /// If the memory node fails.
    pub fn verify(&self, loaded: &[u64], bar: &Bar) -> anyhow::Result<Checks> {
        let mut inserted: Vec<u64> =
            self.state.hands.iter().flat_map(|hand| &hand.inserts[..hand.inserted]).copied().collect();
        inserted.sort_unstable();
        let total = (loaded.len() + inserted.len()) as u64;
        let mut checks = bar.during("looking at every record", total, || {
            everything(&self.store, loaded, &self.ledger, self.value_bytes)
        })?;
        checks.add(everything(&self.store, &inserted, &self.ledger, self.value_bytes)?);
        report("in the end", &checks);
        Ok(checks)
    }
}

/// The records that are there before the passes.
struct First<'a, K: DataKeys> {
    set: &'a K::Set,
    /// Their keys' numbers.
    keys: &'a [u64],
    value_bytes: usize,
}

impl<K: DataKeys> Records<K> for First<'_, K> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn key<'a>(&'a self, i: usize, buffer: &'a mut Vec<u8>) -> K::View<'a> {
        self.set.named(self.keys[i], buffer)
    }

    fn write(&self, i: usize, out: &mut Vec<u8>) {
        out.resize(self.value_bytes, 0);
        value::write(self.keys[i], 0, out);
    }
}

fn report(when: &str, checks: &Checks) {
    if let Some(first) = &checks.first {
        eprintln!("WRONG {when}: {} answers; the first: {first}", checks.wrong);
    }
}
