//! A statement of the paper: two systems in their settings, and a ratio of what is measured.

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
    /// Nineteen of twenty a scan of 1 to 100 records, the others updates: E as the paper's table of
    /// workloads has it.
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
    pub(in crate::paper) const fn unnamed(&self) -> Self {
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
    /// Of lookups of keys that are there and that the hot cache was asked about, the share that it
    /// answered.
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
    /// Whether it is that ratio, or a bound.
    pub says: Says,
    /// Why it differs here, where more is to be said than what binds.
    pub because: &'static str,
}

impl Claim {
    /// The same, with why it differs here.
    pub(super) const fn for_the_reason(self, because: &'static str) -> Self {
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
