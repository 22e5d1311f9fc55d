//! Whatever a READ brings of a slot, its fingerprint or the directory: an answer is right or an
//! error, never wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::keys::TestKeys;
use crate::common::{Fixture, Place, RANGE, Reader, TWO_STAGE, WAYS, Way, scattered};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::{
    CHANGE_RECORD_BYTES, SUPERBLOCK_BYTES, SlotState, SlotWord, Superblock, TableParameters,
};
use fpcache::plan::Plan;
use fpcache::read::ReadError;
use proptest::prelude::*;

fn fixture<T: TestKeys>() -> Fixture<T> {
    let parameters = TableParameters { epsilon: 8, ..T::parameters(24) };
    Fixture::new(scattered(300), parameters)
}

fn is_contended<T>(result: &Result<T, ReadError>) -> bool {
    matches!(result, Err(ReadError::Contended { .. }))
}

fn is_stale<T>(result: &Result<T, ReadError>) -> bool {
    matches!(result, Err(ReadError::Stale))
}

/// Bytes of `new` where `mask` has a bit, of `old` elsewhere; bit `i` stands for the `i`-th piece
/// of `piece` bytes.
fn mixture(old: &[u8], new: &[u8], mask: u64, piece: usize) -> Vec<u8> {
    let pick = |i: usize| if mask >> (i / piece % 64) & 1 == 1 { new[i] } else { old[i] };
    (0..old.len()).map(pick).collect()
}

/// Checks every way to read `key` while the region holds `image` in its slot.
fn check_torn<T: TestKeys>(f: &Fixture<T>, place: Place, key: u64, image: &[u8], whole: &[(u32, &[u8])]) {
    let expected = whole.iter().find(|(_, slot)| *slot == image).map(|(v, _)| (*v, f.value(key, *v)));
    f.with(place.slot, image, || {
        for way in WAYS {
            let mut reader = f.reader(way);
            let got = reader.get(key);
            let scanned = reader.scan(key, 1);
            match &expected {
                Some(record) => {
                    assert_eq!(got.expect("a whole record"), Some(record.clone()));
                    assert_eq!(scanned.expect("whole records"), [(key, record.1.clone())]);
                }
                None => {
                    assert!(is_contended(&got), "{way:?} gave {got:?} for a torn slot {image:02x?}");
                    assert!(is_contended(&scanned), "a scan gave {scanned:?}");
                }
            }
        }
    });
}

fn any_mixture_of_two_versions_of_a_record_is_read_again<T: TestKeys>() {
    let f = fixture::<T>();
    let key = f.keys[150];
    let place = f.place_of(key);
    let (old, new) = (f.live_image(place.generation, key, 1), f.live_image(place.generation, key, 2));
    assert_eq!(f.bytes(place.slot, old.len()), old, "the loader writes what this test expects");
    // Every choice of words, or a good part of them: what mapped memory can show.
    let choices = 1u64 << (old.len() / 8);
    let step = (choices / 128).max(1) | 1;
    for mask in (0..choices).step_by(step as usize).chain([choices - 1]) {
        check_torn(&f, place, key, &mixture(&old, &new, mask, 8), &[(1, &old), (2, &new)]);
    }
}

/// Pieces smaller than words: more than any fabric does.
fn any_mixture_of_bytes_is_read_again<T: TestKeys>() {
    let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(mask: u64, piece in 1..8usize, version in 2..1000u32)| {
        let f = fixture::<T>();
        let key = f.keys[150];
        let place = f.place_of(key);
        let (old, new) = (f.live_image(place.generation, key, 1), f.live_image(place.generation, key, version));
        check_torn(&f, place, key, &mixture(&old, &new, mask, piece), &[(1, &old), (version, &new)]);
    });
}

fn a_busy_record_is_read_again_and_holds_up_nobody_else<T: TestKeys>() {
    let f = fixture::<T>();
    let key = f.keys[150];
    let place = f.place_of(key);
    let busy = SlotWord::new(SlotState::Busy, 1, 0).to_bits().to_le_bytes();
    f.with(place.slot, &busy, || {
        for way in WAYS {
            let mut reader = f.reader(way);
            assert!(is_contended(&reader.get(key)), "{way:?}");
            assert!(is_contended(&reader.group(&[f.keys[0], key])), "{way:?}");
            assert!(is_contended(&reader.scan(key, 1)), "{way:?}");
            for other in f.keys.iter().filter(|k| **k != key) {
                assert_eq!(reader.get(*other).unwrap(), Some((1, f.value(*other, 1))), "{way:?}");
            }
            assert_eq!(reader.scan(f.keys[0], 20).unwrap().len(), 20, "far below the busy slot");
        }
    });
}

