//! Runs of systems in settings, and what they say of statements.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use fpcache_datasets::{OpenOptions, Progress, Spec};

use super::claims::{Claim, Keys, Setting};
use super::error::PaperError;
use super::row::ClaimRow;
use super::stage::{Stage, fewer};
use crate::BuildError;
use crate::experiment::{Experiment, Run, SystemName};
use crate::nic::{Hosts, NicSpec};

/// Keys that the paper's tables have.
pub(super) const KEYS: u64 = 60_000_000;

/// Parameters of systems are compared over every few-th key of larger tables, so that there are
/// this many up to twice as many, with budgets and operations in proportion.
const MOST_SEARCHED: usize = 200_000;

/// How much is done, on what.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Keys of a table; budgets shrink with them.
    pub keys: u64,
    /// The cards.
    pub nic: NicSpec,
    /// Seeds keys and requests.
    pub seed: u64,
}

/// What was measured of a system in a setting: with published parameters, and at its best.
type Both = [Result<Run, BuildError>; 2];

/// Runs that were made before, by the scale, the cards and the seed that this one has.
pub trait Journal: Sync {
    /// What a run gave, of its name; `None` if it was not made.
    fn made(&self, name: &str) -> Option<Vec<Result<Run, BuildError>>>;

    /// A run has been made.
    fn keep(&self, name: &str, runs: &[Result<Run, BuildError>]);
}

/// A data set that was opened.
struct Set {
    of: Keys,
    keys: Arc<Vec<u64>>,
    /// published, stand-in, file or generated.
    source: String,
}

/// Measures statements; runs that several share are made once.
pub struct Bench<'p> {
    pub(super) scale: Scale,
    pub(super) threads: usize,
    progress: Option<&'p dyn Progress>,
    journal: Option<&'p dyn Journal>,
    data_dir: Option<PathBuf>,
    sets: Vec<Set>,
    runs: Vec<(SystemName, Setting, Both)>,
}

impl<'p> Bench<'p> {
    /// At this scale, with `threads` runs at a time: they have nothing in common, so that their
    /// number makes no difference to what they give.
    pub fn new(scale: Scale, threads: usize, progress: Option<&'p dyn Progress>) -> Self {
        let (sets, runs) = (Vec::new(), Vec::new());
        Self { scale, threads: threads.max(1), progress, journal: None, data_dir: None, sets, runs }
    }

    /// The same with runs that were made before: they are not made again.
    #[must_use]
    pub fn with_journal(self, journal: Option<&'p dyn Journal>) -> Self {
        Self { journal, ..self }
    }

    /// The same with published data sets from a folder, where that has them.
    #[must_use]
    pub fn with_data_dir(self, data_dir: Option<PathBuf>) -> Self {
        Self { data_dir, ..self }
    }

    /// Opens the data sets of statements, which are measured later; returns notes on them.
    ///
    /// # Errors
    /// If one cannot be had.
    pub fn open(&mut self, claims: &[Claim]) -> Result<Vec<String>, PaperError> {
        let mut notes = Vec::new();
        for (_, setting) in claims.iter().flat_map(|claim| [claim.this, claim.that]) {
            self.set(setting.keys, &mut notes)?;
        }
        Ok(notes)
    }

    /// What a journal has of a run, or what is made of it now.
    pub(super) fn once(
        &self,
        name: &str,
        make: impl FnOnce() -> Vec<Result<Run, BuildError>>,
    ) -> Vec<Result<Run, BuildError>> {
        if let Some(made) = self.journal.and_then(|journal| journal.made(name)) {
            return made;
        }
        let runs = make();
        if let Some(journal) = self.journal {
            journal.keep(name, &runs);
        }
        runs
    }

    /// Measures statements, in their order.
    ///
    /// # Errors
    /// If their keys cannot be had.
    pub fn measure(&mut self, claims: &[Claim]) -> Result<Vec<ClaimRow>, PaperError> {
        self.prepare(claims)?;
        Ok(claims.iter().filter_map(|claim| self.row(claim)).collect())
    }

    /// What the runs, which have been made, say of a statement.
    fn row(&self, claim: &Claim) -> Option<ClaimRow> {
        let ([this, this_best], [that, that_best]) = (self.both(claim.this)?, self.both(claim.that)?);
        let mut sources: Vec<&str> = Vec::new();
        for set in &self.sets {
            let is_of = [claim.this.1.keys, claim.that.1.keys].contains(&set.of);
            if is_of && !sources.contains(&&*set.source) {
                sources.push(&set.source);
            }
        }
        Some(ClaimRow::new(claim, [this, that], [this_best, that_best], sources.join(", ")))
    }

    fn both(&self, (system, setting): (SystemName, Setting)) -> Option<&Both> {
        let found = self.runs.iter().find(|(s, of, _)| (*s, of.unnamed()) == (system, setting.unnamed()));
        found.map(|(.., both)| both)
    }

