//! Lookups that look at a cache line of fingerprints before the window.

use crate::built::{Built, Records};
use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::{RecordShape, SlotState, SlotWord, TableParameters};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{LookupScratch, Outcome, ReadError, Wanted, look_up, look_up_all};
use fpcache::table::{Table, TableOptions};

/// Bytes of a line and a slot.
const BY_LINE: u64 = 64 + 24;

fn table_of(keys: impl Iterator<Item = u64>) -> (Built<U64Keys>, Table<U64Keys>) {
    let records: Records<U64Keys> = keys.map(|key| (key, key.to_le_bytes().to_vec())).collect();
    let shape = RecordShape::fixed(8, 8);
    let built = Built::new(records, TableParameters { shape, ..TableParameters::default() });
    let options = TableOptions::plan(PlanChoice::Fixed(Plan::TwoStage));
    let table = Table::open(&mut built.endpoint(), &options).unwrap();
    (built, table)
}

/// As far from their predictions as ε lets them be: steps that change every few keys.
fn uneven(keys: u64) -> impl Iterator<Item = u64> {
    (0..keys).scan(0u64, |key, i| {
        *key += 1 + (i / 48 % 5) * 1_000 + <U64Keys as KeySpace>::hash(&i) % 16;
        Some(*key)
    })
}

#[test]
fn keys_in_their_line_or_beside_it_or_absent_are_answered_rightly() {
    // A line that shows another key's fingerprint comes once in two thousand lines that do not show
    // the key's.
    let (built, table) = table_of(uneven(40_000));
    let (mut by_line, mut by_window, mut wrong) = (0, 0, 0);
    for matcher in Matcher::available() {
        let mut endpoint = built.endpoint();
        for key in built.records.keys().flat_map(|key| [*key, key + 1]) {
            // A scratch that knows nothing yet tries the line.
            let mut scratch = LookupScratch::new(matcher);
            let expected = built.records.get(&key).map(Vec::as_slice);
            let take = |outcome: &Outcome, value: Option<&[u8]>| {
                assert_eq!(value, expected, "{key}, {outcome:?}, {}", matcher.name());
                outcome.cost
            };
            let cost = look_up(&mut endpoint, &table, &mut scratch, &key, take).unwrap();
            match cost.bytes {
                BY_LINE => by_line += 1,
                _ => by_window += 1,
            }
            wrong += usize::from(cost.false_candidates > 0);
        }
        for group in built.records.keys().flat_map(|key| [*key, key + 1]).collect::<Vec<_>>().chunks(45) {
            let mut scratch = LookupScratch::new(matcher);
            look_up_all(&mut endpoint, &table, &mut scratch, group.iter(), Wanted::Value).unwrap();
            for (key, (outcome, value)) in group.iter().zip(scratch.outcomes()) {
                assert_eq!(value, built.records.get(key).map(Vec::as_slice), "{key}, {outcome:?}");
            }
        }
    }
    assert!(by_line > 10_000 && by_window > 10_000 && wrong > 3, "{by_line} {by_window} {wrong}");
}

#[test]
fn even_keys_cost_a_line_and_a_slot_until_most_are_asked_for_in_vain() {
    let (built, table) = table_of((0..40_000).map(|i| 1_000 * i));
    let mut endpoint = built.endpoint();
    let mut scratch = LookupScratch::new(Matcher::detect());
    let mut shares_by_line = |more: u64, grouped: bool| {
        let keys: Vec<u64> = built.records.keys().map(|key| key + more).collect();
        let mut bytes = Vec::new();
        for keys in keys.chunks(32) {
            if grouped {
                look_up_all(&mut endpoint, &table, &mut scratch, keys.iter(), Wanted::Value).unwrap();
                bytes.extend(scratch.outcomes().map(|(outcome, _)| outcome.cost.bytes));
            } else {
                bytes.extend(keys.iter().map(|key| {
                    let take = |outcome: &Outcome, _: Option<&[u8]>| outcome.cost.bytes;
                    look_up(&mut endpoint, &table, &mut scratch, key, take).unwrap()
                }));
            }
        }
        bytes.iter().filter(|bytes| **bytes == BY_LINE).count() as f64 / bytes.len() as f64
    };
    for grouped in [false, true] {
        assert!(shares_by_line(0, grouped) > 0.95);
        assert!(shares_by_line(1, grouped) < 0.01);
        // What was in vain is not held against later keys.
        assert!(shares_by_line(0, grouped) > 0.95);
    }
}

/// What a line names is a slot that others write: its state is what it is where a window names it,
/// and no other key of a group is kept from its answer.
#[test]
fn a_slot_that_a_line_names_is_judged_by_its_state() {
    let (built, table) = table_of((0..2_000).map(|i| 1_000 * i));
    let (mut endpoint, key) = (built.endpoint(), 700_000);
    let (at, _) = built.slot_of(&key);
    let mut live = [0];
    built.memory.read_words(at, &mut live).unwrap();
    let others: Vec<u64> = (690..720).map(|i| 1_000 * i).collect();
    for (state, expected) in [
        (SlotState::Live, Ok(Some(key))),
        (SlotState::Free, Ok(None)),
        (SlotState::Frozen, Err("replaced")),
        (SlotState::Busy, Err("written")),
    ] {
        let word = if state == SlotState::Live { live[0] } else { SlotWord::new(state, 1, 0).to_bits() };
        built.memory.write_words(at, &[word]).unwrap();
        let mut scratch = LookupScratch::new(Matcher::detect());
        let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
        let told = |error: ReadError| match error {
            ReadError::Stale => "replaced",
            ReadError::Contended { .. } => "written",
            other => panic!("{other}"),
        };
        let take = |_: &Outcome, value: Option<&[u8]>| value.map(number);
        let alone = look_up(&mut endpoint, &table, &mut scratch, &key, take).map_err(told);
        assert_eq!(alone, expected, "{state:?}, alone");
        let mut scratch = LookupScratch::new(Matcher::detect());
        let group = look_up_all(&mut endpoint, &table, &mut scratch, others.iter(), Wanted::Value);
        assert_eq!(group.map_err(told).err(), expected.err(), "{state:?}, in a group");
        if state == SlotState::Busy {
            continue;
        }
        let answered: Vec<bool> = scratch.answered().take(others.len()).collect();
        for ((asked, (_, value)), is_answered) in others.iter().zip(scratch.outcomes()).zip(answered) {
            let expected = if *asked == key { expected } else { Ok(Some(*asked)) };
            assert_eq!(is_answered, expected.is_ok(), "{state:?}, {asked}");
            assert!(!is_answered || Ok(value.map(number)) == expected, "{state:?}, {asked}");
        }
    }
}