fn a_record_of_another_generation_is_no_record<T: TestKeys>() {
    let f = fixture::<T>();
    let key = f.keys[150];
    let place = f.place_of(key);
    for generation in [0, place.generation - 1, place.generation + 1, place.generation ^ 1 << 31] {
        if generation != place.generation {
            check_torn(&f, place, key, &f.live_image(generation, key, 1), &[]);
        }
    }
}

/// A key, where it lies, and where another record in its window lies.
fn neighbours<T: TestKeys>(f: &Fixture<T>) -> (u64, Place, Place) {
    let pair = f.keys.windows(2).find(|pair| {
        let ((segment, window), (other, _)) = (f.window_of(pair[0]), f.window_of(pair[1]));
        segment == other && window.contains(f.place_of(pair[1]).index) && window.len() > 8
    });
    let [key, other] = pair.unwrap() else { unreachable!("windows of two") };
    (*key, f.place_of(*key), f.place_of(*other))
}

fn another_key_under_the_same_fingerprint_is_a_false_candidate<T: TestKeys>() {
    let f = fixture::<T>();
    let (key, place, neighbour) = neighbours(&f);
    let fingerprint_bytes = f.geometry().width.bytes();
    let fingerprint = f.bytes(place.fingerprint, fingerprint_bytes);
    f.with(neighbour.fingerprint, &fingerprint, || {
        for way in TWO_STAGE {
            let (outcome, answer) = f.reader(way).get_with_outcome(key).unwrap();
            assert_eq!(answer, Some((1, f.value(key, 1))), "the right one of two candidates");
            assert_eq!((outcome.cost.round_trips, outcome.cost.reads), (2, 3), "both in one doorbell");
        }
        // The key's own slot is freed, so that only the other one is left.
        f.with(place.slot, &[0; 8], || {
            f.with(place.fingerprint, &vec![0; fingerprint_bytes], || {
                for way in TWO_STAGE {
                    let (outcome, answer) = f.reader(way).get_with_outcome(key).unwrap();
                    assert_eq!(answer, None);
                    assert_eq!((outcome.cost.round_trips, outcome.cost.false_candidates), (2, 1), "{way:?}");
                }
            });
        });
    });
}

fn a_freed_slot_is_absent_also_while_its_fingerprint_stands<T: TestKeys>() {
    let f = fixture::<T>();
    let key = f.keys[150];
    let place = f.place_of(key);
    f.with(place.slot, &[0; 8], || {
        for way in WAYS {
            let mut reader = f.reader(way);
            assert_eq!(reader.get(key).unwrap(), None, "the word decides");
            let scanned = reader.scan(f.keys[149], 2).unwrap();
            assert!(scanned.iter().map(|(k, _)| *k).eq([f.keys[149], f.keys[151]]));
        }
    });
}

fn the_remains_of_a_deleted_record_do_not_hide_the_live_one<T: TestKeys>() {
    let f = fixture::<T>();
    let (key, place, neighbour) = neighbours(&f);
    // The other record's slot is free and still shows the key's bytes, as after a delete there and
    // an insert here.
    let mut remains = f.bytes(place.slot, f.geometry().slot_bytes);
    remains[..8].fill(0);
    f.with(neighbour.slot, &remains, || {
        for way in WAYS {
            let (outcome, answer) = f.reader(way).get_with_outcome(key).unwrap();
            assert_eq!(answer, Some((1, f.value(key, 1))), "{way:?}");
            assert_eq!(outcome.cost.fallbacks, 0, "{way:?} had all it needed");
        }
    });
}

