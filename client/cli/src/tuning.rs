//! `--tune`: parameters that follow from the keys, the fabric and the budget.

use anyhow::{Context, ensure};
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use fpcache_client::tuning::{Considered, Forced, KeySample, Lookups, Tuned, tune};
use fpcache_client::{FabricCosts, GroupChoice, RecordShape, Url};
use serde_json::{Value, json};

use crate::keys::Keys;
use crate::numbers::size;
use crate::table_arguments::TableArguments;

/// How a table's parameters are found that are not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tune {
    /// By a sample of the keys, what the fabric charges, and the budget
    Auto,
}

/// What lookups go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fabric {
    /// Memory of this machine
    Shm,
    /// Sockets
    Tcp,
    /// Network cards
    Rdma,
}

impl Fabric {
    fn costs(self) -> FabricCosts {
        match self {
            Self::Shm => FabricCosts::MAPPED_MEMORY,
            Self::Tcp => FabricCosts::TCP,
            Self::Rdma => FabricCosts::RDMA,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Tuning {
    /// Choose the parameters that are not given (form of groups, epsilon, fill, fingerprint bits):
    /// of those whose lookups take at most 5 % more than the least time, the ones for which a
    /// compute node keeps the fewest bytes; and print the choice beside the others
    #[arg(long, value_enum, value_name = "HOW")]
    tune: Option<Tune>,

    /// With --tune: what lookups will go over [default: as the memory node's URL]
    #[arg(long, value_enum, value_name = "FABRIC", requires = "tune")]
    tune_for: Option<Fabric>,

    /// With --tune: how many lookups are in flight at the memory node, from all compute nodes; with
    /// many, plans that read fewer bytes are preferred
    #[arg(long, value_name = "N", default_value_t = 1, requires = "tune")]
    tune_concurrency: u32,

    /// With --tune: memory that a compute node may spend on this table, such as 64MiB. A hot cache
    /// gets what models and groups leave of it, up to an entry for every key that they do not settle
    /// [default: no limit, and no hot cache]
    #[arg(long, value_name = "BYTES", requires = "tune", value_parser = size)]
    tune_budget: Option<ByteSize>,

    /// With --tune: inserts to come for each key that is loaded; after a fifth segments are rebuilt
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, requires = "tune")]
    tune_growth: f64,
}

impl Tuning {
    /// Whether parameters are to be found.
    pub(crate) fn is_wanted(&self) -> bool {
        self.tune.is_some()
    }

    /// Refuses what makes no sense.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            (0.0..=1e6).contains(&self.tune_growth),
            "--tune-growth {}: write inserts for each key that is loaded, such as 0.1",
            self.tune_growth
        );
        Ok(())
    }

    /// What suits `keys` ascending keys, with records of this shape; `None` if that is not wanted.
    pub(crate) fn of<K: Keys>(
        &self,
        place: &TableArguments,
        (keys, key): (usize, impl Fn(usize) -> K::Owned),
        shape: RecordShape,
        forced: &Forced,
    ) -> anyhow::Result<Option<Tuned>> {
        if !self.is_wanted() {
            return Ok(None);
        }
        let costs = match self.tune_for {
            Some(fabric) => fabric.costs(),
            None => place.url.split(',').next().unwrap_or_default().parse::<Url>()?.costs(),
        };
        let lookups = Lookups::over(costs.at_concurrency(self.tune_concurrency));
        let lookups = lookups.with_budget(self.tune_budget.map(|budget| budget.as_u64()));
        let sample = KeySample::<K>::of(keys, key);
        let tuned = tune(&sample, shape, &lookups, self.tune_growth, forced);
        tuned.map(Some).context("--tune auto")
    }
}

/// What was chosen and what else there was, as JSON.
pub(crate) fn document(tuned: Option<&Tuned>) -> Value {
    let one = |one: &Considered| {
        json!({
            "group_form": one.parameters.groups.map(|groups| GroupChoice::from(groups).to_string()),
            "epsilon": one.parameters.epsilon,
            "fill": one.parameters.fill,
            "fingerprint_bits": one.parameters.fingerprint_bits(),
            "round_trips": one.split.way.round_trips,
            "bytes_read": one.split.way.bytes,
            "ns": one.split.ns,
            "bytes_per_key": one.bytes_per_key(),
            "entries": one.split.entries as u64,
            "fits": one.split.fits,
        })
    };
    tuned.map_or(Value::Null, |tuned| {
        json!({
            "chosen": one(tuned.chosen()),
            "considered": tuned.considered.iter().map(one).collect::<Vec<_>>(),
            "fingerprints": tuned.fingerprints.map(|worth| json!({
                "share_of_region": worth.share,
                "times_without": worth.times,
            })),
        })
    })
}
