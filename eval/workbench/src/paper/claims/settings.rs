//! The settings of the paper's figures, and statements over them.

use fpcache::cache::Variant;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::plan::Plan;

use super::claim::{Claim, Figure, Keys, Measure, Mix, Says, Setting};
use crate::Sizes;
use crate::experiment::{Fixed, SystemName};

const LARGE: Sizes = Sizes { key: 128, value: 128 };
pub(super) const SMALL: Sizes = Sizes { key: 8, value: 8 };
const NOTHING: Fixed = Fixed { epsilon: None, width: None, plan: None, variant: None };

/// Workload C at the paper's sizes.
pub(in crate::paper) const C: Setting = Setting {
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
pub(super) const YCSB: [Setting; 3] =
    [C, Setting { name: "B", mix: Mix::Updates, ..C }, Setting { name: "D", mix: Mix::Inserts, ..C }];

/// Workload E, with the paper's updates and with YCSB's inserts.
pub(super) const SCANS: [Setting; 2] = [
    Setting { name: "E", mix: Mix::ScansAndUpdates, ..C },
    Setting { name: "E with inserts", mix: Mix::ScansAndInserts, ..C },
];

pub(super) const fn with_epsilon(name: &'static str, theta: Option<f64>, epsilon: u32) -> Setting {
    Setting { name, theta, fixed: Fixed { epsilon: Some(epsilon), ..NOTHING }, ..C }
}

pub(super) const fn with_width(name: &'static str, width: FingerprintWidth) -> Setting {
    let fixed = Fixed { epsilon: Some(256), width: Some(width), ..NOTHING };
    Setting { name, fixed, ..C }
}

pub(super) const fn with_variant(name: &'static str, variant: Variant) -> Setting {
    let fixed = Fixed { variant: Some(variant), ..NOTHING };
    Setting { name, theta: Some(0.9), budget_mb: 200, fixed, ..C }
}

pub(super) const fn with_plan(name: &'static str, value: usize, plan: Plan) -> Setting {
    let fixed = Fixed { plan: Some(plan), ..NOTHING };
    Setting { name, sizes: Sizes { key: 128, value }, theta: None, fixed, ..C }
}

/// FPCache over each of these in one setting.
pub(super) fn over(figure: u32, setting: Setting, others: &[(SystemName, f64)]) -> Vec<Claim> {
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
pub(super) fn below(claims: Vec<Claim>) -> impl Iterator<Item = Claim> {
    claims.into_iter().map(|claim| Claim { says: Says::Below, ..claim })
}

/// FPCache in one setting over FPCache in another.
pub(super) fn own(figure: u32, this: Setting, that: Setting, measure: Measure, published: f64) -> Claim {
    let (this, that) = ((SystemName::FpCache, this), (SystemName::FpCache, that));
    let (says, because) = (Says::About, "");
    Claim { figure: Figure::Figure(figure), this, that, measure, published, says, because }
}
