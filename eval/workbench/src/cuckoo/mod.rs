//! Range reads behind a cuckoo filter: see the folder's `README.md`.

mod table;

use self::table::Table;
use crate::segments::{self, Filter, Segmented};
use crate::words::Memory;
use crate::{BuildError, Sizes};

/// How the filter is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Segments, and what the filter is asked about them.
    pub segments: segments::Options,
    /// Bits of the filter for each key: fingerprints have what that leaves where [`MOST_FULL`] of their places are taken.
    pub bits_per_key: f64,
}

/// Share of its places that a filter with buckets of four fills when keys are loaded.
pub const MOST_FULL: f64 = 0.95;

impl Options {
    /// About 1.5 bytes per key (§4.4.2 of the FPCache paper): fingerprints of 11 bits in 92 % of their places.
    pub const fn published(budget: u64) -> Self {
        Self { segments: segments::Options::published(budget), bits_per_key: 12.0 }
    }
}

/// A cuckoo filter (Fan et al., "Cuckoo filter: practically better than Bloom", CoNEXT 2014) that gets another table, of a
/// quarter of the places, when it has no place left.
#[derive(Clone, Debug)]
pub struct Cuckoo {
    tables: Vec<Table>,
    bits: u32,
}

impl Cuckoo {
    /// An empty one with so many bits for each of so many keys.
    pub fn new(keys: usize, bits_per_key: f64) -> Self {
        let bits = ((bits_per_key * MOST_FULL) as u32).clamp(2, 32);
        let places = (keys as f64 * bits_per_key / f64::from(bits)).max(keys as f64 / MOST_FULL);
        Self { tables: vec![Table::new(places as usize, bits)], bits }
    }
}

impl Filter for Cuckoo {
    fn contains(&self, item: u64) -> bool {
        self.tables.iter().any(|table| table.contains(item))
    }

    /// One that is there already, or seems to be, takes no place: nothing is ever taken out.
    fn add(&mut self, item: u64) {
        if self.contains(item) || self.tables.last_mut().is_some_and(|last| last.add(item)) {
            return;
        }
        let places = self.tables.last().map_or(0, Table::places) / 4;
        let mut table = Table::new(places, self.bits);
        // The first of a table always finds a place.
        table.add(item);
        self.tables.push(table);
    }

    fn bytes(&self) -> u64 {
        self.tables.iter().map(Table::bytes).sum()
    }
}

/// Segments of ascending keys with their first values, for so many compute nodes, each with a filter.
///
/// # Errors
/// If an option is out of range, or directory and filter do not fit the budget.
pub fn build(
    memory: &mut Memory,
    keys: &[u64],
    sizes: Sizes,
    compute_nodes: u16,
    options: &Options,
) -> Result<Segmented<Cuckoo>, BuildError> {
    let filter = Cuckoo::new(keys.len(), options.bits_per_key);
    Segmented::new(memory, keys, sizes, compute_nodes, &options.segments, Some(filter))
}

#[cfg(test)]
mod tests;
