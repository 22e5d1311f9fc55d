//! Range reads behind a cuckoo filter: see the folder's `README.md`.

mod table;

use self::table::Table;
use crate::segments::Filter;

/// Share of its places that a filter with buckets of four fills when keys are loaded.
pub const MOST_FULL: f64 = 0.95;

/// A cuckoo filter (Fan et al., "Cuckoo filter: practically better than Bloom", CoNEXT 2014) that
/// gets another table, of a quarter of the places, when it has no place left.
#[derive(Clone, Debug)]
pub struct Cuckoo {
    tables: Vec<Table>,
    bits: u32,
}

impl Cuckoo {
    /// An empty one with `bits_per_key` bits for each of `keys` keys.
    pub fn new(keys: usize, bits_per_key: f64) -> Self {
        let bits = ((bits_per_key * MOST_FULL) as u32).clamp(2, 32);
        let places = (keys as f64 * bits_per_key / f64::from(bits)).max(keys as f64 / MOST_FULL);
        Self { tables: vec![Table::new(places as usize, bits)], bits }
    }
}

impl Filter for Cuckoo {
    /// About 1.5 bytes per key: fingerprints of 11 bits in 92 % of their places.
    const PUBLISHED_BITS: f64 = 12.0;

    fn of(keys: usize, bits_per_key: f64) -> Option<Self> {
        Some(Self::new(keys, bits_per_key))
    }

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

#[cfg(test)]
mod tests;
