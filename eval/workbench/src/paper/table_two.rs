//! Table 2: entries of a cache of 100 MB, by the length of keys.

use fpcache::cache::{CacheShape, HotCache, NoCache, Policy, Variant};

/// Entries for keys of one length.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Entries {
    /// Bytes of a key.
    pub key_bytes: u64,
    /// The paper's number, with whole keys in the entries.
    pub published: f64,
    /// 100 MiB over the key and an address of eight bytes: what the paper's numbers are.
    pub whole_keys: f64,
    /// Entries of fingerprint and offset in our hot cache of as many bytes, whatever the keys.
    pub ours: f64,
}

/// The paper's numbers, in millions.
const PUBLISHED: [(u64, f64); 5] = [(8, 6.55), (16, 4.36), (32, 2.62), (64, 1.46), (128, 0.77)];
const BYTES: u64 = 100 << 20;

/// The table.
///
/// # Errors
/// If the hot cache's memory cannot be had.
pub fn entries() -> Result<Vec<Entries>, NoCache> {
    let keys = 60_000_000;
    let shape =
        CacheShape { variant: Variant::Fd, policy: Policy::Heat, epsilon: 16, segments: keys / 200, keys };
    let ours = HotCache::new(BYTES as usize, &shape)?.capacity() as f64;
    let row = |(key_bytes, millions): (u64, f64)| Entries {
        key_bytes,
        published: millions * 1e6,
        whole_keys: BYTES as f64 / (key_bytes + 8) as f64,
        ours,
    };
    Ok(PUBLISHED.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_are_those_of_whole_keys_with_addresses() {
        for row in entries().expect("a hundred megabytes") {
            assert!((row.whole_keys / row.published - 1.0).abs() < 0.01, "{row:?}");
            assert!(row.ours > 3.0 * row.whole_keys, "{row:?}");
        }
    }
}
