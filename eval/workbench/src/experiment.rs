//! Any system in one experiment, with its published parameters or with the best of those tried.

mod system_name;

use std::sync::Arc;

use ::fpcache::cache::Variant;
use ::fpcache::fingerprint::FingerprintWidth;
use ::fpcache::key_space::{ByteKeys, U64Keys};
use ::fpcache::read::{Plan, PlanChoice};

pub use system_name::{SystemName, UnknownSystem};

use crate::bench::{Bench, Measured, Operation};
use crate::bloom;
use crate::chime::{self, Chime};
use crate::cuckoo;
use crate::dmtree::{self, DmTree};
use crate::fpcache::{FpCache, Numbered, Options};
use crate::nic::Hosts;
use crate::oracle::Oracle;
use crate::range;
use crate::rolex::{self, Rolex};
use crate::segments;
use crate::sherman::{self, Sherman};
use crate::smart::Smart;
use crate::words::{Index, Memory, OverWords};
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
    /// What is fixed.
    pub fixed: Fixed,
    /// Operations of a window, if the throughput of each is wanted.
    pub window: Option<u64>,
}

/// What a system gave, and how it was set up.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    /// Its parameters, for people.
    pub parameters: String,
    /// What it gave.
    #[serde(flatten)]
    pub measured: Measured,
}

/// One way to set a system up.
enum Candidate {
    FpCache(Options),
    Range(segments::Options),
    Bloom(bloom::Options),
    Cuckoo(cuckoo::Options),
    Smart,
    Chime(chime::Options),
    Rolex(rolex::Options),
    Sherman(sherman::Options),
    DmTree(dmtree::Options),
}

/// A plan's name, and `auto` for none.
fn plan_name(plan: PlanChoice) -> &'static str {
    match plan {
        PlanChoice::Auto => "auto",
        PlanChoice::Fixed(plan) => plan.name(),
    }
}

/// Segments for people.
fn describe_segments(o: &segments::Options) -> String {
    let hot = if o.keeps_hot { "what is left for hot entries" } else { "no hot entries" };
    format!("epsilon {}, {hot}", o.epsilon)
}

/// A filter over segments for people.
fn describe_filter(o: &segments::Options, bits: f64) -> String {
    let of = match o.page {
        None => "keys".to_owned(),
        Some(1) => "keys with slots".to_owned(),
        Some(slots) => format!("keys with pages of {slots} slots"),
    };
    format!("{bits} bits a key for {of}, {}", describe_segments(o))
}

impl Candidate {
    fn describe(&self) -> String {
        match self {
            Self::FpCache(o) => format!(
                "epsilon {}, fingerprints of {} bits, {}, {} entries",
                o.epsilon,
                o.width.bits(),
                plan_name(o.plan),
                o.variant
            ),
            Self::Range(o) => describe_segments(o),
            Self::Bloom(o) => describe_filter(&o.segments, o.bits_per_key),
            Self::Cuckoo(o) => describe_filter(&o.segments, o.bits_per_key),
            Self::Smart => "no parameters".into(),
            Self::Chime(o) => format!("{:.0} % of the budget for hot entries", 100.0 * o.hot_share),
            Self::Rolex(o) => format!("epsilon {}, leaves of {}", o.epsilon, o.leaf_slots),
            Self::Sherman(o) => format!("leaves of {}", o.leaf_slots),
            Self::DmTree(o) => format!("{:.0} % of the budget for fingerprints", 100.0 * o.fingerprint_share),
        }
    }

