//! Any system in one experiment, with its published parameters or with the best of those tried.

mod system_name;

use std::sync::Arc;

use ::fpcache::cache::Variant;
use ::fpcache::fingerprint::FingerprintWidth;
use ::fpcache::key_space::{ByteKeys, U64Keys};
use ::fpcache::layout::{GroupChoice, GroupForm, TableParameters};
use ::fpcache::plan::{Plan, PlanChoice};

pub use system_name::{SystemName, UnknownSystem};

use crate::bench::{Bench, Measured, Operation, System};
use crate::bloom::Bloom;
use crate::chime::{self, Chime};
use crate::cuckoo::Cuckoo;
use crate::dmtree::{self, DmTree};
use crate::fpcache::{FpCache, Numbered, Options};
use crate::nic::Hosts;
use crate::oracle::Oracle;
use crate::range::NoFilter;
use crate::rolex::{self, Rolex};
use crate::segments::{self, Filter, Segmented};
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
    /// The smaller one by which parameters are compared; without it, it is this one's [first quarter](Self::shortened).
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

/// One way to set a system up: for people, and how that is measured.
struct Candidate {
    text: String,
    #[allow(clippy::type_complexity, reason = "a function over any experiment")]
    measure: Box<dyn Fn(&Experiment<'_>) -> Result<Measured, BuildError>>,
}

/// Says how full nodes or segments are loaded, where that is not as published: of fuller ones scans are shorter, and inserts dearer, as
/// of ROLEX's leaves, which are full anyway.
fn loaded(fill: f64, published: f64) -> String {
    if fill == published { String::new() } else { format!(", fill {fill}") }
}

/// A plan's name, and `auto` for none.
fn plan_name(plan: PlanChoice) -> &'static str {
    match plan {
        PlanChoice::Auto => "auto",
        PlanChoice::Fixed(plan) => plan.name(),
    }
}

