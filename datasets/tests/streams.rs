//! Request streams over real data sets.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;

use fpcache_datasets::requests::{ABSENT, Distribution, RequestOptions, Requests, generate, generate_for};
use fpcache_datasets::sosd::SosdWriter;
use fpcache_datasets::{Duplicates, OpenOptions, Spec};

/// One of each form; those from [`FIRST_SKEWED`] on have popular keys.
const FORMS: [&str; 7] =
    ["uniform", "sosd", "zipf:0.99", "ycsb-zipf:0.99", "latest:0.99", "hotspot:0.01:0.9", "hotset:0.05:0.8"];
const FIRST_SKEWED: usize = 2;

fn keys(spec: &str) -> Vec<u64> {
    spec.parse::<Spec>().unwrap().open(&OpenOptions::default()).unwrap().into_keys()
}

fn options(distribution: &str, lookups: usize) -> RequestOptions {
    let distribution = distribution.parse().unwrap();
    RequestOptions { lookups, distribution, negative: 0.0, seed: 42, shift_every: None }
}

/// How often each of `n` keys is asked for.
fn frequencies(expected: &[u64], n: usize) -> Vec<u64> {
    let mut seen = vec![0; n];
    expected.iter().filter(|&&index| index != ABSENT).for_each(|&index| seen[index as usize] += 1);
    seen
}

/// Checks frequencies against probabilities by the chi-square statistic over cells of five and more
/// expected.
fn assert_follows(seen: &[u64], probability: impl Fn(usize) -> f64, what: &str) {
    let total = seen.iter().sum::<u64>() as f64;
    let (mut chi_square, mut cells, mut sum) = (0.0, 0.0, 0.0);
    for (i, &observed) in seen.iter().enumerate() {
        let expected = total * probability(i);
        sum += probability(i);
        if expected >= 5.0 {
            chi_square += (observed as f64 - expected).powi(2) / expected;
            cells += 1.0;
        } else {
            assert!(observed as f64 <= expected + 40.0, "{what}: {i} {observed} times, not {expected}");
        }
    }
    assert!((sum - 1.0).abs() < 1e-9, "{what}: probabilities sum to {sum}");
    // Four standard deviations above the statistic's mean.
    let bound = cells + 4.0 * (2.0f64 * cells).sqrt();
    assert!(chi_square < bound, "{what}: {chi_square} of {cells} cells, at most {bound}");
}

/// The zipf law over n ranks.
fn zipf(n: usize, theta: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-theta)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

#[test]
fn a_stream_is_the_same_for_its_seed_everywhere() {
    let keys = keys("sequential:1K");
    let found: Vec<_> = FORMS
        .map(|form| {
            let options = RequestOptions { negative: 0.2, shift_every: Some(3), ..options(form, 6) };
            let requests = generate(&keys, &options);
            assert_eq!(generate(&keys, &options).keys, requests.keys);
            assert_ne!(generate(&keys, &RequestOptions { seed: 43, ..options }).keys, requests.keys);
            (form, requests.expected)
        })
        .to_vec();
    let golden: Vec<_> = GOLDEN.iter().map(|(form, expected)| (*form, expected.to_vec())).collect();
    assert_eq!(found, golden, "{found:?}");
    let options = RequestOptions { negative: 0.2, ..options("zipf:0.99", 6) };
    assert_eq!(generate(&keys, &options).expected, GOLDEN_ZIPF);
}

#[test]
fn every_request_names_its_key_and_negatives_are_absent_in_every_distribution() {
    let keys = keys("fb:30K");
    assert_eq!(keys.last(), Some(&u64::MAX));
    for form in FORMS {
        for shift_every in [None, Some(1_000)] {
            let options = RequestOptions { negative: 0.1, shift_every, ..options(form, 20_000) };
            let requests = generate(&keys, &options);
            let mut negatives = 0;
            for (key, &expected) in requests.keys.iter().zip(&requests.expected) {
                negatives += u64::from(expected == ABSENT);
                assert_eq!(keys.binary_search(key).ok(), (expected != ABSENT).then_some(expected as usize));
            }
            assert!((1_800..2_200).contains(&negatives), "{form}: {negatives}");
        }
    }
}

#[test]
fn every_distribution_takes_sets_of_one_and_of_no_keys() {
    for form in FORMS {
        let options = RequestOptions { shift_every: Some(2), ..options(form, 10) };
        assert_eq!(generate(&[7], &options).keys, [7; 10], "{form}");
        assert!(generate(&[], &options).expected.iter().all(|&expected| expected == ABSENT), "{form}");
    }
}

