//! What the FPCache paper says (Jia and Cai, "FPCache: A Fingerprint-Rectified Learned Index Cache for Disaggregated Memory",
//! Electronics 15, 2026, 2210), as ratios that can be measured.

mod ranges;
mod scans;
mod threads;

use fpcache::cache::Variant;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::plan::Plan;

use crate::Sizes;
use crate::experiment::{Fixed, SystemName};

/// A data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// Hashed, as YCSB's.
    Ycsb,
    /// User numbers of `fb`.
    Fb,
    /// Time stamps of `wiki`.
    Wiki,
}

/// Operations of one of the paper's workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Reads alone: C.
    Reads,
    /// One of twenty an update: B.
    Updates,
    /// One of twenty an insert of a new key: D, whose reads are zipf as well in the paper.
    Inserts,
    /// Nineteen of twenty a scan of 1 to 100 records, the others updates: E as the paper's table of workloads has it.
    ScansAndUpdates,
    /// The same with inserts of new keys: E as YCSB has it.
    ScansAndInserts,
}

/// What is done with which records in which budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// For people.
    pub name: &'static str,
    /// The keys.
    pub keys: Keys,
    /// Bytes of keys and values.
    pub sizes: Sizes,
    /// Exponent of the zipf; none for uniform requests.
    pub theta: Option<f64>,
    /// What is done beside reads.
    pub mix: Mix,
    /// Megabytes that a compute node may keep, of a table of 60 M keys.
    pub budget_mb: u64,
    /// What is fixed for the systems.
    pub fixed: Fixed,
    /// Threads of all compute nodes together.
    pub clients: u16,
}

impl Setting {
    /// The same without what a figure calls it.
    pub(super) const fn unnamed(&self) -> Self {
        Self { name: "", ..*self }
    }
}

/// What of two runs is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Operations per second.
    Throughput,
    /// The median of latencies.
    P50,
    /// The 99th percentile of latencies.
    P99,
    /// The 99.9th.
    P999,
    /// Share of lookups that took a single round trip: of two-stage reads, those that the hot cache answered.
    HitRate,
    /// Bytes from memory nodes per operation.
    Bytes,
    /// Requests per operation.
    Requests,
}

impl Measure {
    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::HitRate => "hit rate",
            Self::Bytes => "bytes",
            Self::Requests => "requests",
        }
    }
}

/// What the paper says of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// That it is about this.
    About,
    /// That it is below.
    Below,
    /// That it is above.
    Above,
}

impl Says {
    /// About that distance two ratios are said to agree.
    const NEAR: f64 = 0.1;

    /// Whether ours is what the paper says.
    pub fn holds(self, published: f64, ours: f64) -> bool {
        match self {
            Self::About => (ours / published - 1.0).abs() <= Self::NEAR,
            Self::Below => ours < published,
            Self::Above => ours > published,
        }
    }
}

/// One statement: `this` over `that` in a measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The figure, or the table, as options name it.
    pub figure: Figure,
    /// One side.
    pub this: (SystemName, Setting),
    /// The other.
    pub that: (SystemName, Setting),
    /// What is compared.
    pub measure: Measure,
    /// The published ratio.
    pub published: f64,
    /// Whether it is that, or a bound.
    pub says: Says,
    /// Why it differs here, where more is to be said than what binds.
    pub because: &'static str,
}

impl Claim {
    const fn for_the_reason(self, because: &'static str) -> Self {
        Self { because, ..self }
    }
}

/// A figure or a table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// By number.
    Figure(u32),
    /// By number.
    Table(u32),
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Figure(number) => write!(f, "figure {number}"),
            Self::Table(number) => write!(f, "table {number}"),
        }
    }
}

const LARGE: Sizes = Sizes { key: 128, value: 128 };
const SMALL: Sizes = Sizes { key: 8, value: 8 };
const NOTHING: Fixed = Fixed { epsilon: None, width: None, plan: None, variant: None };

