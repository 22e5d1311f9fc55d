//! Byte strings that are shipped and generated: the same for the same seed everywhere, and of the
//! shape they stand for; and lookups of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::HashSet;

use fpcache_datasets::bytes::inspect::{ByteInspection, inspect_bytes};
use fpcache_datasets::requests::{ABSENT, AbsentKeys, Distribution, RequestOptions, generate_bytes};
use fpcache_datasets::{ByteDataset, DatasetError, KeyKind, OpenOptions, Spec, key_number};

fn open_with(spec: &str, options: &OpenOptions<'_>) -> Result<ByteDataset, DatasetError> {
    spec.parse::<Spec>().unwrap().open_bytes(options)
}

fn open(spec: &str) -> ByteDataset {
    open_with(spec, &OpenOptions::default()).unwrap()
}

fn of_length(bytes: usize) -> OpenOptions<'static> {
    OpenOptions { key_bytes: Some(bytes), ..OpenOptions::default() }
}

fn inspected(spec: &str) -> ByteInspection {
    inspect_bytes(&spec.parse().unwrap(), &[32], &OpenOptions::default()).unwrap()
}

/// The first and last key, for reading, and a digest of all.
fn digest(dataset: &ByteDataset) -> (String, String, u64) {
    let show = |i: usize| dataset.keys().get(i, &mut Vec::new()).escape_ascii().to_string();
    let mut sum = 0u64;
    let mut cursor = dataset.keys().cursor();
    while let Some(key) = cursor.next_key() {
        sum = sum.rotate_left(7) ^ key_number(key);
    }
    (show(0), show(dataset.len() - 1), sum)
}

#[test]
fn a_seed_gives_the_same_keys_everywhere() {
    let found: Vec<_> = GOLDEN
        .iter()
        .map(|(spec, bytes, ..)| {
            let (first, last, sum) = digest(
                &open_with(spec, &OpenOptions { key_bytes: *bytes, ..OpenOptions::default() }).unwrap(),
            );
            (*spec, *bytes, first, last, sum)
        })
        .collect();
    let expected: Vec<_> = GOLDEN
        .iter()
        .map(|(spec, bytes, first, last, sum)| (*spec, *bytes, (*first).to_owned(), (*last).to_owned(), *sum))
        .collect();
    assert_eq!(found, expected, "{found:#?}");
}

#[test]
fn another_seed_gives_other_keys() {
    for spec in ["words:1K", "domains:1K", "paths:1K", "binary:1K", "prefixes:1K"] {
        let of = |seed| digest(&open_with(spec, &OpenOptions { seed, ..OpenOptions::default() }).unwrap());
        assert_ne!(of(1), of(2), "{spec}");
    }
}

#[test]
fn every_set_gives_exactly_the_count_ascending_and_each_once() {
    for spec in ["words", "domains", "paths", "ycsb", "binary", "prefixes"] {
        for count in [1, 2_049] {
            let dataset = open(&format!("{spec}:{count}"));
            assert_eq!((dataset.len(), dataset.positions()), (count, count as u64), "{spec}");
            let mut previous = Vec::new();
            let mut cursor = dataset.keys().cursor();
            while let Some(key) = cursor.next_key() {
                assert!(previous.as_slice() < key && (1..=4_096).contains(&key.len()), "{spec}:{count}");
                previous = key.to_vec();
            }
        }
        assert_eq!(spec.parse::<Spec>().unwrap().key_kind(), KeyKind::Bytes);
    }
}

#[test]
fn words_are_the_shipped_list() {
    let words = open("words");
    assert_eq!((words.len(), words.source(), words.keys().text_bytes()), (663_473, "shipped", 6_258_953));
    assert_eq!(digest(&words).2, 311_534_569_434_305_531);
    for word in ["A", "abacus", "zymurgy", "évolué"] {
        assert!(words.keys().binary_search(word.as_bytes()).is_ok(), "{word}");
    }
    let heads: HashSet<_> =
        words.keys().as_arena().unwrap().iter().map(|word| &word[..word.len().min(8)]).collect();
    assert!((615..630).contains(&(heads.len() * 1_000 / words.len())), "{}", heads.len());
    let error = open_with("words:1M", &OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("663473"), "{error}");
}

