//! Segments of byte strings cover all strings in order, hold every key in its window, and give
//! every string a coordinate.

mod common;

use std::sync::Arc;

use common::has_placement;
use fpcache_index::strings::{
    Cutter, KeyEncoder, MAX_KEY_BYTES, SkipPart, StringSegment, StringsError, Training, common_prefix,
    partition, separator,
};
use fpcache_index::{SegmentModel, SegmentOptions};
use proptest::prelude::*;

type Keys = Vec<Vec<u8>>;

fn sorted(mut keys: Keys) -> Keys {
    keys.retain(|key| !key.is_empty() && key.len() <= MAX_KEY_BYTES);
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn trained(keys: &Keys) -> KeyEncoder {
    KeyEncoder::train(keys.iter().map(Vec::as_slice), &Training::default())
}

fn cut(keys: &Keys, encoder: &Arc<KeyEncoder>, options: SegmentOptions) -> Vec<StringSegment> {
    let mut cutter = Cutter::new(options, Arc::clone(encoder)).expect("valid options");
    let mut segments = Vec::new();
    for key in keys {
        cutter.push(key).expect("ascending");
        segments.extend(cutter.drain());
    }
    cutter.finish();
    segments.extend(cutter.drain());
    segments
}

/// The coordinate a reader computes.
fn coordinate(encoder: &KeyEncoder, start: &[u8], skip: u16, key: &[u8]) -> u64 {
    let skip = usize::from(skip);
    // A key at or above the segment's start without what it skips lies above all that have it.
    if common_prefix(start, key) < skip { u64::MAX } else { encoder.code(key, skip) }
}

/// Pairs of what is at `i` and what is after it.
fn pairs<T>(items: &[T]) -> impl Iterator<Item = (&T, &T)> {
    items.iter().zip(&items[1.min(items.len())..])
}

/// Checks the ranges of consecutive parts of `keys`: each with its separator, its skip and how many
/// keys it takes.
fn check_ranges(keys: &[Vec<u8>], parts: &[(&[u8], u16, usize)]) {
    let mut first = 0;
    for (i, (start, skip, len)) in parts.iter().enumerate() {
        let skip = usize::from(*skip);
        assert!(skip <= start.len());
        assert!(i == 0 || parts[i - 1].0 < *start, "ranges do not ascend");
        for key in &keys[first..first + len] {
            assert!(key.as_slice() >= *start && key.starts_with(&start[..skip]));
        }
        if first > 0 && *len > 0 {
            let shared = common_prefix(&keys[first - 1], &keys[first]);
            assert!(keys[first - 1].as_slice() < *start, "a key before lies in the range");
            assert_eq!(*start, &keys[first][..(shared + 1).max(skip)], "the separator is not the shortest");
        }
        first += len;
    }
    assert_eq!(first, keys.len());
}

/// Checks everything a reader and a writer rely on.
fn check(keys: &Keys, encoder: &KeyEncoder, segments: &[StringSegment], options: &SegmentOptions) {
    assert!(segments.first().is_none_or(|segment| segment.start.is_empty()));
    let parts: Vec<_> = segments.iter().map(|s| (&*s.start, s.skip, s.placed.keys)).collect();
    check_ranges(keys, &parts);
    assert!(segments.iter().skip(1).all(|segment| segment.placed.keys > 0), "only the first may be empty");
    let mut first = 0;
    for segment in segments {
        let own = &keys[first..first + segment.placed.keys];
        first += own.len();
        let model = segment.placed.model;
        assert!(u32::from(model.epsilon) <= options.epsilon);
        assert!(usize::from(model.cap) >= own.len() && model.cap <= options.max_slots);
        let xs: Vec<u64> =
            own.iter().map(|key| coordinate(encoder, &segment.start, segment.skip, key)).collect();
        assert!(xs.is_sorted());
        assert!(xs.first().is_none_or(|x| *x == model.origin));
        let mut slots = segment.placed.slots.clone();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "slots are distinct");
        assert_eq!(slots.len(), own.len());
        for (x, slot) in xs.iter().zip(&segment.placed.slots) {
            assert!(*slot < model.cap && model.window(*x).contains(u32::from(*slot)));
        }
        if model.epsilon > 0 && !own.is_empty() {
            let tighter = SegmentModel { epsilon: model.epsilon - 1, ..model };
            let windows = xs.iter().map(|x| (tighter.window(*x).first, tighter.window(*x).last));
            assert!(!has_placement(windows), "the stored error is not the true one");
        }
    }
}

