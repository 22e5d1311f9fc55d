//! Statements of the FPCache paper (Jia and Cai, "FPCache: A Fingerprint-Rectified Learned Index
//! Cache for Disaggregated Memory", Electronics 15, 2026, 2210), as ratios that can be measured.

mod claim;
mod ranges;
mod scans;
mod settings;
mod threads;

use fpcache::cache::Variant;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::plan::Plan;

use crate::Sizes;
use crate::experiment::SystemName::{Chime, DmTree, FpCache, Rolex, Sherman, Smart};
pub use claim::{Claim, Figure, Keys, Measure, Mix, Says, Setting};
pub(super) use settings::C;
use settings::{SMALL, YCSB, below, over, own, with_epsilon, with_plan, with_variant, with_width};

/// Of what the hot cache's entries hold.
const NOT_FULL: &str = "no cache is full: each of six compute nodes looks fewer keys up than there is room for, also with Full's entries, which \
                        take 16 bytes here, 8 of them for a key of any length, where the paper's whole keys take 128, so that all variants miss \
                        what a node asks for the first time, and nothing else";

/// Of what SMART keeps.
const SPARSE: &str = "SMART keeps some 20 bytes of each of these keys, which are random numbers of 64 bits, where it publishes 8.4 of dense ones, so \
                      that a budget has room for less than half of what it would be of those";

/// All statements that can be measured here, in the paper's order.
pub fn all() -> Vec<Claim> {
    let in_order = [
        point_queries(),
        scans::throughput(),
        threads::latencies(),
        scans::latencies(),
        data_sets(),
        threads::scaling(),
        ranges::traffic(),
        two_stage_reads(),
        ranges::full_reads(),
        variants(),
        records(),
        widths(),
        ranges::filters(),
        error_bounds(),
        ranges::error_bounds(),
        budgets(),
        ranges::table_one(),
    ];
    in_order.concat()
}

/// §4.2.1: averages over B, C and D. "Outperformed by SMART" has no figure.
fn point_queries() -> Vec<Claim> {
    let overall = [(DmTree, 1.1), (Chime, 1.138), (Rolex, 1.62), (Sherman, 3.01)];
    let mut all = Vec::new();
    for setting in YCSB {
        all.extend(over(6, setting, &overall));
        all.extend(below(over(6, setting, &[(Smart, 1.0)])).map(|claim| claim.for_the_reason(SPARSE)));
    }
    all
}

/// §4.2.2.
fn data_sets() -> Vec<Claim> {
    let mut all = Vec::new();
    for (figure, keys, name, dmtree) in [(8, Keys::Fb, "fb", 1.06), (9, Keys::Wiki, "wiki", 1.04)] {
        let setting = Setting { name, keys, sizes: SMALL, ..C };
        all.extend(over(figure, setting, &[(Chime, 1.14), (Rolex, 1.61), (Sherman, 2.98), (DmTree, dmtree)]));
    }
    all
}

/// §4.3.1.
fn two_stage_reads() -> Vec<Claim> {
    let mut all = Vec::new();
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
    all
}

/// §4.3.2.
fn variants() -> Vec<Claim> {
    let fd = with_variant("FD", Variant::Fd);
    let variants = [
        (with_variant("Full", Variant::Full), 1.482, 3.2),
        (with_variant("F", Variant::F), 1.147, 1.34),
        (with_variant("D", Variant::D), 1.449, 3.11),
    ];
    let mut all = Vec::new();
    for (other, throughput, hits) in variants {
        all.push(own(13, fd, other, Measure::Throughput, throughput).for_the_reason(NOT_FULL));
        all.push(own(13, fd, other, Measure::HitRate, hits).for_the_reason(NOT_FULL));
    }
    all
}

/// §4.4.1.
fn records() -> Vec<Claim> {
    let values = Setting { name: "values of 1024 B", sizes: Sizes { key: 8, value: 1024 }, ..C };
    let mut all = over(14, values, &[(Sherman, 27.5), (Rolex, 23.2), (Chime, 3.8)]);
    let keys = Setting { name: "keys of 256 B", sizes: Sizes { key: 256, value: 8 }, ..C };
    all.extend(over(15, keys, &[(Sherman, 7.8), (Rolex, 6.5), (Chime, 1.4), (Smart, 1.5)]));
    all
}

/// §4.4.2: "more than 50 % throughput loss at 8 bits".
fn widths() -> Vec<Claim> {
    let narrow = with_width("8 bits, epsilon 256", FingerprintWidth::Bits8);
    let wide = with_width("64 bits, epsilon 256", FingerprintWidth::Bits64);
    vec![Claim { says: Says::Below, ..own(16, narrow, wide, Measure::Throughput, 0.5) }]
}

/// §4.4.3.
fn error_bounds() -> Vec<Claim> {
    let bounds = [
        (None, "uniform, epsilon 8", "uniform, epsilon 256", 0.356, 8.4),
        (Some(0.99), "zipf, epsilon 8", "zipf, epsilon 256", 0.526, 2.48),
    ];
    let mut all = Vec::new();
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
    all
}

/// §4.4.4.
fn budgets() -> Vec<Claim> {
    let caches = [
        ("50 MB", 50, &[(Rolex, 1.39), (Sherman, 2.12), (Smart, 2.47), (DmTree, 1.19)][..]),
        ("500 MB", 500, &[(Chime, 1.12), (Rolex, 1.56), (Sherman, 2.97), (DmTree, 1.02)][..]),
    ];
    let mut all = Vec::new();
    for (name, budget_mb, others) in caches {
        let of_setting = over(19, Setting { name, budget_mb, ..C }, others).into_iter();
        all.extend(of_setting.map(|claim| match claim.that.0 {
            Smart => claim.for_the_reason(SPARSE),
            _ => claim,
        }));
    }
    let setting = Setting { name: "400 MB", budget_mb: 400, ..C };
    all.extend(below(over(19, setting, &[(Smart, 1.0)])).map(|claim| claim.for_the_reason(SPARSE)));
    all
}