#[test]
fn domains_resemble_the_real_ones() {
    // What is said of the real ones is of a sample of as many.
    let found = inspected("domains:40K");
    let numbers = found.numbers as f64 / found.distinct as f64;
    assert!((17.0..18.2).contains(&found.mean_length), "{found:?}, real: 17.4");
    assert!((0.85..0.93).contains(&numbers), "{found:?}, real: 0.908");
    assert!((4.0..4.9).contains(&found.mean_shared), "{found:?}, real: 4.2");
    assert!((230..320).contains(&found.segments[0].1), "{found:?}, real: 291");
    let dataset = open("domains:20K");
    let (mut com, mut hyphen, mut two) = (0, 0, 0);
    let mut cursor = dataset.keys().cursor();
    while let Some(key) = cursor.next_key() {
        com += u32::from(key.ends_with(b".com"));
        hyphen += u32::from(key.contains(&b'-'));
        two += u32::from(key.iter().filter(|&&byte| byte == b'.').count() == 1);
    }
    assert!((13_000..14_200).contains(&com), "{com}, real: 68 %");
    assert!((4_000..5_500).contains(&hyphen), "{hyphen}, real: 24 %");
    assert!((13_000..14_200).contains(&two), "{two}, real: 68 %");
}

#[test]
fn paths_are_deep_and_share_long_prefixes() {
    let found = inspected("paths:10K");
    assert!((50..60).contains(&found.shared_by_all) && found.mean_shared > 80.0, "{found:?}");
    assert!((90.0..130.0).contains(&found.mean_length), "{found:?}");
    // The trap for numbers of eight bytes: there are hardly any after what all share.
    assert!(found.numbers * 10 < found.distinct, "{found:?}");
}

#[test]
fn ycsb_keys_are_those_of_its_records_at_any_length() {
    let dataset = open("ycsb:10K");
    let mut buffer = Vec::new();
    for hash in ["6284781860667377211", "8517097267634966620", "1820151046732198393"] {
        let i = dataset.keys().binary_search(format!("user{hash}").as_bytes()).unwrap();
        assert!(dataset.keys().get(i, &mut buffer).ends_with(hash.as_bytes()));
    }
    assert_eq!(dataset.keys().memory_bytes(), 80_000);
    let padded = open_with("ycsb:10K", &of_length(128)).unwrap();
    assert_eq!((padded.keys().every_length(), padded.keys().memory_bytes()), (Some(128), 80_000));
    let key = format!("user{}6284781860667377211", "0".repeat(105));
    assert!(padded.keys().binary_search(key.as_bytes()).is_ok());
    assert_eq!(padded.keys().clone().into_arena().every_length(), Some(128));
}

#[test]
fn binary_keys_hold_zeros_and_have_the_length_asked_for() {
    let found = inspected("binary:20K");
    assert_eq!((found.alphabet, found.shortest, found.longest), (256, 4, 32));
    let dataset = open_with("binary:20K", &of_length(16)).unwrap();
    let arena = dataset.keys().as_arena().unwrap();
    let zeros = arena.iter().flatten().filter(|&&byte| byte == 0).count() as f64 / 320_000.0;
    assert!((0.12..0.14).contains(&zeros) && arena.every_length() == Some(16), "{zeros}");
    assert_eq!(open_with("binary:4096", &of_length(2)).unwrap().len(), 4_096);
}

#[test]
fn prefixes_are_prefixes_of_one_another() {
    let dataset = open("prefixes:20K");
    let arena = dataset.keys().as_arena().unwrap();
    let begun = arena.iter().zip(arena.iter().skip(1)).filter(|(key, next)| next.starts_with(key)).count();
    assert!(begun > 12_000, "{begun}");
    // A key and the next that is possible.
    assert!(arena.iter().zip(arena.iter().skip(1)).any(|(key, next)| next == [key, b"\0"].concat()));
}

#[test]
fn lengths_that_cannot_be_are_refused_with_a_remedy() {
    for (spec, bytes, remedy) in [
        ("ycsb:1K", 22, "need 23"),
        ("ycsb:1K", 0, "1 to 4096"),
        ("binary:1K", 4_097, "1 to 4096"),
        ("binary:17", 1, "longer or fewer keys"),
        ("words:10", 8, "leave the length out"),
        ("paths:10", 64, "leave the length out"),
    ] {
        let error = open_with(spec, &of_length(bytes)).unwrap_err().to_string();
        assert!(error.contains(spec) && error.contains(remedy), "{error}");
    }
    let spec: Spec = "uniform:10".parse().unwrap();
    assert!(spec.open(&of_length(16)).unwrap_err().to_string().contains("of 8 bytes"));
    assert!(spec.open(&of_length(8)).is_ok());
}