#[test]
fn zipf_follows_the_law_over_scattered_keys() {
    let keys = keys("fb:10K");
    let requests = generate(&keys, &options("zipf:0.99", 300_000));
    let seen = frequencies(&requests.expected, keys.len());
    let mut hottest: Vec<usize> = (0..seen.len()).collect();
    hottest.sort_by_key(|&index| std::cmp::Reverse(seen[index]));
    let law = zipf(keys.len(), 0.99);
    for rank in [1, 2, 3, 10] {
        let ratio = seen[hottest[rank - 1]] as f64 / (300_000.0 * law[rank - 1]);
        assert!((0.93..1.07).contains(&ratio), "rank {rank}: {ratio}");
    }
    // The ten hottest keys are spread over the key space rather than neighbours.
    let spread = hottest[..10].iter().max().unwrap() - hottest[..10].iter().min().unwrap();
    assert!(spread > 3_000, "{spread}");
}

#[test]
fn uniform_and_sosd_ask_for_every_key_alike() {
    let keys = keys("sequential:1K");
    for form in ["uniform", "sosd"] {
        let seen = frequencies(&generate(&keys, &options(form, 200_000)).expected, 1_000);
        assert_follows(&seen, |_| 1e-3, form);
    }
}

#[test]
fn latest_follows_the_law_from_the_last_key_down() {
    let keys = keys("sequential:1K");
    for theta in [0.5, 0.99, 1.5] {
        let form = format!("latest:{theta}");
        let seen = frequencies(&generate(&keys, &options(&form, 200_000)).expected, 1_000);
        let law = zipf(1_000, theta);
        assert_follows(&seen, |i| law[999 - i], &form);
    }
}

#[test]
fn latest_follows_the_law_around_the_end_when_the_newest_key_moved() {
    let keys = keys("sequential:50");
    let options = RequestOptions { shift_every: Some(100_000), ..options("latest:0.5", 300_000) };
    let requests = generate(&keys, &options);
    let law = zipf(50, 0.5);
    for phase in requests.expected.chunks(100_000) {
        let seen = frequencies(phase, 50);
        let newest = (0..50).max_by_key(|&index| seen[index]).unwrap();
        assert_follows(&seen, |index| law[(newest + 50 - index) % 50], "latest");
    }
}

#[test]
fn every_shift_comes_when_it_is_due() {
    let keys = keys("sequential:1000");
    let options = RequestOptions { shift_every: Some(7), ..options("hotspot:0.01:1", 7_000) };
    let spans: Vec<(u64, u64)> = generate(&keys, &options)
        .expected
        .chunks(7)
        .map(|phase| (*phase.iter().min().unwrap(), *phase.iter().max().unwrap()))
        .collect();
    assert!(spans.iter().all(|(first, last)| last - first < 10));
    assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0 || pair[1].1 < pair[0].0));
}