impl Candidate {
    fn fpcache(o: Options) -> Self {
        let (bits, plan) = (o.width.bits(), plan_name(o.plan));
        let groups = o.groups.map_or_else(String::new, |choice| format!(" ({choice})"));
        let full = loaded(o.fill, Options::published(o.budget, Sizes { key: 8, value: 8 }).fill);
        let text = format!(
            "epsilon {}, fingerprints of {bits} bits, {plan}{groups}, {} entries{full}",
            o.epsilon, o.variant
        );
        let measure = move |experiment: &Experiment<'_>| match experiment.sizes.key {
            8 => experiment.fpcache::<U64Keys>(&o),
            _ => experiment.fpcache::<ByteKeys>(&o),
        };
        Self { text, measure: Box::new(measure) }
    }

    /// An index over words, which is built of memory, keys, their sizes and the number of compute nodes.
    fn index<I: Index>(
        text: String,
        build: impl Fn(&mut Memory, &[u64], Sizes, u16) -> Result<I, BuildError> + 'static,
    ) -> Self {
        let measure = move |experiment: &Experiment<'_>| {
            let mut memory = Memory::new(experiment.hosts.memory_nodes);
            let compute_nodes = experiment.hosts.compute_nodes;
            let index = build(&mut memory, &experiment.keys, experiment.sizes, compute_nodes)?;
            Ok(experiment.measure(OverWords::new(index, memory, &experiment.hosts)))
        };
        Self { text, measure: Box::new(measure) }
    }

    /// Segments, with a filter where there is one.
    fn segments<F: Filter + 'static>(o: segments::Options) -> Self {
        let hot = if o.keeps_hot { "what is left for hot entries" } else { "no hot entries" };
        let mut text = format!("epsilon {}, {hot}", o.epsilon);
        if F::PUBLISHED_BITS > 0.0 {
            let of = match o.page {
                None => "keys".to_owned(),
                Some(1) => "keys with slots".to_owned(),
                Some(slots) => format!("keys with pages of {slots} slots"),
            };
            text = format!("{} bits a key for {of}, {text}", o.bits_share * F::PUBLISHED_BITS);
        }
        Self::index(text, move |memory, keys, sizes, nodes| {
            Segmented::<F>::new(memory, keys, sizes, nodes, &o)
        })
    }

    fn chime(o: chime::Options) -> Self {
        let full = loaded(o.fill, chime::Options::published(o.budget).fill);
        let text = format!("{:.0} % of the budget for hot entries{full}", 100.0 * o.hot_share);
        Self::index(text, move |memory, keys, sizes, nodes| Ok(Chime::new(memory, keys, sizes, nodes, &o)))
    }

    fn rolex(o: rolex::Options) -> Self {
        let text = format!("epsilon {}, leaves of {}", o.epsilon, o.leaf_slots);
        Self::index(text, move |memory, keys, sizes, nodes| Rolex::new(memory, keys, sizes, nodes, &o))
    }

    fn sherman(o: sherman::Options) -> Self {
        let full = loaded(o.fill, sherman::Options::published(o.budget).fill);
        let text = format!("leaves of {}{full}", o.leaf_slots);
        Self::index(text, move |memory, keys, sizes, nodes| Ok(Sherman::new(memory, keys, sizes, nodes, &o)))
    }

    fn dmtree(o: dmtree::Options) -> Self {
        let full = loaded(o.fill, dmtree::Options::published(o.budget).fill);
        let text = format!("{:.0} % of the budget for fingerprints{full}", 100.0 * o.fingerprint_share);
        Self::index(text, move |memory, keys, sizes, nodes| Ok(DmTree::new(memory, keys, sizes, nodes, &o)))
    }

    /// The published one, and then others that were worth trying.
    fn of(name: SystemName, parameters: Parameters, experiment: &Experiment<'_>) -> Vec<Self> {
        let (budget, fixed) = (experiment.budget, experiment.fixed);
        let segments = |epsilon: u32, keeps_hot, page, bits_share| {
            let epsilon = fixed.epsilon.unwrap_or(epsilon);
            segments::Options { epsilon, keeps_hot, page, bits_share, ..segments::Options::published(budget) }
        };
        let filtered = [
            segments(16, false, None, 1.0),
            segments(8, true, None, 1.0),
            segments(16, true, Some(1), 1.0),
            segments(8, true, Some(1), 1.0),
            segments(8, true, Some(1), 0.6),
            segments(8, true, Some(2), 0.6),
        ];
        let mut all: Vec<Self> = match name {
            SystemName::FpCache => fpcaches(experiment).into_iter().map(Self::fpcache).collect(),
            SystemName::Range => [(16, false), (16, true), (8, true), (4, true)]
                .map(|(epsilon, keeps_hot)| {
                    Self::segments::<NoFilter>(segments(epsilon, keeps_hot, None, 1.0))
                })
                .into(),
            SystemName::Bloom => filtered.map(Self::segments::<Bloom>).into(),
            SystemName::Cuckoo => filtered.map(Self::segments::<Cuckoo>).into(),
            SystemName::Smart => {
                vec![Self::index("no parameters".into(), move |memory, keys, sizes, nodes| {
                    Ok(Smart::new(memory, keys, sizes, nodes, budget))
                })]
            }
            SystemName::Chime => [(0.3, None), (0.1, None), (0.5, None), (0.7, None), (0.3, Some(0.85))]
                .map(|(hot_share, fill)| {
                    let published = chime::Options::published(budget);
                    chime::Options { hot_share, fill: fill.unwrap_or(published.fill), ..published }
                })
                .map(Self::chime)
                .into(),
            SystemName::Rolex => [(16, 16), (8, 8), (4, 8), (8, 4)]
                .map(|(epsilon, leaf_slots)| rolex::Options {
                    epsilon: fixed.epsilon.unwrap_or(epsilon),
                    leaf_slots,
                    budget,
                })
                .map(Self::rolex)
                .into(),
            SystemName::Sherman => [(54, None), (27, None), (14, None), (7, None), (54, Some(1.0))]
                .map(|(leaf_slots, fill)| {
                    let published = sherman::Options::published(budget);
                    sherman::Options { leaf_slots, fill: fill.unwrap_or(published.fill), ..published }
                })
                .map(Self::sherman)
                .into(),
            SystemName::DmTree => [(0.5, None), (0.3, None), (0.7, None), (0.85, None), (0.5, Some(1.0))]
                .map(|(fingerprint_share, fill)| {
                    let published = dmtree::Options::published(budget);
                    dmtree::Options { fingerprint_share, fill: fill.unwrap_or(published.fill), ..published }
                })
                .map(Self::dmtree)
                .into(),
        };
        // What the experiment fixes makes some of them the same.
        let mut seen = Vec::new();
        all.retain(|candidate| {
            let is_new = !seen.contains(&candidate.text);
            seen.push(candidate.text.clone());
            is_new
        });
        if parameters == Parameters::Published {
            all.truncate(1);
        }
        all
    }

    fn run(&self, experiment: &Experiment<'_>) -> Result<Run, BuildError> {
        (self.measure)(experiment).map(|measured| Run { parameters: self.text.clone(), measured })
    }
}