#[test]
fn lookups_ask_for_present_keys_and_for_absent_ones_that_resemble_them() {
    for (spec, bytes) in
        [("domains:5K", None), ("ycsb:5K", Some(64)), ("prefixes:5K", None), ("paths:5K", None)]
    {
        let dataset = open_with(spec, &OpenOptions { key_bytes: bytes, ..OpenOptions::default() }).unwrap();
        let distribution: Distribution = "zipf:0.99".parse().unwrap();
        let options =
            RequestOptions { lookups: 10_000, distribution, negative: 0.3, seed: 5, shift_every: None };
        let requests = generate_bytes(&dataset, &options);
        let (mut absent, mut shared, mut buffer) = (0, 0, Vec::new());
        for (key, &expected) in requests.keys.iter().zip(&requests.expected) {
            let found = dataset.keys().binary_search(key);
            if expected != ABSENT {
                assert_eq!(found, Ok(expected as usize), "{spec}");
                continue;
            }
            let at = found.expect_err("an absent key");
            absent += 1;
            let neighbour = dataset.keys().get(at.saturating_sub(1), &mut buffer);
            shared += usize::from(neighbour.iter().zip(key).take_while(|(a, b)| a == b).count() >= 3);
            assert!(bytes.is_none_or(|bytes| key.len() == bytes), "{spec}");
        }
        assert!((2_800..3_200).contains(&absent) && shared * 2 > absent, "{spec}: {absent} {shared}");
        assert_eq!((requests.len(), requests.notes.len()), (10_000, 0));
    }
}

#[test]
fn the_same_indices_are_drawn_as_for_numbers() {
    let options = RequestOptions {
        lookups: 1_000,
        distribution: "zipf:0.99".parse().unwrap(),
        negative: 0.0,
        seed: 9,
        shift_every: Some(100),
    };
    let numbers: Vec<u64> = (0..5_000).collect();
    let of_numbers = fpcache_datasets::requests::generate(&numbers, &options);
    assert_eq!(generate_bytes(&open("ycsb:5K"), &options).expected, of_numbers.expected);
}

#[test]
fn absent_keys_of_a_seed_are_many() {
    let dataset = open("domains:1K");
    let absent = AbsentKeys::new(dataset.keys()).unwrap();
    let mut key = Vec::new();
    let drawn: HashSet<Vec<u8>> = (0..1_000)
        .map(|i| {
            absent.draw(3, i, &mut key);
            key.clone()
        })
        .collect();
    assert!(drawn.len() > 900, "{}", drawn.len());
}

/// Spec, key length, first key, last key and a digest of all.
type Golden = (&'static str, Option<usize>, &'static str, &'static str, u64);
const GOLDEN: [Golden; 7] = [
    ("words:5K", None, "ACTPU", "zymogen", 2_602_905_118_625_526_910),
    ("domains:5K", None, "0dj.com", "zzzgedm.com", 1_647_119_030_642_065_940),
    (
        "paths:5K",
        None,
        "/srv/storage/volume-07/workspaces/mainline/checkout/accept/main/abbesses-4.5.2.jar",
        "/srv/storage/volume-07/workspaces/mainline/checkout/woven-cleavers/vendor/frame_00051.png",
        11_889_539_603_143_736_214,
    ),
    ("ycsb:5K", None, "user1000385178204227360", "user997378877721381023", 6_262_274_662_397_961_458),
    (
        "ycsb:5K",
        Some(40),
        "user000000000000000000013177807280125764",
        "user000000000000000009221978044222273581",
        14_891_234_691_779_992_150,
    ),
    (
        "binary:5K",
        None,
        "\\x00\\x00\\x00\\t+\\x9b\\xe5\\xcep\\xf8\\x84[\\xa1\\x9b\\xb1\\xb5\\xd0,\\x00\\x9e\\xff\\x00\\xd6\\xc3m\\x87P\\xc8\\x00\\xef",
        "\\xff\\xf3F\\x9b\\xa9\\xad\\xa5c\\xfd\\x9c\\xdd]n\\xd3\\xcb\\xc5",
        6_188_744_504_263_664_182,
    ),
    (
        "prefixes:5K",
        None,
        "\\x00\\x00",
        "\\xff\\xffiehjegfb\\x00\\xffeeifh\\x00\\x00\\xffchgdjhjehhib",
        1_280_191_836_773_324_263,
    ),
];
