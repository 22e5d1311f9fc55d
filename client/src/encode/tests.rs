//! Encodings sort like the values they encode, and decode to them.

use std::cmp::Ordering;
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// The order of the values is that of their encodings, each leads back to its value, and neither is
/// cut short or lengthened unnoticed.
fn check<T: DecodeKey + Debug>(a: &T, b: &T, order: Ordering) -> Result<(), TestCaseError> {
    let (x, y) = (encode(a), encode(b));
    prop_assert_eq!(x.cmp(&y), order, "{:?} is {:02x?}, {:?} is {:02x?}", a, x, b, y);
    for (value, bytes) in [(a, &x), (b, &y)] {
        let back = decode::<T>(bytes).map(|back| (encode(&back), format!("{back:?}")));
        prop_assert_eq!(back, Some((bytes.clone(), format!("{value:?}"))));
        prop_assert!(decode::<T>(&bytes[..bytes.len() - 1]).is_none(), "{:?} cut short", value);
        prop_assert!(decode::<T>(&[&bytes[..], &[0]].concat()).is_none(), "{:?} and another byte", value);
        if order != Ordering::Equal {
            prop_assert!(!x.starts_with(&y) && !y.starts_with(&x), "parts can follow each other");
        }
    }
    Ok(())
}

fn ordered<T: DecodeKey + Ord + Debug>(a: &T, b: &T) -> Result<(), TestCaseError> {
    check(a, b, a.cmp(b))
}

/// Pairs of anything, often of neighbours.
macro_rules! integers {
    ($($name:ident: $type:ty;)*) => {
        proptest! {$(
            #[test]
            fn $name(a: $type, b: $type, near in 0..3u8) {
                ordered(&a, &b)?;
                ordered(&a, &a.wrapping_add(near as $type))?;
                for edge in [<$type>::MIN, 0, 1, <$type>::MAX] {
                    ordered(&a, &edge)?;
                }
            }
        )*}
    };
}

integers! {
    u8_sorts: u8;
    u16_sorts: u16;
    u32_sorts: u32;
    u64_sorts: u64;
    u128_sorts: u128;
    i8_sorts: i8;
    i16_sorts: i16;
    i32_sorts: i32;
    i64_sorts: i64;
    i128_sorts: i128;
}

/// Bytes and texts of few letters: prefixes of each other, and zeros, are common.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0), Just(1), Just(255), Just(b'a')], 0..6)
}

fn text() -> impl Strategy<Value = String> {
    vec(prop_oneof![Just('\0'), Just('a'), Just('b'), Just('ü'), Just('\u{10ffff}')], 0..6)
        .prop_map(|letters| letters.into_iter().collect())
}

type Key = (Vec<u8>, Option<i16>, String, u8, bool, (char, Option<Vec<u8>>));

fn key() -> impl Strategy<Value = Key> {
    let any_char = prop_oneof![any::<char>(), Just('a')];
    (bytes(), option::of(-1..2i16), text(), 0..2u8, any::<bool>(), (any_char, option::of(bytes())))
}

proptest! {
    #[test]
    fn floats_sort_in_their_total_order(a: u64, b: u64) {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        check(&x, &y, x.total_cmp(&y))?;
        let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        check(&x, &y, x.total_cmp(&y))?;
        for edge in [f64::NEG_INFINITY, -1.0, -0.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::INFINITY, f64::NAN, -f64::NAN] {
            let x = f64::from_bits(a);
            check(&x, &edge, x.total_cmp(&edge))?;
        }
    }

    #[test]
    fn strings_sort_with_prefixes_first_whatever_follows(a in bytes(), b in bytes(), next: (u8, u8)) {
        ordered(&a, &b)?;
        ordered(&(a.clone(), next.0), &(b.clone(), next.1))?;
        ordered(&(a.clone(), next.0), &(a, next.1))?;
        let both = ([b.clone(), vec![0]].concat(), b);
        ordered(&both.0, &both.1)?;
    }

    #[test]
    fn texts_and_characters_sort(a in text(), b in text(), c: char, d: char) {
        ordered(&a, &b)?;
        ordered(&c, &d)?;
    }

    #[test]
    fn tuples_sort_by_the_first_part_that_differs(a in key(), b in key()) {
        ordered(&a, &b)?;
        ordered(&(a.0.clone(), b.1), &(a.0, a.1))?;
    }

    #[test]
    fn arrays_and_flags_sort(a: [u8; 3], b: [u8; 3], flags: (bool, bool)) {
        ordered(&a, &b)?;
        ordered(&flags.0, &flags.1)?;
        ordered(&flags.0.then_some(a), &flags.1.then_some(b))?;
    }

    #[test]
    fn the_first_parts_are_a_prefix_of_the_whole(key in key()) {
        let whole = encode(&key);
        prop_assert!(whole.starts_with(&encode(&key.0)));
        prop_assert!(whole.starts_with(&encode(&(&key.0, key.1, &key.2))));
    }

    #[test]
    fn bytes_that_encode_nothing_are_refused_and_never_panic(bytes in vec(0..4u8, 0..40)) {
        if let Some(key) = decode::<Key>(&bytes) {
            prop_assert_eq!(&encode(&key), &bytes, "one encoding for each");
        }
        if let Some(text) = decode::<String>(&bytes) {
            prop_assert_eq!(encode(text.as_str()), bytes);
        }
    }
}

#[test]
fn the_bytes_are_those_that_lie_in_tables() {
    let golden: [(Vec<u8>, &[u8]); 20] = [
        (encode(&0x01u8), &[1]),
        (encode(&0x0102u16), &[1, 2]),
        (encode(&0x0102_0304u32), &[1, 2, 3, 4]),
        (encode(&u64::MAX), &[255; 8]),
        (encode(&1u128), &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        (encode(&-1i8), &[0x7f]),
        (encode(&0i16), &[0x80, 0]),
        (encode(&i32::MIN), &[0; 4]),
        (encode(&-2i64), &[0x7f, 255, 255, 255, 255, 255, 255, 0xfe]),
        (encode(&i128::MAX), &[255; 16]),
        (encode(&true), &[1]),
        (encode(&'é'), &[0, 0, 0, 0xe9]),
        (encode(&1.0f32), &[0xbf, 0x80, 0, 0]),
        (encode(&-1.0f64), &[0x40, 0x0f, 255, 255, 255, 255, 255, 255]),
        (encode(&-0.0f32), &[0x7f, 255, 255, 255]),
        (encode("a\0b"), b"a\x00\x01b\x00\x00"),
        (encode(&b""[..]), &[0, 0]),
        (encode(&[0u8, 1]), &[0, 1]),
        (encode(&(None::<u8>, Some(7u8))), &[0, 1, 7]),
        (encode(&(7u32, "load", -1i64)), b"\0\0\0\x07load\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
    ];
    for (i, (encoded, expected)) in golden.iter().enumerate() {
        assert_eq!(encoded, expected, "vector {i}");
    }
}

#[test]
fn what_no_value_encodes_is_refused() {
    assert_eq!(decode::<bool>(&[2]), None);
    assert_eq!(decode::<char>(&0xd800u32.to_be_bytes()), None);
    assert_eq!(decode::<Option<u8>>(&[1]), None);
    assert_eq!(decode::<String>(b"\xff\0\0"), None);
    assert_eq!(decode::<Vec<u8>>(b"a\0\x02"), None);
    assert_eq!(decode::<Vec<u8>>(b"a"), None);
    assert_eq!(decode::<(u8, u16)>(&[1, 2]), None);
}
