//! The paper's statements on workload E.

use super::claim::{Claim, Measure, Says};
use super::settings::{SCANS, over, own};
use crate::experiment::SystemName::{Chime, DmTree, FpCache, Rolex, Sherman, Smart};

/// Of scans with inserts.
const WITH_SYNONYMS: &str = "inserts give ROLEX's full leaves synonym leaves, which scans READ as well; the paper's E has updates instead";

/// §4.2.1, Figure 6: "ROLEX achieves the highest throughput, with FPCache reaching 0.86 × of its
/// performance. Nonetheless, FPCache still outperforms CHIME, SMART, and Sherman by 1.43 ×, 1.38 ×,
/// and 1.14 ×".
pub(super) fn throughput() -> Vec<Claim> {
    let mut all = Vec::new();
    for setting in SCANS {
        all.extend(over(6, setting, &[(Rolex, 0.86), (Chime, 1.43), (Smart, 1.38), (Sherman, 1.14)]));
        all.push(Claim {
            this: (DmTree, setting),
            that: (Rolex, setting),
            says: Says::Below,
            ..own(6, setting, setting, Measure::Throughput, 1.0)
        });
    }
    all.into_iter()
        .map(|claim| match claim.this.1 == SCANS[1] && claim.that.0 == Rolex {
            true => claim.for_the_reason(WITH_SYNONYMS),
            false => claim,
        })
        .collect()
}

/// §4.2.1, Figure 7: "In YCSB E, FPCache and DMTree consistently outperform other candidates in
/// both median and tail latency", FPCache has a P50 "approximately 1.7 ×" below CHIME's and
/// SMART's, and DMTree "a slight advantage at the extreme tail".
pub(super) fn latencies() -> Vec<Claim> {
    let [setting, _] = SCANS;
    let of = |this, that, measure, published, says| Claim {
        this: (this, setting),
        that: (that, setting),
        says,
        ..own(7, setting, setting, measure, published)
    };
    let mut all = [Chime, Smart].map(|that| of(FpCache, that, Measure::P50, 1.0 / 1.7, Says::About)).to_vec();
    for this in [FpCache, DmTree] {
        for that in [Rolex, Sherman, Chime, Smart] {
            for measure in [Measure::P50, Measure::P99] {
                all.push(of(this, that, measure, 1.0, Says::Below));
            }
        }
    }
    all.push(of(DmTree, FpCache, Measure::P999, 1.0, Says::Below));
    all
}