    /// The published one, and then others that were worth trying.
    fn of(name: SystemName, parameters: Parameters, experiment: &Experiment<'_>) -> Vec<Self> {
        let (budget, fixed) = (experiment.budget, &experiment.fixed);
        let of_segments = |epsilon: u32, keeps_hot, page| {
            let epsilon = fixed.epsilon.unwrap_or(epsilon);
            segments::Options { epsilon, keeps_hot, page, ..segments::Options::published(budget) }
        };
        let mut all: Vec<Self> = match name {
            SystemName::FpCache => {
                let mut published = Options::published(budget, experiment.sizes);
                published.epsilon = fixed.epsilon.unwrap_or(published.epsilon);
                published.width = fixed.width.unwrap_or(published.width);
                published.variant = fixed.variant.unwrap_or(published.variant);
                published.plan = fixed.plan.map_or(published.plan, PlanChoice::Fixed);
                let tried = [
                    (8, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::TwoStage)),
                    (16, FingerprintWidth::Bits16, PlanChoice::Fixed(Plan::TwoStage)),
                    (8, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::Speculative)),
                    (8, FingerprintWidth::Bits8, PlanChoice::Auto),
                    (4, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::Range)),
                ];
                let others = tried.into_iter().map(|(epsilon, width, plan)| Options {
                    epsilon: fixed.epsilon.unwrap_or(epsilon),
                    width: fixed.width.unwrap_or(width),
                    plan: if fixed.plan.is_some() { published.plan } else { plan },
                    ..published
                });
                std::iter::once(published).chain(others).map(Self::FpCache).collect()
            }
            SystemName::Range => [(16, false), (16, true), (8, true), (4, true)]
                .map(|(epsilon, keeps_hot)| Self::Range(of_segments(epsilon, keeps_hot, None)))
                .into(),
            SystemName::Bloom => {
                let published = bloom::Options::published(budget).bits_per_key;
                let of = |(segments, bits)| {
                    Self::Bloom(bloom::Options { segments, bits_per_key: published * bits })
                };
                of_filters(of_segments).map(of).into()
            }
            SystemName::Cuckoo => {
                let published = cuckoo::Options::published(budget).bits_per_key;
                let of = |(segments, bits)| {
                    Self::Cuckoo(cuckoo::Options { segments, bits_per_key: published * bits })
                };
                of_filters(of_segments).map(of).into()
            }
            SystemName::Smart => vec![Self::Smart],
            SystemName::Chime => [0.3, 0.1, 0.5, 0.7]
                .map(|hot_share| {
                    Self::Chime(chime::Options { hot_share, ..chime::Options::published(budget) })
                })
                .into(),
            SystemName::Rolex => [(16, 16), (8, 8), (4, 8), (8, 4)]
                .map(|(epsilon, leaf_slots)| {
                    let epsilon = fixed.epsilon.unwrap_or(epsilon);
                    Self::Rolex(rolex::Options { epsilon, leaf_slots, budget })
                })
                .into(),
            SystemName::Sherman => [54, 27, 14, 7]
                .map(|leaf_slots| {
                    Self::Sherman(sherman::Options { leaf_slots, ..sherman::Options::published(budget) })
                })
                .into(),
            SystemName::DmTree => [0.5, 0.3, 0.7, 0.85]
                .map(|fingerprint_share| {
                    Self::DmTree(dmtree::Options { fingerprint_share, ..dmtree::Options::published(budget) })
                })
                .into(),
        };
        // What the experiment fixes makes some of them the same.
        let mut seen = Vec::new();
        all.retain(|candidate| {
            let text = candidate.describe();
            let is_new = !seen.contains(&text);
            seen.push(text);
            is_new
        });
        if parameters == Parameters::Published {
            all.truncate(1);
        }
        all
    }
}

/// Segments behind filters, with the bits of these as shares of the published ones.
fn of_filters(
    segments: impl Fn(u32, bool, Option<u32>) -> segments::Options,
) -> [(segments::Options, f64); 6] {
    [
        (segments(16, false, None), 1.0),
        (segments(8, true, None), 1.0),
        (segments(16, true, Some(1)), 1.0),
        (segments(8, true, Some(1)), 1.0),
        (segments(8, true, Some(1)), 0.6),
        (segments(8, true, Some(2)), 0.6),
    ]
}

