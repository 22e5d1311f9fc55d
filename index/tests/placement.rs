//! Placed segments hold every key in its window, with the least possible ε.

mod common;

use common::has_placement;
use fpcache_index::{PlacedSegment, SegmentModel, SegmentOptions, Segmenter, count_segments};
use proptest::prelude::*;

fn place(xs: &[u64], options: &SegmentOptions) -> (usize, Vec<PlacedSegment>) {
    let mut segmenter = Segmenter::new(*options).expect("valid options");
    let mut pieces: Vec<_> = xs.iter().filter_map(|&x| segmenter.push(x).expect("ascending")).collect();
    pieces.extend(segmenter.finish());
    let (mut first, mut placed) = (0, Vec::new());
    for piece in &pieces {
        placed.extend(piece.place(&xs[first..first + piece.keys], options));
        first += piece.keys;
    }
    (pieces.len(), placed)
}

fn windows(model: SegmentModel, xs: &[u64]) -> impl Iterator<Item = (u32, u32)> {
    xs.iter().map(move |&x| (model.window(x).first, model.window(x).last))
}

/// Checks one placed segment against its keys, in every way a reader relies on.
fn check(segment: &PlacedSegment, xs: &[u64], options: &SegmentOptions) {
    let model = segment.model;
    assert_eq!(model.origin, xs[0]);
    assert_eq!((segment.keys, segment.slots.len()), (xs.len(), xs.len()));
    assert!(usize::from(model.cap) >= xs.len() && model.cap <= options.max_slots);
    assert_eq!(u32::from(model.cap), (xs.len() as f64 / options.fill).ceil() as u32);
    assert!(u32::from(model.epsilon) <= options.epsilon);
    let mut slots = segment.slots.clone();
    slots.sort_unstable();
    assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "slots are distinct");
    for (&x, &slot) in xs.iter().zip(&segment.slots) {
        assert!(slot < model.cap && model.window(x).contains(u32::from(slot)));
    }
    assert!(xs.windows(2).all(|pair| model.predict(pair[0]) <= model.predict(pair[1])), "monotone");
    if model.epsilon > 0 {
        let tighter = SegmentModel { epsilon: model.epsilon - 1, ..model };
        assert!(!has_placement(windows(tighter, xs)), "the stored error is not the true one");
    }
}

fn check_all(name: &str, xs: &[u64], options: &SegmentOptions) -> Vec<PlacedSegment> {
    let (pieces, placed) = place(xs, options);
    assert_eq!(placed.len(), pieces, "{name} {options:?}: quantisation split a piece");
    let mut first = 0;
    for segment in &placed {
        check(segment, &xs[first..first + segment.keys], options);
        first += segment.keys;
    }
    assert_eq!(first, xs.len());
    placed
}

#[test]
fn every_key_lies_in_its_window() {
    for (name, keys) in common::adversarial() {
        for fill in [0.5, 0.7, 0.85, 0.999, 1.0] {
            for epsilon in [0, 1, 2, 7, 32, 64, 300] {
                check_all(
                    name,
                    &keys,
                    &SegmentOptions { epsilon, fill, max_slots: 4096, ..SegmentOptions::default() },
                );
            }
        }
    }
}

#[test]
fn unusual_options() {
    for (name, keys) in common::adversarial() {
        for (epsilon, fill, max_slots) in
            [(65_535, 1.0, 65_535), (32, 0.01, 65_535), (3, 1.0, 1), (16, 0.3, 4), (1_000, 0.6, 65_535)]
        {
            check_all(name, &keys, &SegmentOptions { epsilon, fill, max_slots, ..SegmentOptions::default() });
        }
    }
}

#[test]
fn sequential_keys_need_no_search() {
    for stride in [1, 2, 7, 1_000, 1 << 50] {
        let keys: Vec<u64> = (0..10_000).map(|i| i * stride).collect();
        for fill in [0.5, 0.85, 1.0] {
            let options = SegmentOptions { epsilon: 64, fill, max_slots: 4096, ..SegmentOptions::default() };
            for segment in check_all("sequential", &keys, &options) {
                assert_eq!(segment.model.epsilon, 0, "stride {stride} fill {fill}");
            }
        }
    }
}

#[test]
fn segments_are_as_long_as_in_ranks_at_every_fill() {
    let keys = common::fb_like(15, 3);
    for epsilon in [8, 64] {
        let least = count_segments(keys.iter().copied(), epsilon).expect("ascending");
        for fill in [0.5, 0.85, 1.0] {
            let options = SegmentOptions { epsilon, fill, max_slots: u16::MAX, ..SegmentOptions::default() };
            assert_eq!(check_all("fb-like", &keys, &options).len() as u64, least);
        }
    }
}

#[test]
fn keys_sit_near_their_predictions_where_slots_are_free() {
    let keys = common::fb_like(13, 5);
    let options = SegmentOptions { epsilon: 64, fill: 0.7, max_slots: 4096, ..SegmentOptions::default() };
    let (mut chosen, mut leftmost, mut first) = (0, 0, 0);
    for segment in check_all("fb-like", &keys, &options) {
        let mut next = 0;
        for (&x, &slot) in keys[first..].iter().zip(&segment.slots) {
            let (predicted, window) = (segment.model.predict(x), segment.model.window(x));
            chosen += predicted.abs_diff(u32::from(slot));
            let packed = window.first.max(next);
            next = packed + 1;
            leftmost += predicted.abs_diff(packed);
        }
        first += segment.keys;
    }
    assert!(chosen * 10 < leftmost * 9, "{chosen} against {leftmost} packed to the left");
}

