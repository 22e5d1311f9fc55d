//! Words to compose names from, some far more common than others.

use crate::random::Random;
use crate::shipped;

/// Letters of the words that names are made of.
const LETTERS: std::ops::RangeInclusive<usize> = 3..=8;

/// Shipped words of a few small letters, in an order that has nothing to do with the alphabet.
pub(super) struct Vocabulary(Vec<Box<[u8]>>);

impl Vocabulary {
    /// Costs some tens of milliseconds.
    pub(super) fn new() -> Self {
        let words = shipped::words();
        let good = |word: &&[u8]| LETTERS.contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
        let mut words: Vec<Box<[u8]>> = words.iter().filter(good).map(Box::from).collect();
        // A shuffle (Durstenfeld 1964) that is the same for every seed: how common a word is
        // belongs to the language.
        let mut random = Random::new(0, 0x0C);
        for i in (1..words.len()).rev() {
            words.swap(i, random.below(i as u64 + 1) as usize);
        }
        Self(words)
    }

    /// A word; the greater the skew, the more draws fall on few words: rank r has a share of about
    /// r^(1/skew − 1). A skew of 1 is uniform.
    pub(super) fn draw(&self, random: &mut Random, skew: f64) -> &[u8] {
        let rank = self.0.len() as f64 * libm::pow(random.open_fraction(), skew);
        // Below the length: the fraction is below 1, and the product is rounded to at most the
        // length.
        &self.0[(rank as usize).min(self.0.len() - 1)]
    }
}