/// Workload C at the paper's sizes.
pub(super) const C: Setting = Setting {
    name: "C",
    keys: Keys::Ycsb,
    sizes: LARGE,
    theta: Some(0.99),
    mix: Mix::Reads,
    budget_mb: 100,
    fixed: NOTHING,
    clients: 384,
};

/// Workloads of point queries.
const YCSB: [Setting; 3] =
    [C, Setting { name: "B", mix: Mix::Updates, ..C }, Setting { name: "D", mix: Mix::Inserts, ..C }];

/// Workload E, with the paper's updates and with YCSB's inserts.
pub(super) const SCANS: [Setting; 2] = [
    Setting { name: "E", mix: Mix::ScansAndUpdates, ..C },
    Setting { name: "E with inserts", mix: Mix::ScansAndInserts, ..C },
];

/// Of what the hot cache's entries hold.
const NOT_FULL: &str = "no cache is full: each of six compute nodes has asked for an eighth of the keys, with room for entries of 83 % (FD) \
                        to 21 % of them (Full, whose entries take 16 bytes here, 8 of them for a key of any length, where the paper's \
                        whole keys take 128), so that all variants miss what a node asks for the first time, and nothing else";

const fn with_epsilon(name: &'static str, theta: Option<f64>, epsilon: u32) -> Setting {
    Setting { name, theta, fixed: Fixed { epsilon: Some(epsilon), ..NOTHING }, ..C }
}

const fn with_width(name: &'static str, width: FingerprintWidth) -> Setting {
    let fixed = Fixed { epsilon: Some(256), width: Some(width), ..NOTHING };
    Setting { name, fixed, ..C }
}

const fn with_variant(name: &'static str, variant: Variant) -> Setting {
    let fixed = Fixed { variant: Some(variant), ..NOTHING };
    Setting { name, theta: Some(0.9), budget_mb: 200, fixed, ..C }
}

const fn with_plan(name: &'static str, value: usize, plan: Plan) -> Setting {
    let fixed = Fixed { plan: Some(plan), ..NOTHING };
    Setting { name, sizes: Sizes { key: 128, value }, theta: None, fixed, ..C }
}

/// FPCache over each of these in one setting.
fn over(figure: u32, setting: Setting, others: &[(SystemName, f64)]) -> Vec<Claim> {
    let claim = |(other, published): &(SystemName, f64)| Claim {
        figure: Figure::Figure(figure),
        this: (SystemName::FpCache, setting),
        that: (*other, setting),
        measure: Measure::Throughput,
        published: *published,
        says: Says::About,
        because: "",
    };
    others.iter().map(claim).collect()
}

/// Of which the paper says that they are below the ratio.
fn below(claims: Vec<Claim>) -> impl Iterator<Item = Claim> {
    claims.into_iter().map(|claim| Claim { says: Says::Below, ..claim })
}

/// FPCache in one setting over FPCache in another.
fn own(figure: u32, this: Setting, that: Setting, measure: Measure, published: f64) -> Claim {
    let (this, that) = ((SystemName::FpCache, this), (SystemName::FpCache, that));
    let (says, because) = (Says::About, "");
    Claim { figure: Figure::Figure(figure), this, that, measure, published, says, because }
}

