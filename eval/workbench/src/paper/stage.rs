//! The keys and operations of a setting.

use std::sync::Arc;

use fpcache_datasets::requests::{Distribution, Growth, InsertOrder, RequestOptions, generate};

use super::claims::{Mix, Setting};
use crate::bench::Operation;
use crate::scatter;

/// Most operations that fill caches, and most that are measured after them.
const MOST_WARM: usize = 2_000_000;
const MOST_MEASURED: usize = 500_000;
/// Most that fill caches where they are scans, which touch fifty records each.
const MOST_SCANS: usize = MOST_WARM / 4;

/// The most operations there are of a setting, over a table of any size.
pub(super) const MOST: usize = MOST_WARM + MOST_MEASURED;

/// Operations that fill caches of a table of this many keys, a quarter of the most where they are
/// scans.
pub fn warm_up(keys: usize) -> usize {
    keys.clamp(10_000, MOST_WARM)
}

/// What is loaded and then done.
pub(super) struct Stage {
    /// Keys of the table, those included that are inserted: budgets are in proportion to them.
    pub(super) keys: u64,
    /// Those that are loaded.
    pub(super) loaded: Arc<Vec<u64>>,
    /// As many operations as keys to fill caches, up to a bound, and half as many that are
    /// measured.
    pub(super) operations: Vec<Operation>,
    /// How many fill caches.
    pub(super) warm: u64,
}

impl Stage {
    /// A setting over these keys.
    pub(super) fn new(keys: &Arc<Vec<u64>>, setting: &Setting, seed: u64) -> Self {
        /// One operation in this many is an update or an insert.
        const EVERY: usize = 20;
        let scans = matches!(setting.mix, Mix::ScansAndUpdates | Mix::ScansAndInserts);
        let warm = if scans { warm_up(keys.len()).min(MOST_SCANS) } else { warm_up(keys.len()) };
        let distribution = setting.theta.map_or(Distribution::Uniform, |theta| Distribution::Zipf { theta });
        let lookups = warm + (warm / 2).min(MOST_MEASURED);
        let (loaded, inserts) = match setting.mix {
            Mix::Inserts | Mix::ScansAndInserts => {
                let growth = Growth::split(keys, lookups.div_ceil(EVERY), InsertOrder::Random, seed);
                (Arc::new(growth.loaded), growth.inserts)
            }
            Mix::Reads | Mix::Updates | Mix::ScansAndUpdates => (Arc::clone(keys), Vec::new()),
        };
        let options = RequestOptions { lookups, distribution, negative: 0.0, seed, shift_every: None };
        let of = |(i, key): (usize, &u64)| match setting.mix {
            Mix::Updates | Mix::ScansAndUpdates if i % EVERY == 0 => {
                Operation::Update { key: *key, value: i as u64, reads: false }
            }
            Mix::Inserts | Mix::ScansAndInserts if i % EVERY == 0 => match inserts.get(i / EVERY) {
                Some(key) => Operation::Insert { key: *key, value: i as u64 },
                None => Operation::Read { key: *key },
            },
            Mix::ScansAndUpdates | Mix::ScansAndInserts => {
                Operation::Scan { key: *key, count: 1 + (scatter(scatter(i as u64) ^ seed) % 100) as u32 }
            }
            _ => Operation::Read { key: *key },
        };
        let operations = generate(&loaded, &options).keys.iter().enumerate().map(of).collect();
        Self { keys: keys.len() as u64, loaded, operations, warm: warm as u64 }
    }
}

/// Every few-th of the keys, up to twice as many as these; `None` if there are no more anyway.
pub(super) fn fewer(keys: &[u64], most: usize) -> Option<Arc<Vec<u64>>> {
    let step = keys.len() / most.max(1);
    (step > 1).then(|| Arc::new(keys.iter().copied().step_by(step).collect()))
}
