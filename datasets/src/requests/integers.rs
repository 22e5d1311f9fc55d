//! Lookups of `u64` keys.

use super::absent::Absent;
use super::distribution::Distribution;
use super::draw::{ABSENT, RequestOptions, draw_each, negative_share};
use super::sosd;
use crate::dataset::Dataset;

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