/// All statements that can be measured here, in the paper's order.
pub fn all() -> Vec<Claim> {
    use SystemName::{Chime, DmTree, FpCache, Rolex, Sherman, Smart};
    let mut all = Vec::new();
    // §4.2.1: averages over B, C and D. "Outperformed by SMART" has no figure.
    let overall = [(DmTree, 1.1), (Chime, 1.138), (Rolex, 1.62), (Sherman, 3.01)];
    for setting in YCSB {
        all.extend(over(6, setting, &overall));
        all.extend(below(over(6, setting, &[(Smart, 1.0)])));
    }
    all.extend(scans::throughput());
    all.extend(threads::latencies());
    all.extend(scans::latencies());
    // §4.2.2.
    for (figure, keys, name, dmtree) in [(8, Keys::Fb, "fb", 1.06), (9, Keys::Wiki, "wiki", 1.04)] {
        let setting = Setting { name, keys, sizes: SMALL, ..C };
        all.extend(over(figure, setting, &[(Chime, 1.14), (Rolex, 1.61), (Sherman, 2.98), (DmTree, dmtree)]));
    }
    all.extend(threads::scaling());
    all.extend(ranges::traffic());
    // §4.3.1.
    for (value, throughput, p99) in [(64, 1.21, 0.634), (128, 1.58, 0.47)] {
        let name = if value == 64 {
            ("two-stage, 64 B", "full read, 64 B")
        } else {
            ("two-stage, 128 B", "full read, 128 B")
        };
        let (two_stage, full) =
            (with_plan(name.0, value, Plan::TwoStage), with_plan(name.1, value, Plan::Range));
        all.push(own(12, two_stage, full, Measure::Throughput, throughput));
        all.push(own(12, two_stage, full, Measure::P99, p99));
    }
    all.extend(ranges::full_reads());
    // §4.3.2.
    let fd = with_variant("FD", Variant::Fd);
    let variants = [
        (with_variant("Full", Variant::Full), 1.482, 3.2),
        (with_variant("F", Variant::F), 1.147, 1.34),
        (with_variant("D", Variant::D), 1.449, 3.11),
    ];
    for (other, throughput, hits) in variants {
        all.push(own(13, fd, other, Measure::Throughput, throughput).for_the_reason(NOT_FULL));
        all.push(own(13, fd, other, Measure::HitRate, hits).for_the_reason(NOT_FULL));
    }
    // §4.4.1.
    let values = Setting { name: "values of 1024 B", sizes: Sizes { key: 8, value: 1024 }, ..C };
    all.extend(over(14, values, &[(Sherman, 27.5), (Rolex, 23.2), (Chime, 3.8)]));
    let keys = Setting { name: "keys of 256 B", sizes: Sizes { key: 256, value: 8 }, ..C };
    all.extend(over(15, keys, &[(Sherman, 7.8), (Rolex, 6.5), (Chime, 1.4), (Smart, 1.5)]));
    // §4.4.2: "more than 50 % throughput loss at 8 bits".
    let (narrow, wide) = (FingerprintWidth::Bits8, FingerprintWidth::Bits64);
    let (narrow, wide) =
        (with_width("8 bits, epsilon 256", narrow), with_width("64 bits, epsilon 256", wide));
    all.push(Claim { says: Says::Below, ..own(16, narrow, wide, Measure::Throughput, 0.5) });
    all.extend(ranges::filters());
    // §4.4.3.
    let bounds = [
        (None, "uniform, epsilon 8", "uniform, epsilon 256", 0.356, 8.4),
        (Some(0.99), "zipf, epsilon 8", "zipf, epsilon 256", 0.526, 2.48),
    ];
    for (theta, near, far, falls_to, ratio) in bounds {
        let (near, far) = (with_epsilon(near, theta, 8), with_epsilon(far, theta, 256));
        let rolex = Claim {
            this: (Rolex, far),
            that: (Rolex, near),
            ..own(18, far, near, Measure::Throughput, falls_to)
        };
        all.push(rolex);
        all.push(Claim { this: (FpCache, far), that: (Rolex, far), published: ratio, ..rolex });
    }
    all.extend(ranges::error_bounds());
    // §4.4.4.
    let caches = [
        ("50 MB", 50, &[(Rolex, 1.39), (Sherman, 2.12), (Smart, 2.47), (DmTree, 1.19)][..]),
        ("500 MB", 500, &[(Chime, 1.12), (Rolex, 1.56), (Sherman, 2.97), (DmTree, 1.02)][..]),
    ];
    for (name, budget_mb, others) in caches {
        all.extend(over(19, Setting { name, budget_mb, ..C }, others));
    }
    let setting = Setting { name: "400 MB", budget_mb: 400, ..C };
    all.extend(below(over(19, setting, &[(Smart, 1.0)])));
    all.extend(ranges::table_one());
    all
}
