//! Segments of keys are cut as their coordinates say.

use super::*;
use proptest::prelude::*;

fn encoders() -> [KeyEncoders; 2] {
    let sample: Vec<Vec<u8>> = (0..500u32).map(|i| format!("{:07}", i * 7919).into_bytes()).collect();
    [KeyEncoders::default(), ByteKeys::train(sample.iter().map(Vec::as_slice), 0)]
}

#[test]
fn a_range_without_keys_ends_above_its_beginning_and_not_above_the_first_key_after() {
    for encoders in encoders() {
        let between = |below, next, x| {
            let tail = ByteTail { skip: 2, encoder: 0 };
            let between = BoundaryRequest::<ByteKeys> {
                x,
                below,
                next,
                end: None,
                wanted: Boundary::AtCoordinate,
                tail,
            };
            ByteKeys::boundary(&between, &encoders)
        };
        // The shortest beginning of the key after that has the shared bytes would lie below the
        // range.
        let x = encoders.get(0).expect("one").code(b"ab5000000", 2);
        let boundary = between(b"ab37", Some(b"ab7000000"), x).expect("much lies between");
        assert!(
            boundary.as_slice() > b"ab37" && boundary.as_slice() <= b"ab7000000",
            "{}",
            boundary.escape_ascii()
        );
        assert!(encoders.get(0).expect("one").code(&boundary, 2) <= x);
        assert_eq!(between(b"ab37", Some(b"ab37"), x), None, "nothing lies between");
    }
}

proptest! {
    #[test]
    fn boundaries_lie_between_and_have_what_is_skipped(
        mut keys in prop::collection::btree_set(prop::collection::vec(prop::sample::select(&b"\0\x01059z\xff"[..]), 0..9), 2),
        prefix in prop::collection::vec(any::<u8>(), 0..4),
        x in prop_oneof![0..=KeyEncoder::MAX_CODE, any::<u64>()],
        which in 0..2usize,
        has_next: bool,
        wanted in prop::sample::select(&[Boundary::Anywhere, Boundary::RightAfter, Boundary::AtCoordinate][..]),
    ) {
        let with = |key: Vec<u8>| [prefix.as_slice(), &key].concat();
        let below = with(keys.pop_first().expect("two"));
        let bound = with(keys.pop_first().expect("two"));
        let (next, end) = if has_next { (Some(bound.as_slice()), None) } else { (None, Some(bound.as_slice())) };
        if next.is_none() && wanted != Boundary::AtCoordinate {
            return Ok(());
        }
        let tail = ByteTail { skip: prefix.len() as u16, encoder: 0 };
        let between = BoundaryRequest::<ByteKeys> { x, below: &below, next, end, wanted, tail };
        match ByteKeys::boundary(&between, &encoders()[which]) {
            Some(boundary) => {
                prop_assert!(boundary > below && boundary.starts_with(&prefix));
                prop_assert!(boundary < bound || (has_next && boundary == bound));
            }
            None => prop_assert!(!has_next, "keys are always parted"),
        }
    }
}