/// Coordinates of keys that are not in the table ascend among those that are.
fn check_foreign(encoder: &KeyEncoder, segments: &[StringSegment], probes: &Keys) {
    let at = |key: &Vec<u8>| segments.partition_point(|segment| *segment.start <= **key) - 1;
    let located: Vec<(usize, u64)> = probes
        .iter()
        .map(|key| {
            let segment = &segments[at(key)];
            (at(key), coordinate(encoder, &segment.start, segment.skip, key))
        })
        .collect();
    assert!(located.is_sorted(), "a greater key has a lower place");
}

fn numbered(prefix: &str, count: usize) -> Keys {
    (0..count).map(|i| format!("{prefix}{:06}", i * 7 % 100_003).into_bytes()).collect()
}

fn deep_directories() -> Keys {
    let mut keys = Keys::new();
    for tenant in 0..11 {
        let root =
            format!("/srv/data/volumes/cluster/tenants/tenant-{tenant:04}/home/projects/current/source");
        for directory in 0..tenant {
            let prefix = format!("{root}/module-{directory}/generated/assets/images/IMG_2017");
            keys.extend(numbered(&prefix, 30 + 25 * tenant));
        }
    }
    sorted(keys)
}

fn adversarial() -> Vec<(&'static str, Keys)> {
    let long = |i: usize| {
        let mut key = vec![b'x'; MAX_KEY_BYTES];
        key[MAX_KEY_BYTES - 1 - i % 5] = i as u8;
        key[i % 3] = b'y';
        key
    };
    vec![
        ("none", vec![]),
        ("one", vec![b"only".to_vec()]),
        ("two", vec![b"only".to_vec(), b"only\0".to_vec()]),
        ("numbers", sorted(numbered("user", 2000))),
        ("directories", deep_directories()),
        ("zeros", sorted((1..500).map(|len| vec![0; len]).collect())),
        ("greatest bytes", sorted((1..500).map(|len| vec![255; len]).collect())),
        (
            "prefixes",
            sorted(
                (0..1200u32)
                    .map(|i| (0..i % 300).map(|j| b'a' + (i / 300 + j / 97) as u8).collect())
                    .collect(),
            ),
        ),
        ("4 KiB", sorted((0..100).map(long).collect())),
        (
            "every byte",
            sorted((0..=255u8).flat_map(|a| (0..=255).step_by(17).map(move |b| vec![a, b])).collect()),
        ),
    ]
}

#[test]
fn every_key_lies_in_its_window() {
    for (name, keys) in adversarial() {
        for encoder in
            [KeyEncoder::plain(), trained(&keys), KeyEncoder::train([&b"qz"[..]], &Training::default())]
        {
            let encoder = Arc::new(encoder);
            for (epsilon, fill, max_slots) in
                [(32, 0.85, 4096), (0, 1.0, 300), (1, 0.7, 64), (5, 0.5, 9), (64, 1.0, 1)]
            {
                let options = SegmentOptions { epsilon, fill, max_slots, ..SegmentOptions::default() };
                let segments = cut(&keys, &encoder, options);
                assert_eq!(segments.is_empty(), keys.is_empty(), "{name}");
                check(&keys, &encoder, &segments, &options);
            }
        }
    }
}

#[test]
fn a_deep_common_beginning_is_skipped_after_an_empty_segment() {
    let keys = deep_directories();
    let segments = cut(&keys, &Arc::new(KeyEncoder::plain()), SegmentOptions::default());
    assert_eq!((segments[0].placed.keys, segments[0].skip, &*segments[0].start), (0, 0, &b""[..]));
    assert!(segments[1].skip > 40);
    // Below, within and above the keys.
    let model = segments[0].placed.model;
    assert!(model.cap > 0 && model.window(u64::MAX).first == 0);
}

#[test]
fn keys_that_one_skip_does_not_tell_apart_get_segments_with_a_longer_one() {
    let keys = deep_directories();
    let options = SegmentOptions::default();
    for encoder in [KeyEncoder::plain(), trained(&keys)] {
        let segments = cut(&keys, &Arc::new(encoder), options);
        let per_segment = keys.len() / segments.len();
        // 2ε + 1 keys would fit a segment whatever their coordinates.
        assert!(per_segment > 100, "{per_segment} keys per segment");
    }
}

#[test]
fn random_digits_take_few_segments() {
    let hash = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 7);
    let keys = sorted((0..30_000).map(|i| format!("user{:020}", hash(i)).into_bytes()).collect());
    let segments = cut(&keys, &Arc::new(trained(&keys)), SegmentOptions::default());
    assert!(keys.len() / segments.len() > 500, "{} keys per segment", keys.len() / segments.len());
    let plain = cut(&keys, &Arc::new(KeyEncoder::plain()), SegmentOptions::default());
    assert!(plain.len() > 3 * segments.len());
}

