//! Request streams, made before the clock starts: which keys are looked up, and what each lookup must find.

mod permutation;
mod zipf;

use std::fmt;
use std::str::FromStr;

use crate::random::Random;
use permutation::Permutation;
use zipf::Zipf;

/// How requests are spread over the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Every key equally often.
    Uniform,
    /// The key of rank r with probability proportional to r^−θ, exactly over the number of keys at hand.
    Zipf {
        /// The exponent θ: finite and above 0. YCSB's default is 0.99.
        theta: f64,
    },
}

/// A text that names no distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no request distribution; write uniform, or zipf:THETA with THETA above 0 and at most 16, as in zipf:0.99"
)]
pub struct ParseDistributionError(String);

impl FromStr for Distribution {
    type Err = ParseDistributionError;

    fn from_str(text: &str) -> Result<Self, ParseDistributionError> {
        if text == "uniform" {
            return Ok(Self::Uniform);
        }
        let theta = text.strip_prefix("zipf:").and_then(|theta| theta.parse::<f64>().ok());
        match theta {
            Some(theta) if theta > 0.0 && theta <= MAX_THETA => Ok(Self::Zipf { theta }),
            _ => Err(ParseDistributionError(text.to_owned())),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { theta } => write!(f, "zipf:{theta}"),
        }
    }
}

/// Beyond it nearly every request is for the first rank, and powers leave the range of `f64`.
const MAX_THETA: f64 = 16.0;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct RequestOptions {
    /// Number of requests.
    pub lookups: usize,
    /// How they are spread over the keys.
    pub distribution: Distribution,
    /// The share of requests for absent keys, clamped to 0..=1.
    pub negative: f64,
    /// The stream is a function of the keys and this seed alone.
    pub seed: u64,
}

/// Marks an absent key in [`Requests::expected`].
pub const ABSENT: u64 = u64::MAX;

/// A stream of lookups and what each must find.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// The key of each lookup.
    pub keys: Vec<u64>,
    /// The index into the data set's keys of each lookup, or [`ABSENT`].
    pub expected: Vec<u64>,
    /// Things to announce, such as negatives that could not be made.
    pub notes: Vec<String>,
}

impl Requests {
    /// Number of lookups.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

const PURPOSE_REQUESTS: u64 = 0x4E0;

/// Generates a stream over a data set's distinct ascending keys.
///
/// Under [`Distribution::Zipf`] the popular ranks are scattered over the keys by a seeded permutation. Half of the
/// negatives lie between two neighbouring keys, half outside the range of the keys; where only one of the two exists
/// all are of that kind, and where neither exists every request is for a present key: the notes say so. Without keys
/// every request is negative.
///
/// Costs 16 bytes and some tens of nanoseconds per request, so that running the stream costs nothing but reading it.
pub fn generate(keys: &[u64], options: &RequestOptions) -> Requests {
    let mut random = Random::new(options.seed, PURPOSE_REQUESTS);
    let mut requests = Requests {
        keys: Vec::with_capacity(options.lookups),
        expected: Vec::with_capacity(options.lookups),
        notes: Vec::new(),
    };
    let share = if keys.is_empty() { 1.0 } else { options.negative };
    let absent = if share > 0.0 { Absent::new(keys, &mut requests.notes) } else { None };
    let share = if absent.is_some() { share } else { 0.0 };
    let ranks = Ranks::new(keys.len() as u64, options.distribution, &mut random);
    for _ in 0..options.lookups {
        match &absent {
            Some(absent) if random.open_fraction() < share => {
                requests.keys.push(absent.draw(&mut random));
                requests.expected.push(ABSENT);
            }
            _ => {
                let index = ranks.draw(&mut random);
                requests.keys.push(keys[index as usize]);
                requests.expected.push(index);
            }
        }
    }
    requests
}

/// Draws indices of present keys.
struct Ranks {
    n: u64,
    zipf: Option<(Zipf, Permutation)>,
}

impl Ranks {
    fn new(n: u64, distribution: Distribution, random: &mut Random) -> Self {
        let zipf = match distribution {
            Distribution::Uniform => None,
            // Out-of-range exponents, which parsing refuses, count as the nearest.
            Distribution::Zipf { theta } => {
                let theta =
                    if theta.is_nan() { MAX_THETA } else { theta.clamp(f64::MIN_POSITIVE, MAX_THETA) };
                Some((Zipf::new(n, theta), Permutation::new(n, random)))
            }
        };
        Self { n, zipf }
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            None => random.below(self.n),
            Some((zipf, permutation)) => permutation.apply(zipf.rank(random)),
        }
    }
}

/// Draws absent keys.
struct Absent<'a> {
    keys: &'a [u64],
    /// Whether two neighbours leave room between them.
    gaps: bool,
    /// Absent keys below the first and above the last.
    below: u64,
    above: u64,
}

/// Random tries for a pair of neighbours with room between them, before the next such pair is searched for.
const TRIES: usize = 64;

