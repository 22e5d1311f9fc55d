//! The paper's statements on latencies and on more threads, mostly in words.

use super::claim::{Claim, Keys, Measure, Says, Setting};
use super::settings::{C, SMALL, YCSB, own};
use crate::experiment::SystemName::{self, DmTree, FpCache, Rolex, Sherman, Smart};

/// Of FPCache's own changes.
const BY_PROCESSOR: &str = "FPCache's changes are made by one core of the memory node, where the others' are one-sided: at the rates \
                            of this model that core is what binds, and queues for it are the tail";

/// Of threads that do nothing but look up.
const IDLE_THREADS: &str = "threads have no work of their own here, so that 64 of them already ask for 26 M of FPCache's lookups a \
                            second, and systems that are bound by bytes are so with fewer";
/// Of DMTree's latencies.
const BY_BYTES: &str = "DMTree's inner nodes with whole keys of 128 B are beyond the budget: lookups that READ several of them wait longest";

/// §4.2.1: "FPCache and DMTree consistently achieve lower tail latency than ROLEX and Sherman" in
/// B, C and D; P99 and P99.9.
pub(super) fn latencies() -> Vec<Claim> {
    let mut all = Vec::new();
    for setting in YCSB {
        for this in [FpCache, DmTree] {
            for that in [Rolex, Sherman] {
                for measure in [Measure::P99, Measure::P999] {
                    let claim = Claim {
                        this: (this, setting),
                        that: (that, setting),
                        says: Says::Below,
                        ..own(7, setting, setting, measure, 1.0)
                    };
                    let because = if this == FpCache { BY_PROCESSOR } else { BY_BYTES };
                    all.push(claim.for_the_reason(because));
                }
            }
        }
    }
    all
}

/// §4.2.2, on `fb`: SMART, FPCache and DMTree grow nearly linearly up to 128 threads; ROLEX and
/// Sherman saturate after 64, which is taken as less than half of six times as much at six times as
/// many.
pub(super) fn scaling() -> Vec<Claim> {
    const fn with_threads(name: &'static str, clients: u16) -> Setting {
        Setting { name, keys: Keys::Fb, sizes: SMALL, clients, ..C }
    }
    let (few, more, most) =
        (with_threads("64 threads", 64), with_threads("128 threads", 128), with_threads("fb", 384));
    let grows = |system: SystemName, setting: Setting, published, says| Claim {
        this: (system, setting),
        that: (system, few),
        says,
        because: IDLE_THREADS,
        ..own(8, setting, few, Measure::Throughput, published)
    };
    let linear = [Smart, FpCache, DmTree].map(|system| grows(system, more, 2.0, Says::About));
    let saturated = [Rolex, Sherman].map(|system| grows(system, most, 3.0, Says::Below));
    linear.into_iter().chain(saturated).collect()
}
