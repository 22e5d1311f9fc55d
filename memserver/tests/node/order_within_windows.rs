//! Records may lie in any order as long as each lies in its window, as inserts will leave them:
//! lookups find them and scans list them in key order.

use crate::common::keys::TestKeys;
use crate::common::{Fixture, WAYS, scattered};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::{SEGMENT_HEADER_BYTES, TableParameters};
use fpcache::models::Segment;
use fpcache_index::Window;
use proptest::prelude::*;
use proptest::test_runner::TestRng;

/// A slot with its fingerprint, and the window of the record in it, if there is one.
#[derive(Clone)]
struct Cell {
    fingerprint: Vec<u8>,
    slot: Vec<u8>,
    window: Option<Window>,
}

impl Cell {
    fn may_lie_at(&self, index: usize) -> bool {
        self.window.is_none_or(|window| window.contains(index as u32))
    }
}

/// Exchanges slots of a segment at random, wherever both records stay in their windows; returns how
/// many records moved.
fn shuffle<T: TestKeys>(f: &Fixture<T>, segment: &Segment<T::Space>, rng: &mut TestRng) -> usize {
    let (geometry, model, start) = (f.geometry(), segment.model(), segment.address().offset());
    let width = geometry.width.bytes();
    let cap = usize::from(model.cap);
    let fingerprint_at = |i: usize| start + (SEGMENT_HEADER_BYTES + i * width) as u64;
    let slot_at = |i: usize| start + geometry.slot_offset(model.cap, i as u32) as u64;
    let cell = |i: usize| {
        let slot = f.bytes(slot_at(i), geometry.slot_bytes);
        let window = (slot[0] & 3 == 2).then(|| f.window_of(f.key_in(&slot).unwrap()).1);
        Cell { fingerprint: f.bytes(fingerprint_at(i), width), slot, window }
    };
    let mut cells: Vec<Cell> = (0..cap).map(cell).collect();
    let reach = 2 * usize::from(model.epsilon) + 1;
    for _ in 0..20 * cap {
        let a = rng.random_range(0..cap);
        let b = (a + rng.random_range(0..=reach)).min(cap - 1);
        if cells[a].may_lie_at(b) && cells[b].may_lie_at(a) {
            cells.swap(a, b);
        }
    }
    let mut moved = 0;
    for (i, cell) in cells.iter().enumerate() {
        moved += usize::from(cell.window.is_some() && f.bytes(slot_at(i), cell.slot.len()) != cell.slot);
        f.put(fingerprint_at(i), &cell.fingerprint);
        f.put(slot_at(i), &cell.slot);
    }
    moved
}

fn nothing_depends_on_it<T: TestKeys>() {
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    let rng = any::<()>().prop_perturb(|(), rng| rng);
    let widths = prop::sample::select(&FingerprintWidth::ALL[..]);
    proptest!(config, |(mut rng in rng, epsilon in 4..60u32, fill in 0.5..1.0, width in widths, max_slots in 64..600u16)| {
        let parameters = TableParameters { width, epsilon, fill, max_slots, ..T::parameters(8) };
        check::<T>(parameters, &mut rng)?;
    });
}

fn check<T: TestKeys>(parameters: TableParameters, rng: &mut TestRng) -> Result<(), TestCaseError> {
    let f = Fixture::<T>::new(scattered(700), parameters);
    let view = f.open().unwrap();
    let segments = view.models().resident().unwrap();
    let moved: usize = segments.iter().map(|(_, segment)| shuffle(&f, segment, rng)).sum();
    prop_assert!(moved > 350, "only {moved} records moved");
    for way in WAYS {
        let mut reader = f.reader(way);
        for key in &f.keys {
            prop_assert_eq!(reader.get(*key).unwrap(), Some((1, f.value(*key, 1))));
            prop_assert_eq!(reader.get(key ^ 1).unwrap(), None);
        }
    }
    let mut reader = f.reader(WAYS[0]);
    for limit in [1, 2, 7, 60, 700, usize::MAX] {
        for first in (0..f.keys.len()).step_by(43) {
            let scanned = reader.scan(f.keys[first] - 1, limit).unwrap();
            let expected = f.keys[first..].iter().take(limit).map(|key| (*key, f.value(*key, 1)));
            prop_assert!(scanned.into_iter().eq(expected), "from the {first}-th key, at most {limit}");
        }
    }
    Ok(())
}

for_all_keys!(nothing_depends_on_it);
