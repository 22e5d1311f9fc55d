//! Tables without fingerprints answer as others do, whatever plan is asked for, from slots alone.

use crate::common::keys::{Integers, LongValues, Strings, TestKeys};
use crate::common::{Fixture, GROUPS, RANGE, WAYS, Way, scattered};
use fpcache::fingerprint::WidthChoice;
use fpcache::layout::{Grouping, TableParameters};
use fpcache::plan::Plan;

fn fixture<T: TestKeys>(groups: Option<Grouping>) -> Fixture<T> {
    let parameters = TableParameters { epsilon: 16, groups, ..T::parameters(8) };
    Fixture::new(scattered(3_000), parameters.with_width(WidthChoice::None))
}

/// Looks up every key and as many others by every way, one by one and together; no plan may be one
/// that reads fingerprints.
fn all_are_found<T: TestKeys>(groups: Option<Grouping>, ways: &[Way]) {
    let f = fixture::<T>(groups);
    let asked: Vec<u64> = f.keys.iter().flat_map(|key| [*key, key ^ 1]).collect();
    for way in ways {
        let mut reader = f.reader(*way);
        for keys in asked.chunks(32) {
            let is_there = |key: &u64| f.keys.binary_search(key).is_ok();
            let expected: Vec<_> =
                keys.iter().map(|key| is_there(key).then(|| (1, f.value(*key, 1)))).collect();
            assert_eq!(reader.group(keys).unwrap(), expected, "{way:?}");
            let present: Vec<bool> = keys.iter().map(is_there).collect();
            assert_eq!(reader.contains_all(keys).unwrap(), present, "{way:?}");
            for (key, expected) in keys.iter().zip(expected) {
                let (outcome, answer) = reader.get_with_outcome(*key).unwrap();
                assert_eq!(answer, expected, "key {key}, {way:?}");
                assert!(matches!(outcome.plan, Plan::Range | Plan::Groups), "{outcome:?}, {way:?}");
                assert!(
                    groups.is_some() || outcome.cost.reads <= 1 + u32::from(outcome.cost.round_trips > 1)
                );
            }
        }
        assert_eq!(reader.scan(0, 10_000).unwrap().len(), f.keys.len());
    }
}

#[test]
fn every_key_is_found_by_every_way() {
    all_are_found::<Integers>(None, &WAYS);
    all_are_found::<Strings>(None, &WAYS);
    all_are_found::<LongValues>(None, &WAYS);
}

#[test]
fn every_key_is_found_by_groups_of_every_form() {
    for grouping in [Grouping::plain(5, 6), Grouping::seeded(6, 6), Grouping::pilots(32, 7)] {
        let ways = [GROUPS, RANGE].concat();
        all_are_found::<Integers>(Some(grouping), &ways);
        all_are_found::<Strings>(Some(grouping), &ways);
    }
}

/// A window whose record is half written is read again until it is whole; nothing else says where
/// the key is.
#[test]
fn a_key_whose_slot_is_being_written_is_not_told_absent() {
    let f = fixture::<Integers>(None);
    for way in WAYS {
        let mut reader = f.reader(way);
        for key in f.keys.iter().step_by(100) {
            let place = f.place_of(*key);
            let mut image = f.live_image(place.generation, *key, 2);
            *image.last_mut().expect("a slot has bytes") ^= 1;
            let torn = f.with(place.slot, &image, || reader.get(*key));
            assert!(!matches!(torn, Ok(None)), "{way:?}: {torn:?}");
            assert_eq!(reader.get(*key).unwrap(), Some((1, f.value(*key, 1))), "{way:?}");
        }
    }
}