#[test]
fn ycsb_zipf_has_ycsbs_popular_keys_with_its_shares() {
    // The remainders of the hashes of ranks 0, 1, 2 and 3 by the number of keys; the first two
    // shares are exact.
    let keys = keys("sequential:10M");
    let lookups = 400_000;
    let seen = frequencies(&generate(&keys, &options("ycsb-zipf", lookups)).expected, keys.len());
    let zeta = 26.469_028_201_783_02;
    for (index, share) in [(667_377_211, 1.0 / zeta), (634_966_620, 0.5f64.powf(0.99) / zeta)] {
        let expected = lookups as f64 * share;
        let deviation = (seen[index % 10_000_000] as f64 - expected) / expected.sqrt();
        assert!(deviation.abs() < 4.0, "{index}: {deviation}");
    }
    // The most popular key's share does not depend on how many keys there are.
    let few = frequencies(&generate(&keys[..100_000], &options("ycsb-zipf", lookups)).expected, 100_000);
    let ratio = few[6_284_781_860_667_377_211 % 100_000] as f64 * zeta / lookups as f64;
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn a_hotspot_is_one_stretch_and_a_hotset_scattered_both_with_their_share() {
    let keys = keys("sequential:2K");
    for (form, hot, probability) in [
        ("hotspot:0.01:0.9", 20, 0.9),
        ("hotspot:0.25:0.5", 500, 0.5),
        ("hotspot:0.00001:0.2", 1, 0.2),
        ("hotspot:0.5:1", 1_000, 1.0),
        ("hotset:0.01:0.9", 20, 0.9),
        ("hotset:0.1:0.8", 200, 0.8),
        ("hotset:1:0.3", 2_000, 1.0),
    ] {
        let seen = frequencies(&generate(&keys, &options(form, 400_000)).expected, keys.len());
        // Hot keys are asked for far more often than half-way between the two frequencies.
        let (hot_share, cold_share) =
            (probability / hot as f64, (1.0 - probability) / (2_000 - hot).max(1) as f64);
        let limit = if hot == 2_000 { 0.0 } else { 400_000.0 * (hot_share + cold_share) / 2.0 };
        let places: Vec<usize> = (0..2_000).filter(|&i| seen[i] as f64 > limit).collect();
        assert_eq!(places.len(), hot, "{form}");
        assert_follows(&seen, |i| if places.contains(&i) { hot_share } else { cold_share }, form);
        let span = places[hot - 1] - places[0] + 1;
        let scattered = form.starts_with("hotset") && hot < 2_000;
        assert_eq!(span > hot, scattered, "{form}: {hot} keys over {span}");
    }
}

#[test]
fn another_seed_puts_a_hotspot_elsewhere() {
    let keys = keys("sequential:100K");
    let first = |seed| {
        let options = RequestOptions { seed, ..options("hotspot:0.001:1", 1_000) };
        *generate(&keys, &options).expected.iter().min().unwrap()
    };
    assert!((1..6).map(first).collect::<BTreeSet<_>>().len() == 5);
}

#[test]
fn a_shift_moves_the_popular_keys_and_keeps_their_number_and_share() {
    let keys = keys("sequential:10K");
    let every = 50_000;
    for form in &FORMS[FIRST_SKEWED..] {
        let options = RequestOptions { shift_every: Some(every), ..options(form, 4 * every as usize) };
        let requests = generate(&keys, &options);
        assert!(requests.notes.is_empty(), "{form}: {:?}", requests.notes);
        let phases: Vec<Vec<u64>> =
            requests.expected.chunks(every as usize).map(|phase| frequencies(phase, keys.len())).collect();
        // The first phase is what it is without shifts.
        let still = generate(&keys, &RequestOptions { shift_every: None, ..options });
        assert_eq!(still.expected[..every as usize], requests.expected[..every as usize], "{form}");
        let popular = |seen: &[u64]| {
            let mut order: Vec<usize> = (0..seen.len()).collect();
            order.sort_by_key(|&index| std::cmp::Reverse(seen[index]));
            order[..100].iter().copied().collect::<BTreeSet<_>>()
        };
        let share = |seen: &[u64], set: &BTreeSet<usize>| {
            set.iter().map(|&index| seen[index]).sum::<u64>() as f64 / every as f64
        };
        let own: Vec<f64> = phases.iter().map(|seen| share(seen, &popular(seen))).collect();
        for (i, pair) in phases.windows(2).enumerate() {
            let ratio = own[i + 1] / own[i];
            assert!((0.95..1.05).contains(&ratio), "{form}: the popular keys took {own:?}");
            let (old, new) = (popular(&pair[0]), popular(&pair[1]));
            assert!(old.intersection(&new).count() < 15, "{form}: {old:?} stayed");
            let left = share(&pair[1], &old);
            assert!(left < own[i] / 4.0, "{form}: {left} of the requests stayed of {}", own[i]);
        }
    }
}

#[test]
fn absent_keys_count_towards_a_shift() {
    let keys: Vec<u64> = (0..1_000).map(|i| i * 10).collect();
    let options =
        RequestOptions { negative: 0.5, shift_every: Some(1_000), ..options("hotspot:0.01:1", 2_000) };
    let requests = generate(&keys, &options);
    let places = |part: &[u64]| part.iter().copied().filter(|&e| e != ABSENT).collect::<BTreeSet<_>>();
    let (old, new) = (places(&requests.expected[..1_000]), places(&requests.expected[1_000..]));
    assert!(old.len() == 10 && new.len() == 10 && old.is_disjoint(&new), "{old:?} {new:?}");
}

#[test]
fn a_shift_without_effect_is_told() {
    let keys = keys("sequential:1K");
    for (form, every, cause) in [
        ("uniform", 10, "no key is more popular"),
        ("sosd", 10, "no key is more popular"),
        ("hotspot:1:0.5", 10, "all keys are hot"),
        ("zipf:0.99", 0, "0 requests"),
    ] {
        let still = generate(&keys, &options(form, 100));
        let shifted = generate(&keys, &RequestOptions { shift_every: Some(every), ..options(form, 100) });
        assert_eq!(still.keys, shifted.keys, "{form}");
        assert!(still.notes.is_empty() && shifted.notes[0].contains(cause), "{form}: {:?}", shifted.notes);
    }
}

#[test]
fn sosd_passes_over_keys_with_more_than_a_hundred_duplicates_whatever_their_value_is() {
    // Key 0 occurs 101 times, key 1 100 times, and so on: 7 and 9 are crowded as well.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k_uint64");
    let occurrences = [101u64, 100, 1, 2, 1, 50, 1, 300, 1, 102];
    let mut writer = SosdWriter::create(&path, false).unwrap();
    for (key, &times) in occurrences.iter().enumerate() {
        writer.push(&vec![key as u64; times as usize]).unwrap();
    }
    writer.finish().unwrap();
    let spec: Spec = format!("sosd:{}", path.display()).parse().unwrap();
    for policy in [Duplicates::First, Duplicates::Last, Duplicates::Sum] {
        let dataset = spec.open(&OpenOptions { duplicates: Some(policy), ..OpenOptions::default() }).unwrap();
        for limit in [0, 1, 2, 99, 100, 101, 300] {
            let crowded: Vec<u64> = (0..10).filter(|&i| occurrences[i as usize] > limit).collect();
            assert_eq!(dataset.crowded(limit), crowded, "{policy} {limit}");
        }
        let requests: Requests = generate_for(&dataset, &options("sosd", 2_000));
        let asked: BTreeSet<u64> = requests.expected.iter().copied().collect();
        assert_eq!(asked, BTreeSet::from([1, 2, 3, 4, 5, 6, 8]), "{policy}");
        assert!(requests.notes[0].contains("3 of 10 keys occur more than 100 times"), "{:?}", requests.notes);
        let uniform = generate_for(&dataset, &options("uniform", 2_000));
        assert_eq!(frequencies(&uniform.expected, 10).iter().filter(|&&times| times > 0).count(), 10);
    }
}

#[test]
fn without_duplicates_sosd_asks_for_the_same_with_and_without_the_data_set() {
    let dataset = "ipv4".parse::<Spec>().unwrap().open(&OpenOptions::default()).unwrap();
    let requests = generate_for(&dataset, &options("sosd", 8));
    assert_eq!(requests.expected, [172_710, 199_426, 322_679, 288_526, 5_148, 293_437, 85_836, 8_970]);
    assert!(requests.notes.is_empty());
    assert_eq!(generate(dataset.keys(), &options("sosd", 8)).keys, requests.keys);
}

#[test]
fn distributions_made_by_hand_out_of_range_still_name_keys() {
    let keys = keys("sequential:100");
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 2.0, 1e300] {
        for distribution in [
            Distribution::Zipf { theta: value },
            Distribution::YcsbZipf { theta: value },
            Distribution::Latest { theta: value },
            Distribution::Hotspot { share: value, probability: value },
            Distribution::Hotset { share: value, probability: value },
        ] {
            let options =
                RequestOptions { distribution, shift_every: Some(100), ..options("uniform", 1_000) };
            let requests = generate(&keys, &options);
            assert!(requests.expected.iter().all(|&index| index < 100), "{distribution}");
        }
    }
}

const GOLDEN_ZIPF: [u64; 6] = [228, 363, 313, 228, 960, 384];
/// Six requests for seed 42, a fifth of them absent, with a shift after three.
const GOLDEN: [(&str, [u64; 6]); 7] = [
    ("uniform", [505, 219, 774, 980, 862, 792]),
    ("sosd", [168, 66, 543, 852, 946, 515]),
    ("zipf:0.99", [228, 363, 313, 601, 186, 885]),
    ("ycsb-zipf:0.99", [406, 557, 488, 878, 45, 896]),
    ("latest:0.99", [976, 798, 997, 588, 587, 586]),
    ("hotspot:0.01:0.9", [732, 732, 738, 575, ABSENT, 93]),
    ("hotset:0.05:0.8", [628, 288, 434, 324, ABSENT, ABSENT]),
];