#[test]
fn no_segment_ends_for_want_of_keys() {
    let keys: Keys = (0..20_000).map(|i| format!("{i:08}").into_bytes()).collect();
    let options = SegmentOptions { max_slots: 100, ..SegmentOptions::default() };
    let segments = cut(&keys, &Arc::new(trained(&keys)), options);
    let (last, others) = segments.split_last().expect("segments");
    assert!(last.placed.keys <= 85 && others.iter().all(|segment| segment.placed.keys == 85));
}

#[test]
fn bad_keys_are_refused_and_change_nothing() {
    let encoder = Arc::new(KeyEncoder::plain());
    let mut cutter = Cutter::new(SegmentOptions::default(), Arc::clone(&encoder)).expect("valid options");
    assert_eq!(cutter.push(b""), Err(StringsError::Length { position: 0, bytes: 0 }));
    cutter.push(b"m").expect("the first key");
    for key in [&b"m"[..], b"a", b"lzzz"] {
        let refused = cutter.push(key).expect_err("not above");
        assert!(matches!(refused, StringsError::NotAscending { position: 1, .. }), "{refused}");
    }
    let long = vec![b'z'; MAX_KEY_BYTES + 1];
    assert_eq!(cutter.push(&long), Err(StringsError::Length { position: 1, bytes: MAX_KEY_BYTES + 1 }));
    cutter.push(b"m\0").expect("an extension is above");
    cutter.push(&long[1..]).expect("the longest key");
    cutter.finish();
    assert_eq!(cutter.drain().map(|segment| segment.placed.keys).sum::<usize>(), 3);
    // A new stream, while segments of the one before are still there.
    cutter.push(b"c").expect("a first key");
    cutter.finish();
    cutter.push(b"a").expect("a first key");
    cutter.finish();
    assert!(cutter.drain().all(|segment| segment.start.is_empty()));
    let refused = Cutter::new(SegmentOptions { fill: 0.0, ..SegmentOptions::default() }, encoder);
    assert!(refused.is_err());
}

#[test]
fn separators_are_the_shortest_beginnings_above_the_key_before() {
    assert_eq!(separator(b"", b"abc", 0), b"a");
    assert_eq!(separator(b"abc", b"abd", 0), b"abd");
    assert_eq!(separator(b"abc", b"abcd", 0), b"abcd");
    assert_eq!(separator(b"abc", b"b", 9), b"b");
    assert_eq!(separator(b"abc", b"bcde", 3), b"bcd");
    assert_eq!(separator(b"ab\xff", b"ac\0\0", 0), b"ac");
}

#[test]
fn few_keys_with_equal_coordinates_are_one_part() {
    // No more than ε have the same.
    let keys: Keys = (0..30u8).map(|i| [&[b'q'; 100][..], &[i]].concat()).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let start = &keys[0][..4];
    let parts = partition(&slices, start, &KeyEncoder::plain(), 32);
    assert_eq!(parts[0], SkipPart { keys: 0..0, start: start.into(), skip: 0 });
    assert_eq!(parts[1], SkipPart { keys: 0..30, start: keys[0][..100].into(), skip: 100 });
    assert_eq!(parts.len(), 2);
    assert_eq!(
        partition(&[], start, &KeyEncoder::plain(), 32),
        [SkipPart { keys: 0..0, start: start.into(), skip: 0 }]
    );
}

fn check_parts(keys: &[Vec<u8>], start: &[u8], encoder: &KeyEncoder, epsilon: u32) -> Vec<SkipPart> {
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let parts = partition(&slices, start, encoder, epsilon);
    assert_eq!(&*parts[0].start, start);
    check_ranges(keys, &parts.iter().map(|p| (&*p.start, p.skip, p.keys.len())).collect::<Vec<_>>());
    for part in &parts {
        let xs: Vec<u64> = keys[part.keys.clone()]
            .iter()
            .map(|key| coordinate(encoder, &part.start, part.skip, key))
            .collect();
        assert!(xs.is_sorted());
        assert!(xs.chunk_by(|a, b| a == b).all(|equal| equal.len() <= epsilon.max(1) as usize));
    }
    parts
}

#[test]
fn parts_of_a_rebuild_have_few_equal_coordinates() {
    for (_, keys) in adversarial() {
        for encoder in [KeyEncoder::plain(), trained(&keys)] {
            let Some(first) = keys.first() else { continue };
            for epsilon in [0, 1, 20, 32] {
                for start in [&first[..0], &first[..1], &first[..first.len().min(30)], first] {
                    check_parts(&keys, start, &encoder, epsilon);
                }
                // A range that begins far below its keys.
                check_parts(&keys[1..], first, &encoder, epsilon);
            }
        }
    }
    let keys = sorted(numbered("user", 3000));
    assert_eq!(check_parts(&keys, b"user0", &trained(&keys), 20).len(), 1);
}

