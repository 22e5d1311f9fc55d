//! Request streams, generated before the clock starts: the key of each lookup and the expected
//! answer; and streams of [operations](Operations) that also change records.

mod absent;
mod bytes;
mod distribution;
mod growth;
mod hot;
mod mix;
mod operations;
mod permutation;
mod popular;
mod sosd;
mod workload;
mod ycsb;
mod zipf;

use crate::dataset::Dataset;
use crate::random::Random;
use absent::Absent;
use popular::Popular;
pub(crate) use ycsb::fnv64;

pub use bytes::{AbsentKeys, ByteRequests, generate_bytes};
pub use distribution::{Distribution, ParseDistributionError};
pub use growth::{Growth, InsertOrder, ParseInsertOrderError};
pub use mix::{Mix, OperationKind, ParseMixError};
pub use operations::{Operation, Operations, Play};
pub use workload::{ParseWorkloadError, Workload};

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
    /// After every so many requests, absent keys counted, other keys become popular, in the same
    /// proportions; see [`generate`]. `None` leaves them as they are, and so does 0, which the
    /// notes tell.
    pub shift_every: Option<u64>,
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
/// Half of the negatives lie between two neighbouring keys, half outside the range of the keys;
/// where only one of the two exists all are of that kind, and where neither exists every request is
/// for a present key: the notes say so. Without keys every request is negative.
///
/// With [`shift_every`](RequestOptions::shift_every) the popular keys move:
/// [`Zipf`](Distribution::Zipf) takes another permutation, [`YcsbZipf`](Distribution::YcsbZipf)
/// another hash, [`Latest`](Distribution::Latest) another newest key, from which recency wraps
/// around the end, and a hot set goes to another place, apart from the one before where that leaves
/// room. Where no key is popular it has no effect, which the notes tell.
///
/// [`Distribution::Sosd`] is without its limit on equal keys here, for these keys are distinct; see
/// [`generate_for`].
///
/// Costs 16 bytes per request and, over a million keys, 10 to 30 ns for one that is uniform or of a
/// hot set, 50 to 130 ns for a zipf, so that running the stream costs nothing but reading it.
pub fn generate(keys: &[u64], options: &RequestOptions) -> Requests {
    stream(keys, Vec::new(), options)
}

/// [`generate`] over a data set's keys. [`Distribution::Sosd`] passes over keys that occur more
/// than 100 times, as SOSD does; finding these costs one pass over the values, where there are
/// duplicates.
pub fn generate_for(dataset: &Dataset, options: &RequestOptions) -> Requests {
    let crowded = match options.distribution {
        Distribution::Sosd => dataset.crowded(sosd::MOST_EQUAL),
        _ => Vec::new(),
    };
    stream(dataset.keys(), crowded, options)
}

fn stream(keys: &[u64], crowded: Vec<u64>, options: &RequestOptions) -> Requests {
    let mut requests = Requests {
        keys: Vec::with_capacity(options.lookups),
        expected: Vec::with_capacity(options.lookups),
        notes: Vec::new(),
    };
    let share = negative_share(keys.len(), options);
    let absent = if share > 0.0 { Absent::new(keys, &mut requests.notes) } else { None };
    let share = if absent.is_some() { share } else { 0.0 };
    let Requests { keys: asked, expected, notes } = &mut requests;
    draw_each(keys.len() as u64, share, crowded, options, notes, |index, random| {
        match (index, &absent) {
            (Some(index), _) => asked.push(keys[index as usize]),
            (None, Some(absent)) => asked.push(absent.draw(random)),
            // A share of zero draws no absent key.
            (None, None) => return,
        }
        expected.push(index.unwrap_or(ABSENT));
    });
    requests
}

/// The share of requests for absent keys: all, where there is no other.
fn negative_share(keys: usize, options: &RequestOptions) -> f64 {
    if keys == 0 { 1.0 } else { options.negative }
}

/// Hands out the index of the key of each request, `None` for an absent key, and what further draws
/// come from.
fn draw_each(
    n: u64,
    share: f64,
    crowded: Vec<u64>,
    options: &RequestOptions,
    notes: &mut Vec<String>,
    mut visit: impl FnMut(Option<u64>, &mut Random),
) {
    let mut random = Random::new(options.seed, PURPOSE_REQUESTS);
    if !crowded.is_empty() {
        notes.push(crowded_note(crowded.len() as u64, n));
    }
    let mut popular = Popular::new(n, options.distribution, crowded, options.seed, &mut random);
    let every = shifts(options, &popular, notes);
    let mut until_shift = every;
    for _ in 0..options.lookups {
        if until_shift == 0 {
            popular.shift();
            until_shift = every;
        }
        until_shift -= 1;
        let is_absent = share > 0.0 && random.open_fraction() < share;
        let index = (!is_absent).then(|| popular.draw(&mut random));
        visit(index, &mut random);
    }
}

fn crowded_note(crowded: u64, n: u64) -> String {
    let most = sosd::MOST_EQUAL;
    if crowded < n {
        format!("sosd: {crowded} of {n} keys occur more than {most} times and are not requested")
    } else {
        format!("sosd: all {n} keys occur more than {most} times, so none is skipped")
    }
}

/// Requests between two shifts, at least 1; `u64::MAX`, which no stream reaches, where nothing
/// moves.
fn shifts(options: &RequestOptions, popular: &Popular, notes: &mut Vec<String>) -> u64 {
    let Some(every) = options.shift_every else { return u64::MAX };
    let cause = if every == 0 { Some("0 requests have no end") } else { popular.immovable() };
    if let Some(cause) = cause {
        notes.push(format!("popular keys do not move under {}: {cause}", options.distribution));
        return u64::MAX;
    }
    every
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(negative: f64) -> RequestOptions {
        RequestOptions {
            lookups: 4_000,
            distribution: Distribution::Uniform,
            negative,
            seed: 1,
            shift_every: None,
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
}
