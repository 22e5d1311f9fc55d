//! Request streams over real data sets.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use fpcache_datasets::requests::{ABSENT, Distribution, RequestOptions, generate};
use fpcache_datasets::{OpenOptions, Spec};

fn keys(spec: &str) -> Vec<u64> {
    spec.parse::<Spec>().unwrap().open(&OpenOptions::default()).unwrap().into_keys()
}

#[test]
fn a_stream_is_the_same_for_its_seed_everywhere() {
    let keys = keys("sequential:1K");
    let options = RequestOptions {
        lookups: 6,
        distribution: Distribution::Zipf { theta: 0.99 },
        negative: 0.2,
        seed: 42,
    };
    let requests = generate(&keys, &options);
    assert_eq!(requests.expected, GOLDEN_ZIPF);
    assert_eq!(generate(&keys, &options).keys, requests.keys);
    assert_ne!(generate(&keys, &RequestOptions { seed: 43, ..options }).keys, requests.keys);
}

#[test]
fn zipf_follows_the_law_over_scattered_keys() {
    let keys = keys("fb:10K");
    let lookups = 300_000;
    let options =
        RequestOptions { lookups, distribution: Distribution::Zipf { theta: 0.99 }, negative: 0.0, seed: 1 };
    let requests = generate(&keys, &options);
    let mut seen = vec![0u64; keys.len()];
    requests.expected.iter().for_each(|&index| seen[index as usize] += 1);
    let mut hottest: Vec<usize> = (0..seen.len()).collect();
    hottest.sort_by_key(|&index| std::cmp::Reverse(seen[index]));
    let zeta: f64 = (1..=10_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
    for rank in [1usize, 2, 3, 10] {
        let expected = lookups as f64 * (rank as f64).powf(-0.99) / zeta;
        let ratio = seen[hottest[rank - 1]] as f64 / expected;
        assert!((0.93..1.07).contains(&ratio), "rank {rank}: {ratio}");
    }
    // The ten hottest keys are spread over the key space rather than neighbours.
    let spread = hottest[..10].iter().max().unwrap() - hottest[..10].iter().min().unwrap();
    assert!(spread > 3_000, "{spread}");
}

#[test]
fn negatives_on_a_set_that_reaches_the_last_key_are_absent() {
    let keys = keys("fb:30K");
    assert_eq!(keys.last(), Some(&u64::MAX));
    let options =
        RequestOptions { lookups: 20_000, distribution: Distribution::Uniform, negative: 0.1, seed: 3 };
    let requests = generate(&keys, &options);
    let mut negatives = 0;
    for (key, &expected) in requests.keys.iter().zip(&requests.expected) {
        negatives += u64::from(expected == ABSENT);
        assert_eq!(keys.binary_search(key).ok(), (expected != ABSENT).then_some(expected as usize));
    }
    assert!((1_800..2_200).contains(&negatives), "{negatives}");
}

const GOLDEN_ZIPF: [u64; 6] = [228, 363, 313, 228, 960, 384];
