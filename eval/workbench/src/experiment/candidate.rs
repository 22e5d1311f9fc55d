//! Ways to set the systems up: the published one of each, and others that are tried beside it.

use ::fpcache::fingerprint::FingerprintWidth;
use ::fpcache::key_space::{ByteKeys, U64Keys};
use ::fpcache::layout::{GroupChoice, GroupForm, TableParameters};
use ::fpcache::plan::{Plan, PlanChoice};

use super::{Experiment, Parameters, Run, SystemName};
use crate::bench::Measured;
use crate::bloom::Bloom;
use crate::chime::{self, Chime};
use crate::cuckoo::Cuckoo;
use crate::dmtree::{self, DmTree};
use crate::fpcache::Options;
use crate::inner_nodes::Inner;
use crate::range::NoFilter;
use crate::rolex::{self, Rolex};
use crate::segments::{self, Filter, Segmented};
use crate::sherman::{self, Sherman};
use crate::smart::Smart;
use crate::words::{Index, Memory, OverWords};
use crate::{BuildError, Sizes};

/// One way to set a system up: for people, and how that is measured.
pub(super) struct Candidate {
    pub(super) text: String,
    #[allow(clippy::type_complexity, reason = "a function over any experiment")]
    pub(super) measure: Box<dyn Fn(&Experiment<'_>) -> Result<Measured, BuildError>>,
}

/// Says how full nodes or segments are loaded, where that is not as published: of fuller ones scans
/// are shorter, and inserts dearer, as of ROLEX's leaves, which are full anyway.
fn loaded(fill: f64, published: f64) -> String {
    if fill == published { String::new() } else { format!(", fill {fill}") }
}

/// Says how wide inner nodes are and which are kept, where that is not as published.
fn levels(inner: Inner, published: Inner) -> String {
    let span =
        if inner.span == published.span { String::new() } else { format!(", inner nodes of {}", inner.span) };
    let kept = if inner.all_levels == published.all_levels { "" } else { ", all levels kept" };
    span + kept
}

/// The levels above a tree's leaves that are tried, the published ones first; none for systems that
/// have none.
///
/// Narrow nodes are READ and kept in smaller pieces. Those of more levels, which are kept, too: it
/// is the least of what is kept, and saves the way from the root.
pub(super) fn inner_levels(name: SystemName) -> Vec<Option<Inner>> {
    let published = match name {
        SystemName::Chime => chime::Options::published(0).inner,
        SystemName::Sherman => sherman::Options::published(0).inner,
        SystemName::DmTree => dmtree::Options::published(0).inner,
        SystemName::FpCache
        | SystemName::Range
        | SystemName::Bloom
        | SystemName::Cuckoo
        | SystemName::Smart
        | SystemName::Rolex => return vec![None],
    };
    let mut all = vec![published];
    all.extend([published.span, 32, 16, 8].map(|span| Inner { span, all_levels: true }));
    let mut distinct: Vec<Option<Inner>> = Vec::new();
    for inner in all.into_iter().map(Some) {
        if !distinct.contains(&inner) {
            distinct.push(inner);
        }
    }
    distinct
}

impl Candidate {
    pub(super) fn fpcache(o: Options) -> Self {
        let (bits, plan) = (o.width.bits(), o.plan.name());
        let groups = o.groups.map_or_else(String::new, |choice| format!(" ({choice})"));
        let together = if o.together { ", changes together" } else { "" };
        let full = loaded(o.fill, Options::published(o.budget, Sizes { key: 8, value: 8 }).fill);
        let text = format!(
            "epsilon {}, fingerprints of {bits} bits, {plan}{groups}, {} entries{full}{together}",
            o.epsilon, o.variant
        );
        let measure = move |experiment: &Experiment<'_>| match experiment.sizes.key {
            8 => experiment.fpcache::<U64Keys>(&o),
            _ => experiment.fpcache::<ByteKeys>(&o),
        };
        Self { text, measure: Box::new(measure) }
    }

