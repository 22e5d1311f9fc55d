//! First rebuilds: how soon the first inserts have a loaded table's segments replaced, by how these
//! were cut and placed: a simulation of windows alone. `docs/nic-model.md` quotes it:
//! `cargo test -p fpcache-memserver --test node first_rebuilds -- --nocapture`.

use crate::common::{mix, scattered};
use fpcache_index::{Piece, SegmentModel, SegmentOptions, Segmenter};
use fpcache_memserver::rebuild::choose::{choose_slot, is_nearly_full};

const KEYS: u64 = 100_000;
const EPSILON: u32 = 16;

/// A loaded segment, of whose model only the windows matter.
struct Loaded {
    first: u64,
    model: SegmentModel,
    is_taken: Vec<bool>,
    is_due: bool,
}

fn load(keys: &[u64], cut: u32, options: &SegmentOptions) -> Vec<Loaded> {
    let mut segmenter = Segmenter::new(SegmentOptions { epsilon: cut, ..*options }).unwrap();
    let mut pieces: Vec<Piece> = keys.iter().filter_map(|key| segmenter.push(*key).unwrap()).collect();
    pieces.extend(segmenter.finish());
    let (mut all, mut rest) = (Vec::new(), keys);
    for placed in pieces.iter().flat_map(|piece| {
        let (own, after) = rest.split_at(piece.keys);
        rest = after;
        piece.place(own, options).into_iter().scan(own, |own, placed| {
            let first = own[0];
            *own = &own[placed.keys..];
            Some((first, placed))
        })
    }) {
        let (first, placed) = placed;
        let mut is_taken = vec![false; usize::from(placed.model.cap)];
        placed.slots.iter().for_each(|slot| is_taken[usize::from(*slot)] = true);
        all.push(Loaded { first, model: placed.model, is_taken, is_due: false });
    }
    all
}

/// The share of segments, by slots, that are due to be replaced after `inserts` inserts at random.
fn due_after(inserts: u64, keys: &[u64], cut: u32, options: &SegmentOptions) -> f64 {
    let mut segments = load(keys, cut, options);
    for key in (1..=inserts).map(|i| mix(KEYS + i)) {
        let at = segments.partition_point(|segment| segment.first <= key).max(1) - 1;
        let Loaded { model, is_taken, is_due, .. } = &mut segments[at];
        let window = model.window(key);
        let free: Vec<u32> = (window.first..=window.last).filter(|slot| !is_taken[*slot as usize]).collect();
        if let Some(slot) = choose_slot(&free, model.predict(key), window) {
            is_taken[slot as usize] = true;
        }
        *is_due |= is_nearly_full(free.len().saturating_sub(1), window);
    }
    let slots = |only_due: bool| -> usize {
        segments.iter().filter(|one| one.is_due || !only_due).map(|one| one.is_taken.len()).sum()
    };
    slots(true) as f64 / slots(false) as f64
}

#[test]
fn loaded_windows_fill_up_with_the_first_inserts_unless_they_are_wide_and_keys_spread_in_them() {
    let keys = scattered(KEYS);
    let tight = SegmentOptions { epsilon: EPSILON, max_slots: 2_048, ..SegmentOptions::default() };
    let wide = SegmentOptions { least_epsilon: EPSILON, ..tight };
    let spread = SegmentOptions { spread: true, ..wide };
    let due = |cut, options| due_after(KEYS / 100, &keys, cut, options);
    let shares = [
        due(EPSILON, &tight),
        due(EPSILON, &wide),
        due(EPSILON, &spread),
        due(13, &spread),
        due(10, &spread),
    ];
    println!("due after a hundredth: as loaded, wide, spread, and cut at 13 and at 10 of 16: {shares:.3?}");
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
    assert!(shares[0] > 0.9 && shares[4] < 0.1, "{shares:?}");
}
