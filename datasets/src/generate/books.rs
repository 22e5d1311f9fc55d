//! A stand-in for `books_200M_uint64`: keys as uneven as Amazon's book popularities at small scale,
//! and even beyond.
//!
//! A multiplicative cascade over the gaps: its shapes grow with the number of keys, slowly up to a
//! few dozen, which makes gaps resemble their neighbours, and in proportion from 128 on, as for
//! gaps that are independent of each other. Started from the published numbers of keys in equal
//! stretches of the file's range, and adjusted to its numbers of optimal segments per 200 M keys:
//! keys per segment are within 14 % of the file's at every power of two for ε from 1 to 256, and
//! within 8 % at 8, 32, 64 and 256. At greater ε the file's density shows, which changes slowly
//! over its whole range; the stand-in's does not.

use super::cascade::Spread;
use crate::random::Random;

/// The shapes of splits into halves of 1, 2, 4, … keys; each one after the last is twice the one
/// before.
const SHAPES: [f64; 8] = [1.1, 0.8, 1.0, 2.2, 3.1, 7.3, 17.0, 18.0];

const PURPOSE: u64 = 0xB00C5;

/// The stand-in of `count` keys; beyond [`MAX_KEYS`](super::fb::MAX_KEYS) it ends there.
pub fn books(count: u64, seed: u64) -> Spread {
    Spread::new(count, shape, Random::new(seed, PURPOSE))
}

/// The shape of a split into halves of 2^level keys.
fn shape(level: u32) -> f64 {
    let last = SHAPES.len() as u32 - 1;
    SHAPES[level.min(last) as usize] * (1u64 << level.saturating_sub(last)) as f64
}