    /// An index over words, which is built of memory, keys, their sizes and the number of compute
    /// nodes.
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
        let published = chime::Options::published(o.budget);
        let others = loaded(o.fill, published.fill) + &levels(o.inner, published.inner);
        let text = format!("{:.0} % of the budget for hot entries{others}", 100.0 * o.hot_share);
        Self::index(text, move |memory, keys, sizes, nodes| Ok(Chime::new(memory, keys, sizes, nodes, &o)))
    }

    fn rolex(o: rolex::Options) -> Self {
        let values = if o.behind_pointers { ", values behind pointers" } else { "" };
        let shared = if o.shares_work { ", shared work" } else { "" };
        let text = format!("epsilon {}, leaves of {}{values}{shared}", o.epsilon, o.leaf_slots);
        Self::index(text, move |memory, keys, sizes, nodes| Rolex::new(memory, keys, sizes, nodes, &o))
    }

    fn sherman(o: sherman::Options) -> Self {
        let published = sherman::Options::published(o.budget);
        let others = loaded(o.fill, published.fill) + &levels(o.inner, published.inner);
        let text = format!("leaves of {}{others}", o.leaf_slots);
        Self::index(text, move |memory, keys, sizes, nodes| Ok(Sherman::new(memory, keys, sizes, nodes, &o)))
    }

    fn dmtree(o: dmtree::Options) -> Self {
        let published = dmtree::Options::published(o.budget);
        let others = loaded(o.fill, published.fill) + &levels(o.inner, published.inner);
        let text = format!("{:.0} % of the budget for fingerprints{others}", 100.0 * o.fingerprint_share);
        Self::index(text, move |memory, keys, sizes, nodes| Ok(DmTree::new(memory, keys, sizes, nodes, &o)))
    }

    /// The published one, and then others that were worth trying; all with these levels above their
    /// leaves, if the system is a tree and they are not the published ones.
    pub(super) fn of(
        name: SystemName,
        parameters: Parameters,
        experiment: &Experiment<'_>,
        inner: Option<Inner>,
    ) -> Vec<Self> {
        let budget = experiment.budget;
        let mut all: Vec<Self> = match name {
            SystemName::FpCache => fpcaches(experiment).into_iter().map(Self::fpcache).collect(),
            SystemName::Range => ranges(experiment).map(Self::segments::<NoFilter>).into(),
            SystemName::Bloom => filtered(experiment).map(Self::segments::<Bloom>).into(),
            SystemName::Cuckoo => filtered(experiment).map(Self::segments::<Cuckoo>).into(),
            SystemName::Smart => {
                vec![Self::index("no parameters".into(), move |memory, keys, sizes, nodes| {
                    Ok(Smart::new(memory, keys, sizes, nodes, budget))
                })]
            }
            SystemName::Chime => chimes(budget, inner).map(Self::chime).into(),
            SystemName::Rolex => rolexes(experiment).into_iter().map(Self::rolex).collect(),
            SystemName::Sherman => shermans(experiment, inner).map(Self::sherman).into(),
            SystemName::DmTree => dmtrees(budget, inner).map(Self::dmtree).into(),
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

    pub(super) fn run(&self, experiment: &Experiment<'_>) -> Result<Run, BuildError> {
        (self.measure)(experiment).map(|measured| Run { parameters: self.text.clone(), measured })
    }
}

fn segments_with(
    experiment: &Experiment<'_>,
    (epsilon, keeps_hot): (u32, bool),
    (page, bits_share): (Option<u32>, f64),
) -> segments::Options {
    let epsilon = experiment.fixed.epsilon.unwrap_or(epsilon);
    segments::Options {
        epsilon,
        keeps_hot,
        page,
        bits_share,
        ..segments::Options::published(experiment.budget)
    }
}

fn ranges(experiment: &Experiment<'_>) -> [segments::Options; 4] {
    [(16, false), (16, true), (8, true), (4, true)].map(|of| segments_with(experiment, of, (None, 1.0)))
}

fn filtered(experiment: &Experiment<'_>) -> [segments::Options; 6] {
    [
        (16, false, None, 1.0),
        (8, true, None, 1.0),
        (16, true, Some(1), 1.0),
        (8, true, Some(1), 1.0),
        (8, true, Some(1), 0.6),
        (8, true, Some(2), 0.6),
    ]
    .map(|(epsilon, keeps_hot, page, bits)| segments_with(experiment, (epsilon, keeps_hot), (page, bits)))
}

fn chimes(budget: u64, inner: Option<Inner>) -> [chime::Options; 5] {
    let published = chime::Options::published(budget);
    let published = chime::Options { inner: inner.unwrap_or(published.inner), ..published };
    [(0.3, None), (0.1, None), (0.5, None), (0.7, None), (0.3, Some(0.85))].map(|(hot_share, fill)| {
        chime::Options { hot_share, fill: fill.unwrap_or(published.fill), ..published }
    })
}

fn dmtrees(budget: u64, inner: Option<Inner>) -> [dmtree::Options; 5] {
    let published = dmtree::Options::published(budget);
    let published = dmtree::Options { inner: inner.unwrap_or(published.inner), ..published };
    [(0.5, None), (0.3, None), (0.7, None), (0.85, None), (0.5, Some(1.0))].map(
        |(fingerprint_share, fill)| dmtree::Options {
            fingerprint_share,
            fill: fill.unwrap_or(published.fill),
            ..published
        },
    )
}

/// Leaves of the published number of entries, of fewer, and of as many as its page has room for at
/// these sizes.
fn shermans(experiment: &Experiment<'_>, inner: Option<Inner>) -> [sherman::Options; 6] {
    let published = sherman::Options::published(experiment.budget);
    let published = sherman::Options { inner: inner.unwrap_or(published.inner), ..published };
    let of_page = sherman::Options::slots_of_page(experiment.sizes);
    [(54, None), (27, None), (14, None), (7, None), (of_page, None), (54, Some(1.0))].map(
        |(leaf_slots, fill)| sherman::Options {
            leaf_slots,
            fill: fill.unwrap_or(published.fill),
            ..published
        },
    )
}

/// Values in the leaves; where they are longer than a pointer, values behind pointers, as in its
/// paper; and all with shared work, too, as in one of its sources.
fn rolexes(experiment: &Experiment<'_>) -> Vec<rolex::Options> {
    let Experiment { budget, fixed, sizes, .. } = *experiment;
    let of = |(shares_work, behind_pointers): (bool, bool)| {
        [(16, 16), (8, 8), (4, 8), (8, 4)].map(|(epsilon, leaf_slots)| rolex::Options {
            epsilon: fixed.epsilon.unwrap_or(epsilon),
            leaf_slots,
            behind_pointers,
            shares_work,
            budget,
        })
    };
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    let ways = ways.into_iter().filter(|(_, behind)| !behind || sizes.value > rolex::POINTER_BYTES);
    ways.flat_map(of).collect()
}

/// FPCache as it is published, and in other ways: in groups where nothing is fixed that these have
/// no use for.
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
    let in_groups = [
        (32, GroupChoice::Auto),
        (128, GroupChoice::Fixed(GroupForm::Pilots)),
        (16, GroupChoice::Pilots(16)),
        (16, GroupChoice::Pilots(8)),
    ]
    .map(|(epsilon, choice)| Options {
        epsilon: fixed.epsilon.unwrap_or(epsilon),
        width: FingerprintWidth::Bits16,
        plan: PlanChoice::Auto,
        groups: Some(choice),
        fill: TableParameters::FILL_OF_GROUPS,
        ..paper
    });
    let suits = (fixed.width, fixed.plan, fixed.variant) == (None, None, None);
    let all = in_windows.into_iter().chain(in_groups.into_iter().filter(|_| suits));
    // Where nothing is changed that is the same.
    let alone = in_windows.first().copied();
    alone.into_iter().chain(all.map(|options| Options { together: true, ..options })).collect()
}