/// Strings of few different bytes, so that many share beginnings, and of all.
fn string() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 255]), 0..12),
        2 => prop::collection::vec(any::<u8>(), 0..8),
        2 => (0usize..60, prop::collection::vec(b'a'..b'e', 0..6))
            .prop_map(|(len, end)| [vec![b'p'; len], end].concat()),
        1 => (any::<u8>(), 0usize..4200).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn encoder() -> impl Strategy<Value = KeyEncoder> {
    let sample = prop::collection::vec(string(), 0..80);
    (sample, 0usize..4, any::<u16>()).prop_map(|(sample, order, table_keys)| {
        let sample = sample.iter().map(Vec::as_slice);
        let training = Training { table_keys: u64::from(table_keys), order, ..Training::default() };
        if order == 3 { KeyEncoder::plain() } else { KeyEncoder::train(sample, &training) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn codes_never_decrease(
        encoder in encoder(), prefix in string(), mut rests in prop::collection::vec(string(), 2..40), beyond in 0usize..3,
    ) {
        rests.sort_unstable();
        let skip = prefix.len();
        let keys: Keys = rests.iter().map(|rest| [prefix.clone(), rest.clone()].concat()).collect();
        for (low, high) in pairs(&keys) {
            let (a, b) = (encoder.code(low, skip), encoder.code(high, skip));
            prop_assert!(a <= b && b < 1 << 32);
            if low.get(skip) != high.get(skip) {
                prop_assert!(a < b, "{:?} {:?} differ at the first byte", low, high);
            }
        }
        prop_assert_eq!(encoder.code(&prefix, skip), 0, "the empty string is the lowest");
        prop_assert_eq!(encoder.code(&prefix, skip + beyond), 0);
    }

    #[test]
    fn encoded_coders_code_the_same(encoder in encoder(), keys in prop::collection::vec(string(), 20)) {
        let decoded = KeyEncoder::decode(&encoder.encode()).expect("own bytes");
        prop_assert_eq!(&decoded, &encoder);
        for key in &keys {
            prop_assert_eq!(decoded.code(key, 0), encoder.code(key, 0));
        }
    }

    #[test]
    fn damaged_coders_are_refused_or_keep_order(
        encoder in encoder(), at in any::<prop::sample::Index>(), to: u8, len in any::<prop::sample::Index>(),
        mut keys in prop::collection::vec(string(), 20),
    ) {
        let mut bytes = encoder.encode();
        let at = at.index(bytes.len().min(400));
        bytes[at] = to;
        keys.sort_unstable();
        if let Ok(decoded) = KeyEncoder::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), &bytes[..]);
            prop_assert!(keys.iter().map(|key| decoded.code(key, 0)).is_sorted());
        }
        prop_assert!(KeyEncoder::decode(&bytes[..len.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(KeyEncoder::decode(&bytes).is_err());
    }

    #[test]
    fn any_keys_any_options(
        keys in prop::collection::vec(string(), 0..300), encoder in encoder(), foreign in prop::collection::vec(string(), 0..100),
        epsilon in 0u32..40, fill in 0.5f64..=1.0, max_slots in 2u16..300,
    ) {
        let keys = sorted(keys);
        let encoder = Arc::new(encoder);
        let options = SegmentOptions { epsilon, fill, max_slots, ..SegmentOptions::default() };
        let segments = cut(&keys, &encoder, options);
        check(&keys, &encoder, &segments, &options);
        if !segments.is_empty() {
            let mut probes: Keys = foreign.into_iter().chain(keys.clone()).collect();
            // Neighbours of separators.
            probes.extend(segments.iter().map(|segment| segment.start.to_vec()));
            probes.extend(segments.iter().map(|segment| [&*segment.start, &[255]].concat()));
            probes.sort_unstable();
            check_foreign(&encoder, &segments, &probes);
        }
    }

    #[test]
    fn any_keys_of_a_rebuild(keys in prop::collection::vec(string(), 1..200), encoder in encoder(), epsilon in 0u32..40, cut in 0usize..20) {
        let keys = sorted(keys);
        if let Some(first) = keys.first() {
            check_parts(&keys, &first[..cut.min(first.len())], &encoder, epsilon);
            check_parts(&keys[1..], first, &encoder, epsilon);
        }
    }
}