    /// Makes the runs that statements need and that have not been made yet.
    fn prepare(&mut self, claims: &[Claim]) -> Result<(), PaperError> {
        let mut missing: Vec<(SystemName, Setting, Arc<Vec<u64>>)> = Vec::new();
        for (system, setting) in claims.iter().flat_map(|claim| [claim.this, claim.that]) {
            let is_same = |s: SystemName, of: &Setting| (s, of.unnamed()) == (system, setting.unnamed());
            if self.both((system, setting)).is_none() && !missing.iter().any(|(s, of, _)| is_same(*s, of)) {
                missing.push((system, setting, self.keys(setting.keys)?));
            }
        }
        if let Some(progress) = self.progress {
            progress.begin("measuring", missing.len() as u64);
        }
        let done = AtomicU64::new(0);
        let made = each(self.threads, &missing, |(system, setting, keys)| {
            let both = self.run_both(*system, setting, keys);
            if let Some(progress) = self.progress {
                progress.advance(done.fetch_add(1, Relaxed) + 1);
            }
            (*system, *setting, both)
        });
        self.runs.extend(made);
        if let Some(progress) = self.progress {
            progress.end();
        }
        Ok(())
    }

    pub(super) fn keys(&mut self, keys: Keys) -> Result<Arc<Vec<u64>>, PaperError> {
        Ok(Arc::clone(&self.set(keys, &mut Vec::new())?.keys))
    }

    /// Where a data set that was opened comes from.
    pub(super) fn source(&self, keys: Keys) -> String {
        self.sets.iter().find(|set| set.of == keys).map(|set| set.source.clone()).unwrap_or_default()
    }

    /// A data set; notes on it are added to `notes` when it is opened.
    fn set(&mut self, keys: Keys, notes: &mut Vec<String>) -> Result<&Set, PaperError> {
        if let Some(at) = self.sets.iter().position(|set| set.of == keys) {
            return Ok(&self.sets[at]);
        }
        let name = match keys {
            Keys::Ycsb => "uniform",
            Keys::Fb => "fb",
            Keys::Wiki => "wiki",
        };
        let spec: Spec = format!("{name}:{}", self.scale.keys).parse()?;
        let options = OpenOptions {
            seed: self.scale.seed,
            data_dir: self.data_dir.clone(),
            progress: self.progress,
            ..OpenOptions::default()
        };
        let set = spec.open(&options)?;
        notes.extend_from_slice(set.notes());
        let source = set.source().to_owned();
        self.sets.push(Set { of: keys, keys: Arc::new(set.into_keys()), source });
        Ok(&self.sets[self.sets.len() - 1])
    }

    fn run_both(&self, system: SystemName, setting: &Setting, keys: &Arc<Vec<u64>>) -> Both {
        let make = || {
            let few = self.few(setting, keys);
            let search = few.as_ref().map(|stage| self.experiment(setting, stage, None).shortened());
            let stage = Stage::new(keys, setting, self.scale.seed);
            self.experiment(setting, &stage, search.as_ref()).run_both(system)
        };
        let name = format!("{} {:?}, {} keys", system.name(), setting.unnamed(), self.source(setting.keys));
        let made = self.once(&name, || make().into());
        // A journal that has another number has none.
        made.try_into().unwrap_or_else(|_| make())
    }

    /// The stage over which parameters are compared, if there are enough keys for some of them to
    /// do.
    pub(super) fn few(&self, setting: &Setting, keys: &[u64]) -> Option<Stage> {
        let few = fewer(keys, MOST_SEARCHED)?;
        Some(Stage::new(&few, setting, self.scale.seed))
    }

    pub(super) fn experiment<'o>(
        &self,
        setting: &Setting,
        stage: &'o Stage,
        search: Option<&'o Experiment<'o>>,
    ) -> Experiment<'o> {
        Experiment {
            sizes: setting.sizes,
            hosts: Hosts::paper(self.scale.nic).with_threads(setting.clients),
            budget: setting.budget_mb * 1_000_000 * stage.keys / KEYS,
            operations: &stage.operations,
            warm: stage.warm,
            by_recency: false,
            fixed: setting.fixed,
            window: None,
            search,
            keys: Arc::clone(&stage.loaded),
        }
    }
}

/// Does something with each of these, `threads` at a time: the results, in their order.
pub(super) fn each<T: Sync, R: Send>(threads: usize, all: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(all.len())));
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(one) = all.get(number) else { break };
            let result = make(one);
            made.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(all.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::super::claims::C;
    use super::*;

    #[test]
    fn a_setting_has_the_clients_that_it_says() {
        let bench = Bench::new(Scale { keys: 1_000, nic: NicSpec::CX6_100G, seed: 1 }, 1, None);
        let keys: Arc<Vec<u64>> = Arc::new((1..=1_000).collect());
        for clients in [64, 128, 384] {
            let setting = Setting { clients, ..C };
            let stage = Stage::new(&keys, &setting, 1);
            let hosts = bench.experiment(&setting, &stage, None).hosts;
            assert_eq!(hosts.clients(), usize::from(clients));
            let mut of_nodes = [0; 6];
            (0..hosts.clients()).for_each(|client| of_nodes[hosts.node_of(client)] += 1);
            assert!(of_nodes.iter().all(|of| of_nodes[0] - of <= 1), "{of_nodes:?}");
        }
    }
}
