use proptest::prelude::*;

use super::*;
use crate::scatter;
use crate::segments::misses_nothing;

proptest! {
    /// Also beyond its room, where tables are added, and with so few bits that most fingerprints
    /// are the same.
    #[test]
    fn nothing_that_was_added_is_missed(
        items in prop::collection::vec(any::<u64>(), 0..500),
        room in 0usize..400,
        bits in 0.0f64..40.0,
    ) {
        let items: Vec<u64> = items.into_iter().map(scatter).collect();
        let mut filter = Cuckoo::new(room, bits);
        misses_nothing(&mut filter, &items);
    }

    #[test]
    fn what_is_there_takes_no_place_again(items in prop::collection::vec(any::<u64>(), 1..50)) {
        let mut filter = Cuckoo::new(items.len(), 12.0);
        items.iter().for_each(|item| filter.add(*item));
        let before = format!("{filter:?}");
        for _ in 0..20 {
            items.iter().for_each(|item| filter.add(*item));
        }
        prop_assert_eq!(format!("{filter:?}"), before);
    }
}

#[test]
fn as_many_others_pass_as_its_bits_let() {
    const KEYS: u64 = 100_000;
    for (bits_per_key, bits) in [(6.0, 5), (12.0, 11), (18.0, 17)] {
        let mut filter = Cuckoo::new(KEYS as usize, bits_per_key);
        (0..KEYS).for_each(|key| filter.add(scatter(key)));
        assert_eq!(filter.tables.len(), 1, "{bits_per_key} bits");
        assert!((filter.bytes() as f64 * 8.0 / (bits_per_key * KEYS as f64) - 1.0).abs() < 0.001);
        let passed = (KEYS..41 * KEYS).filter(|key| filter.contains(scatter(*key))).count() as f64;
        let places = 8.0 * f64::from(bits) / bits_per_key;
        let share = 1.0 - (1.0 - 1.0 / (f64::from(2u32.pow(bits)) - 1.0)).powf(places);
        let near = if bits < 17 { 0.1 } else { 0.3 };
        assert!((passed / (40 * KEYS) as f64 / share - 1.0).abs() < near, "{bits_per_key} bits: {passed}");
    }
}
