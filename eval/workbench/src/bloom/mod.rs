//! Range reads behind a Bloom filter: see the folder's `README.md`.

use crate::scatter;
use crate::segments::Filter;

/// A Bloom filter (Bloom, CACM 13(7), 1970) whose positions come from two hashes (Kirsch and
/// Mitzenmacher, "Less hashing, same performance", ESA 2006).
#[derive(Clone, Debug)]
pub struct Bloom {
    words: Vec<u64>,
    bits: u64,
    hashes: u32,
}

impl Bloom {
    /// An empty one with `bits_per_key` bits for each of `keys` keys, and as many hashes as let the
    /// fewest others pass.
    pub fn new(keys: usize, bits_per_key: f64) -> Self {
        let bits_per_key = bits_per_key.max(1.0);
        let bits = ((keys as f64 * bits_per_key).ceil() as u64).max(64);
        let hashes = (bits_per_key * std::f64::consts::LN_2).round().clamp(1.0, 30.0) as u32;
        Self { words: vec![0; bits.div_ceil(64) as usize], bits, hashes }
    }

    /// The bits of an item.
    fn places(&self, item: u64) -> impl Iterator<Item = u64> + use<> {
        let (step, bits) = (scatter(item ^ 0x517c_c1b7_2722_0a95) | 1, self.bits);
        let hashes = (0..u64::from(self.hashes)).map(move |i| item.wrapping_add(i.wrapping_mul(step)));
        hashes.map(move |hash| ((u128::from(hash) * u128::from(bits)) >> 64) as u64)
    }
}

impl Filter for Bloom {
    /// About 1.2 bytes per key, of which one key in a hundred that is not there passes.
    const PUBLISHED_BITS: f64 = 9.6;

    fn of(keys: usize, bits_per_key: f64) -> Option<Self> {
        Some(Self::new(keys, bits_per_key))
    }

    fn contains(&self, item: u64) -> bool {
        self.places(item).all(|place| self.words[(place / 64) as usize] >> (place % 64) & 1 == 1)
    }

    fn add(&mut self, item: u64) {
        self.places(item).for_each(|place| self.words[(place / 64) as usize] |= 1 << (place % 64));
    }

    fn bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }
}

#[cfg(test)]
mod tests;
