//! Figure 17's memory: fingerprints of memory nodes, and filters of compute nodes.

use fpcache::fingerprint::FingerprintWidth;

use crate::bloom::Bloom;
use crate::cuckoo::Cuckoo;
use crate::scatter;
use crate::segments::Filter;

/// What tells keys apart, and what it takes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Filtered {
    /// `fingerprints of 64 bits`, `Bloom filter` or `cuckoo filter`.
    pub of: &'static str,
    /// Who keeps it.
    pub kept_by: &'static str,
    /// Bytes per key in the paper.
    pub published: f64,
    /// Bytes per key here.
    pub ours: f64,
    /// Of keys that are not there, the share that it does not tell from those that are.
    pub passes: f64,
    /// What it saves, and why it differs from the paper.
    pub note: &'static str,
}

/// Keys that filters are filled with: what they take and let pass does not depend on how many there
/// are.
const KEYS: u64 = 200_000;
/// Others that they are asked for.
const OTHERS: u64 = 1_000_000;
/// Share of slots that are filled, as in [`crate::fpcache::Options::published`], and slots of a
/// window.
const FILL: f64 = 0.85;
const WINDOW: f64 = 33.0;

/// The table.
pub fn filters() -> Vec<Filtered> {
    let width = FingerprintWidth::Bits64;
    let fingerprints = Filtered {
        of: "fingerprints of 64 bits",
        kept_by: "memory node",
        published: 8.0,
        ours: width.bytes() as f64 / FILL,
        passes: WINDOW / 2f64.powi(width.bits() as i32),
        note: "free slots have fingerprints, too: 8 bytes over a fill of 0.85; they say in which slot a key is",
    };
    let bloom = Bloom::new(KEYS as usize, Bloom::PUBLISHED_BITS);
    let cuckoo = Cuckoo::new(KEYS as usize, Cuckoo::PUBLISHED_BITS);
    let note = "every compute node has its own, of its budget; it says whether a key is there, not where";
    let (of_bloom, of_cuckoo) = (fill(bloom), fill(cuckoo));
    let row = |of, published, (ours, passes)| Filtered {
        of,
        kept_by: "each compute node",
        published,
        ours,
        passes,
        note,
    };
    vec![fingerprints, row("Bloom filter", 1.2, of_bloom), row("cuckoo filter", 1.5, of_cuckoo)]
}

/// Bytes per key of a filter, and the share of others that pass.
fn fill(mut filter: impl Filter) -> (f64, f64) {
    (1..=KEYS).for_each(|key| filter.add(scatter(key)));
    let passed = (KEYS + 1..=KEYS + OTHERS).filter(|key| filter.contains(scatter(*key))).count();
    (filter.bytes() as f64 / KEYS as f64, passed as f64 / OTHERS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_take_the_published_bytes_and_fingerprints_those_of_free_slots_besides() {
        let rows = filters();
        for row in &rows[1..] {
            assert!((row.ours / row.published - 1.0).abs() < 0.01, "{row:?}");
        }
        assert!((rows[0].ours * FILL - rows[0].published).abs() < 1e-9);
        assert!(rows[0].passes < 1e-12, "{rows:?}");
        assert!(rows[1].passes > 0.009 && rows[1].passes < 0.011, "{rows:?}");
        assert!(rows[2].passes > 0.003 && rows[2].passes < 0.004, "{rows:?}");
    }
}
