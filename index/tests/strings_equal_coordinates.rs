//! Coordinates that do not tell all keys apart are cut into as few pieces as any method could, and
//! placed.

mod common;

use fpcache_index::{PlacedSegment, SegmentOptions, Segmenter};
use proptest::prelude::*;

/// Whether a line of slope >= 0 predicts the ranks of `xs` within ε, by every pair of keys (Helly's
/// theorem for strips of slopes). Keys at one coordinate ask that no more than 2ε lie between them.
/// O(n^2).
fn one_line_serves(xs: &[u64], epsilon: i128) -> bool {
    let (mut low, mut high) = ((0i128, 1i128), None::<(i128, i128)>);
    for i in 0..xs.len() {
        for j in i + 1..xs.len() {
            let (run, rise) = (i128::from(xs[j] - xs[i]), (j - i) as i128);
            if run == 0 {
                if rise > 2 * epsilon {
                    return false;
                }
                continue;
            }
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

fn fewest(xs: &[u64], epsilon: u32, max_keys: usize) -> usize {
    let mut least = vec![0; xs.len() + 1];
    for end in 1..=xs.len() {
        least[end] = (end.saturating_sub(max_keys)..end)
            .filter(|&start| one_line_serves(&xs[start..end], i128::from(epsilon)))
            .map(|start| least[start] + 1)
            .min()
            .expect("a single key has a line");
    }
    least[xs.len()]
}

fn place(xs: &[u64], options: &SegmentOptions) -> (usize, Vec<PlacedSegment>) {
    let mut segmenter = Segmenter::new(*options).expect("valid options");
    let mut pieces: Vec<_> =
        xs.iter().filter_map(|&x| segmenter.push_or_equal(x).expect("not below")).collect();
    pieces.extend(segmenter.finish());
    let (mut first, mut placed) = (0, Vec::new());
    for piece in &pieces {
        assert_eq!(piece.first, xs[first]);
        placed.extend(piece.place(&xs[first..first + piece.keys], options));
        first += piece.keys;
    }
    assert_eq!(first, xs.len());
    (pieces.len(), placed)
}

fn check(xs: &[u64], options: &SegmentOptions) -> usize {
    let (pieces, placed) = place(xs, options);
    assert_eq!(placed.len(), pieces, "quantisation split a piece");
    let mut first = 0;
    for segment in &placed {
        let mut slots = segment.slots.clone();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "slots are distinct");
        assert!(u32::from(segment.model.epsilon) <= options.epsilon);
        for (x, slot) in xs[first..first + segment.keys].iter().zip(&segment.slots) {
            assert!(*slot < segment.model.cap && segment.model.window(*x).contains(u32::from(*slot)));
        }
        first += segment.keys;
    }
    assert_eq!(first, xs.len());
    pieces
}

#[test]
fn a_window_of_equal_coordinates_fits_a_piece() {
    for epsilon in [0, 1, 7, 32] {
        let options = SegmentOptions { epsilon, ..SegmentOptions::default() };
        let most = 2 * epsilon as usize + 1;
        for x in [0, 5, u64::MAX] {
            assert_eq!(check(&vec![x; most], &options), 1);
            assert_eq!(check(&vec![x; most + 1], &options), 2);
            assert_eq!(check(&vec![x; 3 * most], &options), 3);
        }
    }
}

#[test]
fn lower_coordinates_are_refused_and_equal_ones_where_not_asked_for() {
    let mut segmenter = Segmenter::new(SegmentOptions::default()).expect("valid options");
    assert_eq!(segmenter.push_or_equal(0), Ok(None));
    assert_eq!(segmenter.push_or_equal(0), Ok(None));
    assert!(segmenter.push(0).is_err());
    assert_eq!(segmenter.push_or_equal(7), Ok(None));
    let refused = segmenter.push_or_equal(6).expect_err("below");
    assert_eq!((refused.position, refused.previous, refused.key), (3, 7, 6));
    assert_eq!(segmenter.finish().map(|piece| piece.keys), Some(3));
    assert_eq!(segmenter.push_or_equal(3), Ok(None), "a new stream");
}

fn steps() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![6 => Just(0u64), 4 => 1u64..4, 3 => 1u64..3_000, 1 => (0u32..60).prop_map(|bit| 1 << bit)];
    (any::<u64>(), 0u32..64, prop::collection::vec(gap, 0..60)).prop_map(|(first, shift, gaps)| {
        let mut xs = vec![first >> shift];
        for gap in gaps {
            xs.extend(xs[xs.len() - 1].checked_add(gap));
        }
        xs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pieces_are_the_fewest(xs in steps(), epsilon in 0u32..12, max_slots in prop_oneof![Just(4096u16), 3u16..40], spread: bool) {
        let options = SegmentOptions { epsilon, max_slots, spread, ..SegmentOptions::default() };
        prop_assert_eq!(check(&xs, &options), fewest(&xs, epsilon, options.max_keys()));
    }

    #[test]
    fn strictly_ascending_coordinates_are_cut_alike(xs in steps(), epsilon in 0u32..12) {
        let mut xs = xs;
        xs.dedup();
        let mut segmenter = Segmenter::new(SegmentOptions { epsilon, ..SegmentOptions::default() }).expect("valid options");
        let mut other = segmenter.clone();
        for x in xs {
            prop_assert_eq!(segmenter.push(x), other.push_or_equal(x));
        }
        prop_assert_eq!(segmenter.finish(), other.finish());
    }
}
