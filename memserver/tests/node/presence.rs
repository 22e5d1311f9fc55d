//! Whether keys are there is told without their values, wherever these lie, by every plan.

use crate::common::keys::{LongValues, TestKeys};
use crate::common::{Fixture, GROUPS, Reader, WAYS, Way, scattered};
use fpcache::layout::{Grouping, TableParameters};

/// Asks for every key and as many others, one by one and in groups, where memory is mapped and in
/// batches. Twice: tables of groups are there for the second time.
fn told_of_all<T: TestKeys>(f: &Fixture<T>, reader: &mut Reader<T>) {
    let asked: Vec<u64> = f.keys.iter().flat_map(|key| [*key, key ^ 1]).collect();
    let is_there: Vec<bool> = asked.iter().map(|key| f.keys.binary_search(key).is_ok()).collect();
    for _ in 0..2 {
        for (keys, expected) in asked.chunks(32).zip(is_there.chunks(32)) {
            for (key, expected) in keys.iter().zip(expected) {
                assert_eq!(reader.contains(*key).unwrap(), *expected, "key {key}");
            }
            assert_eq!(reader.contains_all(keys).unwrap(), expected);
            assert_eq!(reader.contains_in_batches(keys).unwrap(), expected);
        }
    }
}

#[test]
fn keys_with_external_values_are_told_of_by_every_plan() {
    let f = Fixture::<LongValues>::new(scattered(3_000), LongValues::parameters(8));
    for way in WAYS {
        told_of_all(&f, &mut f.reader(way));
    }
}

/// Lookups in mapped memory went on for ever at the first such key in its group, and batches took
/// it again from what they brought for others.
#[test]
fn keys_with_external_values_are_told_of_by_groups_of_every_form() {
    for grouping in [Grouping::plain(5, 6), Grouping::seeded(6, 6), Grouping::pilots(32, 7)] {
        let parameters = TableParameters { groups: Some(grouping), ..LongValues::parameters(8) };
        let f = Fixture::<LongValues>::new(scattered(3_000), parameters);
        let way: Way = GROUPS[0];
        told_of_all(&f, &mut f.reader(way));
    }
}