/// FPCache as it is published, and in other ways: in groups where nothing is fixed that these have no use for.
fn fpcaches(experiment: &Experiment<'_>) -> Vec<Options> {
    let (budget, fixed) = (experiment.budget, experiment.fixed);
    let paper = Options::published(budget, experiment.sizes);
    let two_stage = PlanChoice::Fixed(Plan::TwoStage);
    let in_windows = [
        (paper.epsilon, paper.width, paper.plan, paper.fill),
        (8, FingerprintWidth::Bits8, two_stage, paper.fill),
        (16, FingerprintWidth::Bits16, two_stage, paper.fill),
        (8, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::Speculative), paper.fill),
        (8, FingerprintWidth::Bits8, PlanChoice::Auto, paper.fill),
        (4, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::Range), paper.fill),
        (4, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::Range), 1.0),
        (6, FingerprintWidth::Bits8, PlanChoice::Fixed(Plan::Range), 0.95),
    ]
    .map(|(epsilon, width, plan, fill)| Options {
        fill,
        epsilon: fixed.epsilon.unwrap_or(epsilon),
        width: fixed.width.unwrap_or(width),
        plan: fixed.plan.map_or(plan, PlanChoice::Fixed),
        variant: fixed.variant.unwrap_or(paper.variant),
        ..paper
    });
    let in_groups =
        [(32, GroupChoice::Auto), (128, GroupChoice::Fixed(GroupForm::Pilots))].map(|(epsilon, choice)| {
            Options {
                epsilon: fixed.epsilon.unwrap_or(epsilon),
                width: FingerprintWidth::Bits16,
                plan: PlanChoice::Auto,
                groups: Some(choice),
                fill: TableParameters::FILL_OF_GROUPS,
                ..paper
            }
        });
    let suits = (fixed.width, fixed.plan, fixed.variant) == (None, None, None);
    in_windows.into_iter().chain(in_groups.into_iter().filter(|_| suits)).collect()
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

    /// Measures a system with both. The published parameters are the best where those that a smaller experiment found are slower here.
    pub fn run_both(&self, name: SystemName) -> [Result<Run, BuildError>; 2] {
        let published = self.with_published(name);
        let found = self.with_best(name, || published.clone());
        let best = match (&published, found) {
            (Ok(one), Ok(other)) if one.measured.per_second > other.measured.per_second => published.clone(),
            (Ok(_), Err(_)) => published.clone(),
            (_, found) => found,
        };
        [published, best]
    }

    /// Measures FPCache set up in this way.
    ///
    /// # Errors
    /// If it cannot be built in the budget.
    pub fn run_fpcache(&self, options: &Options) -> Result<Run, BuildError> {
        Candidate::fpcache(*options).run(self)
    }

    fn with_published(&self, name: SystemName) -> Result<Run, BuildError> {
        let all = Candidate::of(name, Parameters::Published, self);
        let first = all.first().ok_or_else(|| BuildError(format!("{} has no parameters", name.name())))?;
        first.run(self)
    }

    /// The first of the candidates is the published one.
    fn with_best(
        &self,
        name: SystemName,
        published: impl FnOnce() -> Result<Run, BuildError>,
    ) -> Result<Run, BuildError> {
        let all = Candidate::of(name, Parameters::Best, self);
        let search = self.search.map_or_else(|| self.shortened(), Clone::clone);
        let mut best = (0, 0.0);
        for (i, candidate) in all.iter().enumerate().filter(|_| all.len() > 1) {
            match (candidate.measure)(&search) {
                Ok(measured) if measured.wrong == 0 && measured.per_second > best.1 => {
                    best = (i, measured.per_second);
                }
                // What does not fit the budget, or answers wrongly, is not the best.
                Ok(_) | Err(_) => {}
            }
        }
        match all.get(best.0) {
            Some(candidate) if best.0 > 0 => candidate.run(self),
            _ => published(),
        }
    }

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
        bench.run_in_windows(self.hosts, self.warm, self.window.unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::NicSpec;

    #[test]
    fn candidates_that_differ_in_fill_alone_are_all_tried() {
        let fixed = Fixed { epsilon: Some(8), plan: Some(Plan::Range), ..Fixed::default() };
        let experiment = Experiment {
            keys: Arc::default(),
            sizes: Sizes { key: 8, value: 8 },
            hosts: Hosts::paper(NicSpec::CX6_100G),
            budget: 1 << 20,
            operations: &[],
            warm: 0,
            fixed,
            window: None,
            search: None,
        };
        let all = Candidate::of(SystemName::FpCache, Parameters::Best, &experiment);
        for fill in ["fill 1", "fill 0.95"] {
            assert_eq!(all.iter().filter(|one| one.text.ends_with(fill)).count(), 1, "{fill}");
        }
        assert!(!all[0].text.contains("fill"), "{}", all[0].text);
    }
}
