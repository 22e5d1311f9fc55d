//! Any system in one experiment, with its published parameters or with the best of those tried.

mod candidate;
mod run;
mod system_name;

use std::sync::Arc;

use ::fpcache::cache::Variant;
use ::fpcache::fingerprint::FingerprintWidth;
use ::fpcache::plan::Plan;

pub use self::system_name::{SystemName, UnknownSystem};
use crate::bench::{Bench, Measured, Operation, System};
use crate::fpcache::{FpCache, Numbered, Options};
use crate::nic::Hosts;
use crate::oracle::Oracle;
use crate::{BuildError, Sizes};

/// Which parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Parameters {
    /// Those that its authors publish.
    Published,
    /// The fastest of a few.
    Best,
}

/// What is fixed for a system by the experiment, where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fixed {
    /// Error bound of models.
    pub epsilon: Option<u32>,
    /// Width of FPCache's fingerprints.
    pub width: Option<FingerprintWidth>,
    /// How FPCache reads.
    pub plan: Option<Plan>,
    /// What FPCache's hot cache holds.
    pub variant: Option<Variant>,
}

/// What is done, and where.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// Ascending keys.
    pub keys: Arc<Vec<u64>>,
    /// Bytes of keys and values.
    pub sizes: Sizes,
    /// The machines.
    pub hosts: Hosts,
    /// Bytes that a compute node may keep.
    pub budget: u64,
    /// Operations: some to fill caches, then those that are measured.
    pub operations: &'a [Operation],
    /// How many are to fill caches.
    pub warm: u64,
    /// Whether [their keys are ranks](Bench::by_recency).
    pub by_recency: bool,
    /// What is fixed.
    pub fixed: Fixed,
    /// Operations of a window, if the throughput of each is wanted.
    pub window: Option<u64>,
    /// The smaller one by which parameters are compared; without it, it is this one's [first
    /// quarter](Self::shortened).
    pub search: Option<&'a Self>,
}

/// What a system gave, and how it was set up.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Run {
    /// Its parameters, for people.
    pub parameters: String,
    /// What it gave.
    #[serde(flatten)]
    pub measured: Measured,
}

impl Experiment<'_> {
    /// The same with the first quarter of the operations.
    #[must_use]
    pub fn shortened(&self) -> Self {
        const SHARE: usize = 4;
        let operations = &self.operations[..self.operations.len() / SHARE];
        Self { operations, warm: self.warm / SHARE as u64, window: None, ..self.clone() }
    }

    fn fpcache<K: Numbered>(&self, options: &Options) -> Result<Measured, BuildError> {
        let inserts = self.operations.iter().filter(|o| matches!(o, Operation::Insert { .. })).count();
        let system = FpCache::<K>::new(&self.keys, self.sizes, options, &self.hosts, inserts)?;
        Ok(self.measure(system))
    }

    fn measure(&self, system: impl System) -> Measured {
        let bench = Bench::new(system, &self.hosts, self.operations, Oracle::new(Arc::clone(&self.keys)));
        let bench = if self.by_recency { bench.by_recency() } else { bench };
        bench.run_in_windows(self.hosts, self.warm, self.window.unwrap_or(u64::MAX))
    }
}