impl Experiment<'_> {
    /// Measures a system with the parameters that its authors publish, or with the best of those tried.
    ///
    /// # Errors
    /// If it cannot be built in the budget, whatever its parameters.
    pub fn run(&self, name: SystemName, parameters: Parameters) -> Result<Run, BuildError> {
        match parameters {
            Parameters::Published => self.with_published(name),
            Parameters::Best => self.with_best(name, || self.with_published(name)),
        }
    }

    /// Measures a system with both.
    pub fn run_both(&self, name: SystemName) -> [Result<Run, BuildError>; 2] {
        let published = self.with_published(name);
        let best = self.with_best(name, || published.clone());
        [published, best]
    }

    /// Measures FPCache set up in this way.
    ///
    /// # Errors
    /// If it cannot be built in the budget.
    pub fn run_fpcache(&self, options: &Options) -> Result<Run, BuildError> {
        let candidate = Candidate::FpCache(*options);
        self.try_one(&candidate).map(|measured| Run { parameters: candidate.describe(), measured })
    }

    fn with_published(&self, name: SystemName) -> Result<Run, BuildError> {
        let all = Candidate::of(name, Parameters::Published, self);
        let first = all.first().ok_or_else(|| BuildError(format!("{} has no parameters", name.name())))?;
        self.try_one(first).map(|measured| Run { parameters: first.describe(), measured })
    }

    /// The first of the candidates is the published one.
    fn with_best(
        &self,
        name: SystemName,
        published: impl FnOnce() -> Result<Run, BuildError>,
    ) -> Result<Run, BuildError> {
        let all = Candidate::of(name, Parameters::Best, self);
        let search = self.shortened();
        let mut best = (0, 0.0);
        for (i, candidate) in all.iter().enumerate().filter(|_| all.len() > 1) {
            match search.try_one(candidate) {
                Ok(measured) if measured.per_second > best.1 => best = (i, measured.per_second),
                // What does not fit the budget is not the best.
                Ok(_) | Err(_) => {}
            }
        }
        match all.get(best.0) {
            Some(candidate) if best.0 > 0 => {
                self.try_one(candidate).map(|measured| Run { parameters: candidate.describe(), measured })
            }
            _ => published(),
        }
    }

    /// The same with the first quarter of the operations, by which candidates are compared.
    fn shortened(&self) -> Self {
        const SHARE: usize = 4;
        let operations = &self.operations[..self.operations.len() / SHARE];
        Self { operations, warm: self.warm / SHARE as u64, window: None, ..self.clone() }
    }

    fn try_one(&self, candidate: &Candidate) -> Result<Measured, BuildError> {
        let (keys, sizes, nodes) = (&self.keys, self.sizes, self.hosts.compute_nodes);
        let mut memory = Memory::new(self.hosts.memory_nodes);
        Ok(match candidate {
            Candidate::FpCache(options) if sizes.key == 8 => self.fpcache::<U64Keys>(options)?,
            Candidate::FpCache(options) => self.fpcache::<ByteKeys>(options)?,
            Candidate::Range(options) => {
                let range = range::build(&mut memory, keys, sizes, nodes, options)?;
                self.over_words(range, memory)
            }
            Candidate::Bloom(options) => {
                let bloom = bloom::build(&mut memory, keys, sizes, nodes, options)?;
                self.over_words(bloom, memory)
            }
            Candidate::Cuckoo(options) => {
                let cuckoo = cuckoo::build(&mut memory, keys, sizes, nodes, options)?;
                self.over_words(cuckoo, memory)
            }
            Candidate::Smart => {
                let smart = Smart::new(&mut memory, keys, sizes, nodes, self.budget);
                self.over_words(smart, memory)
            }
            Candidate::Chime(options) => {
                let chime = Chime::new(&mut memory, keys, sizes, nodes, options);
                self.over_words(chime, memory)
            }
            Candidate::Rolex(options) => {
                let rolex = Rolex::new(&mut memory, keys, sizes, nodes, options)?;
                self.over_words(rolex, memory)
            }
            Candidate::Sherman(options) => {
                let sherman = Sherman::new(&mut memory, keys, sizes, nodes, options);
                self.over_words(sherman, memory)
            }
            Candidate::DmTree(options) => {
                let dmtree = DmTree::new(&mut memory, keys, sizes, nodes, options);
                self.over_words(dmtree, memory)
            }
        })
    }

    fn over_words<I: Index>(&self, index: I, memory: Memory) -> Measured {
        let system = OverWords::new(index, memory, &self.hosts);
        let bench = Bench::new(system, &self.hosts, self.operations, Oracle::new(Arc::clone(&self.keys)));
        bench.run_in_windows(self.hosts, self.warm, self.window.unwrap_or(u64::MAX))
    }

    fn fpcache<K: Numbered>(&self, options: &Options) -> Result<Measured, BuildError> {
        let inserts = self.operations.iter().filter(|o| matches!(o, Operation::Insert { .. })).count();
        let system = FpCache::<K>::new(&self.keys, self.sizes, options, &self.hosts, inserts)?;
        let oracle = Oracle::new(Arc::clone(&self.keys));
        let bench = Bench::new(system, &self.hosts, self.operations, oracle);
        Ok(bench.run_in_windows(self.hosts, self.warm, self.window.unwrap_or(u64::MAX)))
    }
}