fn frozen_words_and_fingerprints_send_the_reader_to_the_directory<T: TestKeys>() {
    for width in FingerprintWidth::ALL {
        let parameters = TableParameters { width, ..T::parameters(8) };
        let f = Fixture::<T>::new(scattered(300), parameters);
        let key = f.keys[150];
        let place = f.place_of(key);
        let frozen = width.frozen().to_le_bytes();
        f.with(place.fingerprint, &frozen[..width.bytes()], || {
            for way in TWO_STAGE {
                assert!(is_stale(&f.reader(way).get(key)));
                assert!(is_stale(&f.reader(way).get(key ^ 1)), "also for an absent key");
            }
        });
        let frozen = SlotWord::new(SlotState::Frozen, 1, 7).to_bits().to_le_bytes();
        f.with(place.slot, &frozen, || {
            for way in WAYS {
                assert!(is_stale(&f.reader(way).get(key)));
                assert!(is_stale(&f.reader(way).scan(key, 1)));
            }
            for way in RANGE {
                assert!(is_stale(&f.reader(way).get(key ^ 1)), "also for an absent key");
            }
        });
    }
}

/// Whether damage at this offset may hide a record, as freeing it would: in its state, in its key,
/// or for a two-stage read in its fingerprint. Only the memory node writes there, and it does so
/// word by word.
fn may_hide<T: TestKeys>(f: &Fixture<T>, at: u64, key: u64, place: Place, way: Way) -> bool {
    let fingerprint = place.fingerprint..place.fingerprint + f.geometry().width.bytes() as u64;
    let in_slot = at.wrapping_sub(place.slot);
    in_slot == 0
        || f.key_bytes(key).contains(&in_slot)
        || way.plan != Plan::Range && fingerprint.contains(&at)
}

fn no_damaged_byte_of_a_segment_makes_a_wrong_value<T: TestKeys>() {
    for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits64] {
        let parameters = TableParameters { width, epsilon: 4, ..T::parameters(9) };
        let f = Fixture::<T>::new((0..12).map(|i| i * i * 1000), parameters);
        // Segments lie between change log and directory.
        let record = Superblock::decode::<T::Space>(&f.bytes(0, SUPERBLOCK_BYTES)).unwrap().table.unwrap();
        let begin = record.log + record.log_records * CHANGE_RECORD_BYTES as u64;
        let end = f.bytes(begin, 1 << 12).windows(4).position(|b| b == b"FPdp").unwrap() as u64 + begin;
        let places: Vec<Place> = f.keys.iter().map(|key| f.place_of(*key)).collect();
        let mut readers = WAYS.map(|way| (way, f.reader(way)));
        for at in begin..end {
            let byte = f.bytes(at, 1)[0];
            let flip = (at as u8).wrapping_mul(37) | 1;
            f.put(at, &[byte ^ flip]);
            for (way, reader) in &mut readers {
                for (key, place) in f.keys.iter().zip(&places) {
                    match reader.get(*key) {
                        Ok(Some(answer)) => assert_eq!(answer, (1, f.value(*key, 1)), "byte {at}"),
                        Ok(None) => {
                            assert!(may_hide(&f, at, *key, *place, *way), "byte {at}, key {key}, {way:?}")
                        }
                        Err(ReadError::Contended { .. } | ReadError::Stale) => {}
                        Err(error) => panic!("byte {at}: {error}"),
                    }
                    let absent = key ^ u64::from(flip);
                    assert!(
                        matches!(reader.get(absent), Ok(None) | Err(_)),
                        "byte {at} invents key {absent}"
                    );
                }
            }
            f.put(at, &[byte]);
        }
    }
}

/// Writes a record's next version as the memory node does: busy word, body, live word.
fn rewrite<T: TestKeys>(f: &Fixture<T>, place: Place, key: u64, version: u32) {
    let image = f.live_image(place.generation, key, version);
    let (word, body) = image.split_at(8);
    let busy = SlotWord::new(SlotState::Busy, version - 1, 0);
    f.region.store_relaxed(place.slot, busy.to_bits()).unwrap();
    fence(Ordering::Release);
    f.put(place.slot + 8, body);
    let live = u64::from_le_bytes(word.try_into().unwrap());
    f.region.store_release(place.slot, live).unwrap();
}

