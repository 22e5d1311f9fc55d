//! The segmenter cuts as few pieces as any method could.

mod common;

use fpcache_index::{SegmentOptions, Segmenter, count_segments};
use proptest::prelude::*;

/// Whether a line of slope >= 0 predicts the ranks of `xs` within ε, by every pair of keys: the
/// slope must be at least each pair's least slope and at most each pair's greatest (Helly's theorem
/// for the strips of slopes). O(n^2).
fn one_line_serves(xs: &[u64], epsilon: i128) -> bool {
    // Least and greatest slope as fractions; none is below 0.
    let (mut low, mut high) = ((0i128, 1i128), None::<(i128, i128)>);
    for i in 0..xs.len() {
        for j in i + 1..xs.len() {
            let run = i128::from(xs[j] - xs[i]);
            let rise = (j - i) as i128;
            if (rise - 2 * epsilon) * low.1 > low.0 * run {
                low = (rise - 2 * epsilon, run);
            }
            if high.is_none_or(|high| (rise + 2 * epsilon) * high.1 < high.0 * run) {
                high = Some((rise + 2 * epsilon, run));
            }
        }
    }
    high.is_none_or(|high| low.0 * high.1 <= high.0 * low.1)
}

/// The least number of pieces over all ways to cut, by dynamic programming.
fn brute_force(xs: &[u64], epsilon: u32, max_keys: usize) -> u64 {
    let mut least = vec![0u64; xs.len() + 1];
    for end in 1..=xs.len() {
        least[end] = (end.saturating_sub(max_keys)..end)
            .filter(|&start| one_line_serves(&xs[start..end], i128::from(epsilon)))
            .map(|start| least[start] + 1)
            .min()
            .expect("a single key has a line");
    }
    least[xs.len()]
}

fn pieces(xs: &[u64], options: SegmentOptions) -> Vec<usize> {
    let mut segmenter = Segmenter::new(options).expect("valid options");
    let mut pieces: Vec<_> = xs.iter().filter_map(|&x| segmenter.push(x).expect("ascending")).collect();
    pieces.extend(segmenter.finish());
    let mut first = 0;
    for piece in &pieces {
        assert_eq!(piece.first, xs[first]);
        first += piece.keys;
    }
    assert_eq!(first, xs.len());
    pieces.iter().map(|piece| piece.keys).collect()
}

#[test]
fn adversarial_keys() {
    for (name, keys) in common::adversarial() {
        let keys: Vec<u64> = keys.iter().step_by((keys.len() / 60).max(1)).copied().collect();
        for epsilon in [0, 1, 2, 5, 20, 100] {
            let counted = count_segments(keys.iter().copied(), epsilon).expect("ascending");
            assert_eq!(counted, brute_force(&keys, epsilon, usize::MAX), "{name} at {epsilon}");
        }
    }
}

#[test]
fn the_longest_piece_of_many_keys() {
    for (name, keys) in common::adversarial() {
        for epsilon in [1, 16, 64] {
            let options = SegmentOptions { epsilon, fill: 1.0, max_slots: 300, ..SegmentOptions::default() };
            let mut first = 0;
            for keys_of_piece in pieces(&keys, options) {
                let end = first + keys_of_piece;
                assert!(
                    one_line_serves(&keys[first..end], i128::from(epsilon)),
                    "{name} at {epsilon}: too long"
                );
                assert!(
                    end == keys.len()
                        || keys_of_piece == 300
                        || !one_line_serves(&keys[first..=end], i128::from(epsilon)),
                    "{name} at {epsilon}: too short"
                );
                first = end;
            }
        }
    }
}

#[test]
fn known_counts() {
    let count = |xs: &[u64], epsilon| count_segments(xs.iter().copied(), epsilon).expect("ascending");
    assert_eq!(count(&[], 0), 0);
    assert_eq!(count(&[5], 0), 1);
    assert_eq!(count(&[5, u64::MAX], 0), 1);
    // No three on a line.
    assert_eq!(count(&[1, 2, 4, 8, 16, 32], 0), 3);
    let dense: Vec<u64> = (1 << 62..(1 << 62) + 100_000).collect();
    assert_eq!(count(&dense, 0), 1);
    assert_eq!(count(&[0, 1, u64::MAX - 1, u64::MAX], 1), 1);
}