#[test]
fn keys_that_are_not_the_pieces_still_get_valid_segments() {
    let options = SegmentOptions { epsilon: 4, fill: 0.8, max_slots: 100, ..SegmentOptions::default() };
    let mut segmenter = Segmenter::new(options).expect("valid options");
    for key in 0..50 {
        assert_eq!(segmenter.push(key), Ok(None));
    }
    let piece = segmenter.finish().expect("a piece");
    assert_eq!(piece.place(&[], &options), []);
    for (_, keys) in common::adversarial() {
        let mut first = 0;
        for segment in piece.place(&keys, &options) {
            check(&segment, &keys[first..first + segment.keys], &options);
            first += segment.keys;
        }
        assert_eq!(first, keys.len());
    }
    for keys in [[9, 3, 7, 7, 1], [u64::MAX, 0, u64::MAX, 0, 5]] {
        let placed = piece.place(&keys, &options);
        assert_eq!(placed.iter().map(|segment| segment.keys).sum::<usize>(), 5);
    }
    let invalid =
        SegmentOptions { epsilon: u32::MAX, fill: f64::NAN, max_slots: 0, ..SegmentOptions::default() };
    let placed = piece.place(&[1, 2, 3], &invalid);
    assert_eq!(placed.iter().map(|segment| segment.keys).sum::<usize>(), 3);
}

fn keys() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![6 => 1u64..3, 3 => 1u64..5_000, 1 => (0u32..60).prop_map(|bit| 1 << bit)];
    (any::<u64>(), 0u32..64, prop::collection::vec(gap, 0..400)).prop_map(|(first, shift, gaps)| {
        let mut keys = vec![first >> shift];
        for gap in gaps {
            keys.extend(keys[keys.len() - 1].checked_add(gap));
        }
        keys
    })
}

proptest! {
    #[test]
    fn any_keys_any_options(
        keys in keys(), epsilon in 0u32..301, fill in 0.5f64..=1.0, max_slots in 2u16..600,
    ) {
        check_all("random", &keys, &SegmentOptions { epsilon, fill, max_slots, ..SegmentOptions::default() });
    }

    #[test]
    fn predictions_never_decrease(keys in keys(), epsilon in 0u32..65, probes in prop::collection::vec(any::<u64>(), 2)) {
        for segment in place(&keys, &SegmentOptions { epsilon, ..SegmentOptions::default() }).1 {
            let near = probes.iter().map(|probe| segment.model.origin.saturating_add(probe >> 50));
            let mut probes: Vec<u64> = probes.iter().copied().chain(near).collect();
            probes.sort_unstable();
            prop_assert!(probes.windows(2).all(|pair| segment.model.predict(pair[0]) <= segment.model.predict(pair[1])));
            for probe in probes {
                let window = segment.model.window(probe);
                prop_assert!(window.first <= window.last && window.last < u32::from(segment.model.cap));
                prop_assert!(window.contains(segment.model.predict(probe)));
                prop_assert!(window.len() <= 2 * u32::from(segment.model.epsilon) + 1);
            }
        }
    }
}

/// Keys spread evenly at random over all of `u64`.
fn uniform(count: usize) -> Vec<u64> {
    let step =
        |x: &u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let mut keys: Vec<u64> = std::iter::successors(Some(7u64), step).take(count).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Share of keys in the slot their prediction names, and in that one or one beside it.
fn shares_at_home(xs: &[u64], options: &SegmentOptions) -> (f64, f64) {
    let (mut first, mut home, mut near) = (0, 0, 0);
    for segment in place(xs, options).1 {
        for (x, slot) in xs[first..].iter().zip(&segment.slots) {
            let distance = segment.model.predict(*x).abs_diff(u32::from(*slot));
            home += usize::from(distance == 0);
            near += usize::from(distance <= 1);
        }
        first += segment.keys;
    }
    (home as f64 / xs.len() as f64, near as f64 / xs.len() as f64)
}

#[test]
fn many_keys_are_in_or_beside_their_predicted_slot() {
    let options = SegmentOptions::default();
    for (name, keys, least_home, least_near) in
        [("uniform", uniform(50_000), 0.45, 0.55), ("fb", common::fb_like(15, 7), 0.15, 0.18)]
    {
        let (home, near) = shares_at_home(&keys, &options);
        assert!(
            home > least_home && near > least_near,
            "{name}: {home:.3} at home, {near:.3} at most one off"
        );
    }
}

#[test]
fn a_least_epsilon_widens_windows_up_to_the_options_own() {
    for (_, keys) in common::adversarial() {
        let narrow = SegmentOptions::default();
        let wide = SegmentOptions { least_epsilon: 20, ..narrow };
        let (pieces, segments) = (place(&keys, &narrow).1, place(&keys, &wide).1);
        assert_eq!(pieces.len(), segments.len());
        for (true_one, widened) in pieces.iter().zip(&segments) {
            assert_eq!(widened.model.epsilon, true_one.model.epsilon.max(20));
        }
        let least = SegmentOptions { epsilon: 8, least_epsilon: 20, ..narrow };
        assert!(place(&keys, &least).1.iter().all(|segment| segment.model.epsilon == 8));
    }
}

#[test]
fn spread_keys_lie_in_their_windows() {
    for (name, keys) in common::adversarial() {
        let mut first = 0;
        let options = SegmentOptions { spread: true, ..SegmentOptions::default() };
        for segment in check_all(name, &keys, &options) {
            first += segment.keys;
        }
        assert_eq!(first, keys.len());
    }
}