impl<'a> Absent<'a> {
    fn new(keys: &'a [u64], notes: &mut Vec<String>) -> Option<Self> {
        let gaps = keys.windows(2).any(|pair| pair[1] - pair[0] > 1);
        let (below, above) = match (keys.first(), keys.last()) {
            (Some(&first), Some(&last)) => (first, u64::MAX - last),
            _ => (0, u64::MAX),
        };
        match (gaps, below > 0 || above > 0) {
            (false, false) => {
                notes.push("no negative requests: every possible key is present".to_owned());
                return None;
            }
            (false, true) => {
                notes.push(
                    "negative requests lie outside the key range only: neighbouring keys leave no room"
                        .to_owned(),
                );
            }
            (true, false) => {
                notes.push(
                    "negative requests lie between keys only: the keys reach both ends of the range"
                        .to_owned(),
                );
            }
            (true, true) => {}
        }
        Some(Self { keys, gaps, below, above })
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let outside = self.below > 0 || self.above > 0;
        if self.gaps && (!outside || random.below(2) == 0) {
            self.between(random)
        } else {
            self.outside(random)
        }
    }

    /// Between two neighbours, each pair with room equally likely (nearly: see [`TRIES`]).
    fn between(&self, random: &mut Random) -> u64 {
        let pairs = self.keys.len() - 1;
        let room = |i: usize| self.keys[i + 1] - self.keys[i] - 1;
        let mut i = random.below(pairs as u64) as usize;
        let mut tries = 0;
        while room(i) == 0 {
            tries += 1;
            i = if tries < TRIES { random.below(pairs as u64) as usize } else { (i + 1) % pairs };
        }
        self.keys[i] + 1 + random.below(room(i))
    }

    /// Below the first or above the last key, each side equally likely where both have room.
    fn outside(&self, random: &mut Random) -> u64 {
        let low = self.below > 0 && (self.above == 0 || random.below(2) == 0);
        if low { random.below(self.below) } else { u64::MAX - random.below(self.above) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(negative: f64) -> RequestOptions {
        RequestOptions { lookups: 4_000, distribution: Distribution::Uniform, negative, seed: 1 }
    }

    #[test]
    fn distributions_read_and_show_the_same() {
        for text in ["uniform", "zipf:0.99", "zipf:1", "zipf:16"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        for text in ["", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:inf", "zipf:17", "Uniform"] {
            assert!(text.parse::<Distribution>().unwrap_err().to_string().contains("zipf:0.99"), "{text}");
        }
    }

    #[test]
    fn negatives_are_absent_and_half_lie_on_each_side() {
        let keys: Vec<u64> = (1..=1_000).map(|i| i * 1_000).collect();
        let requests = generate(&keys, &options(0.5));
        let negatives: Vec<u64> = requests
            .keys
            .iter()
            .zip(&requests.expected)
            .filter(|(_, e)| **e == ABSENT)
            .map(|(k, _)| *k)
            .collect();
        assert!((1_850..2_150).contains(&negatives.len()));
        assert!(negatives.iter().all(|key| keys.binary_search(key).is_err()));
        let inside = negatives.iter().filter(|&&key| key > 1_000 && key < 1_000_000).count();
        assert!((850..1_150).contains(&inside));
        assert!(requests.notes.is_empty());
    }

    #[test]
    fn keys_at_both_ends_leave_negatives_between_only() {
        let requests = generate(&[0, 10, u64::MAX], &options(1.0));
        assert!(requests.keys.iter().all(|key| ![0, 10, u64::MAX].contains(key)));
        assert!(requests.notes[0].contains("between keys only"), "{:?}", requests.notes);
    }

    #[test]
    fn dense_keys_leave_negatives_outside_only() {
        let keys: Vec<u64> = (0..100).collect();
        let requests = generate(&keys, &options(1.0));
        assert!(requests.keys.iter().all(|&key| key >= 100));
        assert!(requests.notes[0].contains("outside"));
        let keys: Vec<u64> = (u64::MAX - 99..=u64::MAX).collect();
        assert!(generate(&keys, &options(1.0)).keys.iter().all(|&key| key < u64::MAX - 99));
    }

    #[test]
    fn one_gap_among_many_keys_is_found() {
        let keys: Vec<u64> = (0..5_000).chain(5_001..10_000).chain([u64::MAX]).collect();
        let requests = generate(&keys, &RequestOptions { lookups: 200, ..options(1.0) });
        assert!(requests.keys.iter().all(|key| keys.binary_search(key).is_err()));
        assert!(requests.keys.contains(&5_000));
    }

    #[test]
    fn without_keys_everything_is_absent() {
        let requests = generate(&[], &options(0.0));
        assert!(requests.expected.iter().all(|&expected| expected == ABSENT) && requests.len() == 4_000);
    }

    #[test]
    fn expected_indices_name_the_requested_keys() {
        let keys: Vec<u64> = (0..777).map(|i| i * 3).collect();
        for distribution in [Distribution::Uniform, Distribution::Zipf { theta: 0.99 }] {
            let requests = generate(&keys, &RequestOptions { distribution, ..options(0.0) });
            for (key, &expected) in requests.keys.iter().zip(&requests.expected) {
                assert_eq!(*key, keys[expected as usize]);
            }
        }
    }
}