#[test]
fn ranks_beyond_the_narrow_arithmetic() {
    // Enough keys and distance that neither products nor their sums fit 64 bits.
    let keys = (0..200_000u64).map(|i| i * 92_233_720_368_547 + (i & 1));
    assert_eq!(count_segments(keys, u32::MAX), Ok(1));
    let bend = (0..100_000u64).map(|i| i << 20).chain((100_000..200_000u64).map(|i| (1 << 50) + (i << 40)));
    assert_eq!(count_segments(bend, 3), Ok(2));
}

#[test]
fn keys_that_do_not_ascend_are_refused_and_named() {
    let mut segmenter = Segmenter::new(SegmentOptions::default()).expect("valid options");
    for key in [3, 10] {
        assert_eq!(segmenter.push(key), Ok(None));
    }
    for key in [10, 9, 0] {
        let error = segmenter.push(key).expect_err("does not ascend");
        assert_eq!((error.position, error.previous, error.key), (2, 10, key));
    }
    // The refused keys left no trace, and a finished segmenter starts afresh.
    assert_eq!(segmenter.push(11), Ok(None));
    assert_eq!(segmenter.finish().map(|piece| piece.keys), Some(3));
    assert_eq!(segmenter.finish(), None);
    assert_eq!(segmenter.push(0), Ok(None));
    let error = count_segments([0, 0], 1).expect_err("does not ascend");
    assert_eq!(error.to_string().split(" (").next(), Some("key 0 at position 1 does not ascend"));
}

#[test]
fn options_out_of_range_are_refused() {
    let valid = SegmentOptions::default();
    assert_eq!(valid.validate(), Ok(()));
    let widest =
        SegmentOptions { epsilon: 65_535, fill: 1.0, max_slots: u16::MAX, ..SegmentOptions::default() };
    assert_eq!(widest.validate(), Ok(()));
    for options in [
        SegmentOptions { epsilon: 65_536, ..valid },
        SegmentOptions { fill: 0.0, ..valid },
        SegmentOptions { fill: 1.1, ..valid },
        SegmentOptions { fill: -1.0, ..valid },
        SegmentOptions { fill: f64::NAN, ..valid },
        SegmentOptions { max_slots: 0, ..valid },
        SegmentOptions { max_slots: 1, fill: 0.99, ..valid },
    ] {
        assert!(options.validate().is_err(), "{options:?}");
        assert!(Segmenter::new(options).is_err());
    }
}

/// Keys of small and of huge gaps.
fn gaps() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![4 => 1u64..4, 2 => 1u64..1_000, 1 => (0u32..58).prop_map(|bit| 1 << bit)];
    (any::<u64>(), prop::collection::vec(gap, 0..40)).prop_map(|(first, gaps)| {
        let mut keys = vec![first];
        for gap in gaps {
            keys.extend(keys[keys.len() - 1].checked_add(gap));
        }
        keys
    })
}

proptest! {
    #[test]
    fn as_few_as_brute_force(keys in gaps(), epsilon in 0u32..12) {
        let counted = count_segments(keys.iter().copied(), epsilon).expect("ascending");
        prop_assert_eq!(counted, brute_force(&keys, epsilon, usize::MAX));
    }

    #[test]
    fn as_few_as_brute_force_under_a_cap(keys in gaps(), epsilon in 0u32..12, max_slots in 1u16..20) {
        let options = SegmentOptions { epsilon, fill: 1.0, max_slots, ..SegmentOptions::default() };
        prop_assert_eq!(pieces(&keys, options).len() as u64, brute_force(&keys, epsilon, usize::from(max_slots)));
    }
}