fn readers_beside_a_writer_see_whole_versions_in_order<T: TestKeys>() {
    const TIME: Duration = Duration::from_millis(800);
    const PATIENCE: Duration = Duration::from_secs(30);
    let parameters = TableParameters { epsilon: 8, ..T::parameters(100) };
    let f = Fixture::<T>::new(scattered(64), parameters);
    let places: Vec<Place> = f.keys.iter().map(|key| f.place_of(*key)).collect();
    let done = AtomicBool::new(false);
    let answered = [const { AtomicU64::new(0) }; WAYS.len() + 1];
    let newest = thread::scope(|scope| {
        let (f, done, answered) = (&f, &done, &answered);
        let looking_up = std::array::from_fn::<_, { WAYS.len() }, _>(|i| {
            scope.spawn(move || read_until(f, f.reader(WAYS[i]), done, &answered[i]))
        });
        let scanning = scope.spawn(|| scan_until(f, f.reader(WAYS[0]), done, &answered[WAYS.len()]));
        let begun = Instant::now();
        let mut version = 1;
        // Until everybody got answers: how soon each has a processor is not the protocol's doing.
        let all_got_answers = || answered.iter().all(|answers| answers.load(Ordering::Relaxed) > 0);
        while begun.elapsed() < TIME || !all_got_answers() && begun.elapsed() < PATIENCE {
            version += 1;
            f.keys.iter().zip(&places).for_each(|(key, place)| rewrite(f, *place, *key, version));
        }
        done.store(true, Ordering::Relaxed);
        looking_up.into_iter().chain([scanning]).for_each(|reader| reader.join().unwrap());
        assert!(all_got_answers(), "everybody got answers: {answered:?}");
        version
    });
    assert!(newest > 2);
    let mut reader = f.reader(WAYS[0]);
    for key in &f.keys {
        assert_eq!(reader.get(*key).unwrap(), Some((newest, f.value(*key, newest))));
    }
}

/// Looks keys up, one by one and in groups, and counts how many were answered.
fn read_until<T: TestKeys>(f: &Fixture<T>, mut reader: Reader<T>, done: &AtomicBool, answered: &AtomicU64) {
    let mut seen = vec![1; f.keys.len()];
    let mut check = |i: usize, answer: Option<(u32, Vec<u8>)>| {
        let (version, value) = answer.expect("no key is ever away");
        assert_eq!(value, f.value(f.keys[i], version), "version {version} of key {i}");
        assert!(version >= seen[i], "version {version} of key {i} after {}", seen[i]);
        seen[i] = version;
    };
    while !done.load(Ordering::Relaxed) {
        for first in 0..f.keys.len() {
            let group = first..(first + 5).min(f.keys.len());
            match (reader.get(f.keys[first]), reader.group(&f.keys[group.clone()])) {
                (Ok(single), Ok(answers)) => {
                    check(first, single);
                    group.zip(answers).for_each(|(i, answer)| check(i, answer));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                // A thousand attempts in vain: possible, if this thread rarely gets the processor.
                (single, answers) => {
                    assert!(single.is_ok() || is_contended(&single));
                    assert!(answers.is_ok() || is_contended(&answers));
                }
            }
        }
    }
}

/// Scans all keys again and again, and counts how many scans were answered.
fn scan_until<T: TestKeys>(f: &Fixture<T>, mut reader: Reader<T>, done: &AtomicBool, answered: &AtomicU64) {
    let mut limit = 1;
    while !done.load(Ordering::Relaxed) {
        limit = limit % f.keys.len() + 1;
        match reader.scan(0, limit) {
            Ok(records) => {
                assert!(records.iter().map(|(key, _)| key).eq(&f.keys[..limit]));
                for (key, value) in &records {
                    let version = u32::from_le_bytes(*value.first_chunk().unwrap());
                    assert_eq!(*value, f.value(*key, version), "version {version} of key {key}");
                }
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => assert!(matches!(error, ReadError::Contended { .. }), "{error}"),
        }
    }
}

for_all_keys!(
    any_mixture_of_two_versions_of_a_record_is_read_again,
    a_busy_record_is_read_again_and_holds_up_nobody_else,
    a_record_of_another_generation_is_no_record,
    another_key_under_the_same_fingerprint_is_a_false_candidate,
    a_freed_slot_is_absent_also_while_its_fingerprint_stands,
    the_remains_of_a_deleted_record_do_not_hide_the_live_one,
    frozen_words_and_fingerprints_send_the_reader_to_the_directory,
    no_damaged_byte_of_a_segment_makes_a_wrong_value,
    readers_beside_a_writer_see_whole_versions_in_order,
    any_mixture_of_bytes_is_read_again,
);
