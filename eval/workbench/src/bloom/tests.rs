use proptest::prelude::*;

use super::*;
use crate::segments::misses_nothing;

proptest! {
    #[test]
    fn nothing_that_was_added_is_missed(
        items in prop::collection::vec(any::<u64>(), 0..500),
        room in 0usize..400,
        bits in 0.0f64..40.0,
    ) {
        let mut filter = Bloom::new(room, bits);
        misses_nothing(&mut filter, &items);
    }
}

#[test]
fn as_many_others_pass_as_its_bits_let() {
    const KEYS: u64 = 100_000;
    for (bits, hashes) in [(4.0, 3), (9.6, 7), (16.0, 11)] {
        let mut filter = Bloom::new(KEYS as usize, bits);
        (0..KEYS).for_each(|key| filter.add(scatter(key)));
        let passed = (KEYS..11 * KEYS).filter(|key| filter.contains(scatter(*key))).count() as f64;
        let share = (1.0 - (-f64::from(hashes) / bits).exp()).powi(hashes);
        assert!((passed / (10 * KEYS) as f64 / share - 1.0).abs() < 0.1, "{bits} bits: {passed}");
        assert_eq!(filter.bytes(), (bits * KEYS as f64 / 64.0).ceil() as u64 * 8);
    }
}
