//! The paper's statements on range reads and filters.

use fpcache::plan::Plan;

use super::claim::{Claim, Figure, Keys, Measure, Says, Setting};
use super::settings::{C, SMALL, own, with_epsilon, with_plan};
use crate::experiment::SystemName::{self, Bloom, Cuckoo, FpCache, Range, Rolex};

/// Windows of our segments.
const NARROW: &str = "windows of our segments are as wide as their keys need, which of a line over uniform keys is far less than a \
                      wide error bound";
/// Plain range reads and the paper's.
const NOT_CACHED: &str =
    "plain range reads here keep models alone, while of the paper's full reads hot entries may answer some";
/// Key-value pages of the paper's filters.
const FILTERED: &str = "every lookup of the workload is of a key that is there, for which a filter spares nothing: these are range \
                        reads of whole windows; one that knows a key's slot, at best, READs one record in one round trip";
/// Leaves of 16.
const WHOLE_LEAVES: &str = "leaves are READ whole, 2 epsilon / 16 + 1 of them";

/// One system over another in one setting and a measure.
fn compare(
    figure: u32,
    (this, that): (SystemName, SystemName),
    setting: Setting,
    (measure, says, published): (Measure, Says, f64),
) -> Claim {
    let claim = own(figure, setting, setting, measure, published);
    Claim { this: (this, setting), that: (that, setting), says, ..claim }
}

/// §4.2.4: less traffic than ROLEX on `fb`, by more requests. No figures are given.
pub(super) fn traffic() -> Vec<Claim> {
    let fb = Setting { name: "fb", keys: Keys::Fb, sizes: SMALL, ..C };
    let statements = [(Measure::Bytes, Says::Below, 1.0), (Measure::Requests, Says::Above, 1.0)];
    let of = |that| {
        statements.map(|statement| match (that, statement.0) {
            (Rolex, Measure::Requests) => compare(11, (FpCache, that), fb, statement).for_the_reason(
                "each of ROLEX's leaves is a request of its doorbell, and the hot cache answers most lookups with one READ",
            ),
            _ => compare(11, (FpCache, that), fb, statement),
        })
    };
    [of(Rolex), of(Range)].concat()
}

/// §4.3.1, over range reads without a hot cache; the same over FPCache's own stand before these.
pub(super) fn full_reads() -> Vec<Claim> {
    let values = [(64, "two-stage, 64 B", 1.21, 0.634), (128, "two-stage, 128 B", 1.58, 0.47)];
    let of = |(value, name, throughput, p99)| {
        let setting = with_plan(name, value, Plan::TwoStage);
        [(Measure::Throughput, throughput), (Measure::P99, p99)].map(|(measure, published)| {
            compare(12, (FpCache, Range), setting, (measure, Says::About, published))
                .for_the_reason(NOT_CACHED)
        })
    };
    values.into_iter().flat_map(of).collect()
}

/// §4.4.2: "approximately 20–23 %" over both filters, of which the middle is taken, by an order of
/// magnitude less bytes.
pub(super) fn filters() -> Vec<Claim> {
    let statements = [(Measure::Throughput, Says::About, 1.215), (Measure::Bytes, Says::About, 0.1)];
    let of = |that| {
        statements.map(|statement| compare(17, (FpCache, that), C, statement).for_the_reason(FILTERED))
    };
    [of(Bloom), of(Cuckoo)].concat()
}

/// §4.4.3, with our segments' ranges for ROLEX's.
pub(super) fn error_bounds() -> Vec<Claim> {
    let bounds = [
        (None, "uniform, epsilon 8", "uniform, epsilon 256", 0.356, 8.4),
        (Some(0.99), "zipf, epsilon 8", "zipf, epsilon 256", 0.526, 2.48),
    ];
    let of = |(theta, near, far, falls_to, ratio)| {
        let (near, far) = (with_epsilon(near, theta, 8), with_epsilon(far, theta, 256));
        let falls = Claim {
            this: (Range, far),
            that: (Range, near),
            ..own(18, far, near, Measure::Throughput, falls_to)
        };
        let over = compare(18, (FpCache, Range), far, (Measure::Throughput, Says::About, ratio));
        [falls.for_the_reason(NARROW), over.for_the_reason(NARROW)]
    };
    bounds.into_iter().flat_map(of).collect()
}

/// Table 1: throughput and bytes over the error bound, of records of 8/8 B, as shares of those at
/// 8: ROLEX's in the paper.
pub(super) fn table_one() -> Vec<Claim> {
    let small = |name, epsilon| Setting { sizes: SMALL, ..with_epsilon(name, Some(0.99), epsilon) };
    let near = small("epsilon 8", 8);
    let bounds = [
        ("epsilon 32", 32, 928.3, 1.0),
        ("epsilon 64", 64, 729.4, 2.0),
        ("epsilon 128", 128, 447.8, 4.0),
        ("epsilon 256", 256, 239.4, 8.0),
    ];
    let of = |system: SystemName, because: &'static str| {
        bounds.into_iter().flat_map(move |(name, epsilon, kops, kilobytes)| {
            let far = small(name, epsilon);
            [(Measure::Throughput, kops / 1112.0), (Measure::Bytes, kilobytes / 0.25)].map(
                |(measure, published)| {
                    Claim {
                        figure: Figure::Table(1),
                        this: (system, far),
                        that: (system, near),
                        ..own(0, far, near, measure, published)
                    }
                    .for_the_reason(because)
                },
            )
        })
    };
    of(Rolex, WHOLE_LEAVES).chain(of(Range, NARROW)).collect()
}
