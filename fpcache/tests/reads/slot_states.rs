//! Every state a slot and its fingerprint can be in while a record is made, replaced, removed or
//! its segment given up, in the order in which the memory node stores; by every plan: which answers
//! are allowed.

use std::borrow::Borrow;

use crate::keys::Numbered;
use crate::node::Node;
use fpcache::cache::CacheConfig;
use fpcache::layout::{Descriptor, SlotState, SlotWord};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{
    Lookup, LookupScratch, Outcome, ReadError, Scan, ScanScratch, Wanted, cache_probe, drive, look_up,
    look_up_all,
};
use fpcache::table::{Table, TableOptions};

over_both_key_spaces! {
    every_state_of_a_slot_allows_the_answers_the_table_gives
    what_cannot_be_judged_is_stale_once_memory_was_used_again
}

/// The key that is asked for; its home, and where its record lies or comes to lie.
const KEY: u64 = 4;
/// Another key with the same window, in the state's slot before or after.
const OTHER: u64 = 5;

/// An answer, or why it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Value(u64),
    Absent,
    Contended,
    Stale,
}
use Answer::{Absent, Contended, Stale, Value};

/// A state of the slot: its word, key and value, and its fingerprint.
struct State {
    name: &'static str,
    word: Word,
    body: (u64, u64),
    fingerprint: Fingerprint,
    /// For lookups that read the slot because its fingerprint says so, which read all slots if it
    /// cannot be judged, and for those that read all slots at once.
    by_fingerprint: Answer,
    by_slots: Answer,
}

enum Word {
    Free,
    Busy,
    Frozen,
    /// The word of this record.
    Live(u64, u64),
}

enum Fingerprint {
    Empty,
    Of(u64),
    Frozen,
}

#[rustfmt::skip]
fn states() -> Vec<State> {
    use Fingerprint::{Empty, Frozen as AllFrozen, Of};
    use Word::{Busy, Free, Frozen, Live};
    let state = |name, word, body, fingerprint, by_fingerprint, by_slots| State { name, word, body, fingerprint, by_fingerprint, by_slots };
    vec![
        state("never used", Free, (0, 0), Empty, Absent, Absent),
        // Insert: busy word, fingerprint, body, live word.
        state("insert: word is busy", Busy, (0, 0), Empty, Absent, Absent),
        state("insert: fingerprint is there", Busy, (0, 0), Of(KEY), Contended, Absent),
        state("insert: key but not value", Busy, (KEY, 0), Of(KEY), Contended, Contended),
        state("insert: body before fingerprint", Busy, (KEY, 1), Empty, Absent, Contended),
        state("insert: all but the word", Busy, (KEY, 1), Of(KEY), Contended, Contended),
        state("insert: done", Live(KEY, 1), (KEY, 1), Of(KEY), Value(1), Value(1)),
        // The READ of the fingerprint was earlier than that of the slot, and parts of the slot
        // were.
        state("insert: seen early, fingerprint", Live(KEY, 1), (KEY, 1), Empty, Absent, Value(1)),
        state("insert: seen early, value", Live(KEY, 1), (KEY, 0), Of(KEY), Contended, Contended),
        state("insert: seen early, key", Live(KEY, 1), (0, 1), Of(KEY), Contended, Absent),
        state("insert: seen early, word", Free, (KEY, 1), Of(KEY), Absent, Absent),
        // Into a slot that another key was removed from.
        state("reuse: the other's remains", Busy, (OTHER, 9), Of(KEY), Contended, Absent),
        state("reuse: the other's value", Busy, (KEY, 9), Of(KEY), Contended, Contended),
        // By another key, of a slot that this one was removed from.
        state("reuse by another: word is busy", Busy, (KEY, 1), Empty, Absent, Contended),
        state("reuse by another: fingerprint", Busy, (KEY, 1), Of(OTHER), Absent, Contended),
        state("reuse by another: done", Live(OTHER, 9), (OTHER, 9), Of(OTHER), Absent, Absent),
        state("reuse by another: seen late, word", Live(OTHER, 9), (KEY, 1), Of(OTHER), Absent, Contended),
        // Update: busy word, body, live word.
        state("update: word is busy", Busy, (KEY, 1), Of(KEY), Contended, Contended),
        state("update: new value", Busy, (KEY, 2), Of(KEY), Contended, Contended),
        state("update: seen early, word", Live(KEY, 1), (KEY, 2), Of(KEY), Contended, Contended),
        state("update: seen late, word", Live(KEY, 2), (KEY, 1), Of(KEY), Contended, Contended),
        state("update: done", Live(KEY, 2), (KEY, 2), Of(KEY), Value(2), Value(2)),
        // Delete: free word, empty fingerprint.
        state("delete: word is free", Free, (KEY, 1), Of(KEY), Absent, Absent),
        state("delete: done", Free, (KEY, 1), Empty, Absent, Absent),
        state("delete: seen early, word", Live(KEY, 1), (KEY, 1), Empty, Absent, Value(1)),
        // Freezing: word and fingerprint in any order. A live word is what it was.
        state("frozen: word", Frozen, (KEY, 1), Of(KEY), Stale, Stale),
        state("frozen: word of another", Frozen, (OTHER, 1), Of(OTHER), Absent, Stale),
        state("frozen: fingerprint", Live(KEY, 1), (KEY, 1), AllFrozen, Stale, Value(1)),
        state("frozen: both", Frozen, (KEY, 1), AllFrozen, Stale, Stale),
        state("frozen: remains", Frozen, (0, 0), AllFrozen, Stale, Stale),
    ]
}

/// A segment without `KEY`, and a copy of `KEY`'s remains in another slot if those are wanted.
fn node<K: Numbered>(remains: bool) -> (Node<K>, Descriptor<K>) {
    let node = Node::new(&[0, 20], &[(2, 2), (6, 6), (25, 25)], 8, 8);
    let segment = node.segments[&0].clone();
    if remains {
        let mut slot = node.slot(&segment, 7, KEY, 77);
        slot[..8].copy_from_slice(&SlotWord::new(SlotState::Free, 7, 0).to_bits().to_le_bytes());
        node.put(node.slot_at(&segment, 3), &slot);
    }
    (node, segment)
}

/// The bytes of a slot that holds a key and a value. Key 0 stands for a key that is not there yet:
/// its bytes are zero, and without a value the lengths are zero, too.
fn body<K: Numbered>(node: &Node<K>, segment: &Descriptor<K>, (key, value): (u64, u64)) -> Vec<u8> {
    let mut slot = node.slot(segment, 1, if key == 0 { KEY } else { key }, value);
    let head = 8 + node.parameters.shape.head_bytes();
    match (key, value) {
        (0, 0) => slot[8..].fill(0),
        (0, _) => slot[head..][..K::encoded_len(K::key(KEY).borrow())].fill(0),
        _ => {}
    }
    slot
}

fn write<K: Numbered>(node: &Node<K>, segment: &Descriptor<K>, index: u32, state: &State) {
    let mut slot = body(node, segment, state.body);
    let word = match state.word {
        Word::Free => SlotWord::new(SlotState::Free, 1, 0),
        Word::Busy => SlotWord::new(SlotState::Busy, 1, 0),
        Word::Frozen => SlotWord::new(SlotState::Frozen, 0, 0),
        Word::Live(key, value) => {
            SlotWord::from_bits(u64::from_le_bytes(*node.slot(segment, 1, key, value).first_chunk().unwrap()))
        }
    };
    slot[..8].copy_from_slice(&word.to_bits().to_le_bytes());
    node.put(node.slot_at(segment, index), &slot);
    let fingerprint = match state.fingerprint {
        Fingerprint::Empty => vec![0; 8],
        Fingerprint::Of(key) => node.fingerprint(key),
        Fingerprint::Frozen => vec![0xff; 8],
    };
    node.put(node.fingerprint_at(segment, index), &fingerprint);
}

fn answer(result: Result<Option<u64>, ReadError>) -> Answer {
    match result {
        Ok(Some(value)) => Value(value),
        Ok(None) => Absent,
        Err(ReadError::Contended { .. }) => Contended,
        Err(ReadError::Stale) => Stale,
        Err(error) => panic!("{error}"),
    }
}

/// What a lookup by a plan says, on its own and in a group; with a hot cache that names the slot,
/// if one is given.
fn ask<K: Numbered>(node: &Node<K>, plan: Plan, hot: Option<u32>) -> Answer {
    let cache = hot.map(|_| CacheConfig::of(1 << 17));
    let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Fixed(plan)) };
    let mut endpoint = node.endpoint();
    let table = Table::<K>::open(&mut endpoint, &options).unwrap();
    let mut handle = table.cache().map(|cache| cache.handle(1)).unwrap_or_default();
    let wanted = K::key(KEY);
    let mut name_it = || {
        if let (Some(cache), Some(slot)) = (table.cache(), hot) {
            cache.learn(&cache_probe(table.view(), wanted.borrow()).unwrap(), slot, 1000, &mut handle);
        }
    };
    let number = |value: Option<&[u8]>| value.map(Node::<K>::number);
    let mut scratch = LookupScratch::new(Matcher::detect());
    name_it();
    let single =
        look_up(&mut endpoint, &table, &mut scratch, wanted.borrow(), |_: &Outcome, value| number(value));
    name_it();
    let grouped = drive(&mut endpoint, &mut Lookup::new(&table, &mut scratch, [wanted.borrow()]))
        .map(|()| number(scratch.outcomes().next().unwrap().1));
    name_it();
    let in_place = look_up_all(&mut endpoint, &table, &mut scratch, [wanted.borrow()], Wanted::Value)
        .map(|()| number(scratch.outcomes().next().unwrap().1));
    let (single, grouped, in_place) = (answer(single), answer(grouped), answer(in_place));
    assert_eq!(single, grouped, "one by one and in a batch");
    assert_eq!(single, in_place, "one by one and in a group");
    single
}

fn scan<K: Numbered>(node: &Node<K>) -> Answer {
    let mut endpoint = node.endpoint();
    let table = Table::<K>::open(&mut endpoint, &TableOptions::plan(PlanChoice::Auto)).unwrap();
    let mut scratch = ScanScratch::default();
    let wanted = K::key(KEY);
    let mut scan = Scan::new(table.view(), &mut scratch, wanted.borrow(), 1);
    let ended = drive(&mut endpoint, &mut scan);
    let found = scan.records().find(|(key, _)| *key == wanted.borrow());
    answer(ended.map(|()| found.map(|(_, value)| Node::<K>::number(value))))
}

fn every_state_of_a_slot_allows_the_answers_the_table_gives<K: Numbered>() {
    for remains in [false, true] {
        // In the predicted slot, and in another one of the window.
        for index in [4, 5] {
            for state in states() {
                let (node, segment) = node::<K>(remains);
                write(&node, &segment, index, &state);
                let by_fingerprint = match &state.by_fingerprint {
                    Contended => state.by_slots.clone(),
                    judged => judged.clone(),
                };
                let context = format!("{}, slot {index}, remains beside it: {remains}", state.name);
                assert_eq!(ask(&node, Plan::TwoStage, None), by_fingerprint, "two-stage: {context}");
                assert_eq!(ask(&node, Plan::Range, None), state.by_slots, "range: {context}");
                // A guess finds what is live there; else the fingerprints decide, unless the slot
                // is frozen.
                let guessed = match (&state.by_slots, index) {
                    (Value(value), 4) => Value(*value),
                    (Stale, 4) => Stale,
                    _ => by_fingerprint.clone(),
                };
                assert_eq!(ask(&node, Plan::Speculative, None), guessed, "speculative: {context}");
                for plan in [Plan::TwoStage, Plan::Range, Plan::Speculative] {
                    let without = ask(&node, plan, None);
                    let cached = ask(&node, plan, Some(index));
                    // The hot cache's slot is judged first; if it tells nothing, all slots are
                    // read.
                    let allowed = match (&state.word, &state.by_slots) {
                        (Word::Live(..), Value(value)) => vec![Value(*value)],
                        (Word::Frozen, _) => vec![Stale],
                        _ => vec![without, state.by_slots.clone()],
                    };
                    assert!(allowed.contains(&cached), "cached, then {plan:?}: {cached:?}, {context}");
                }
                // Scans cannot tell a key that is coming from one that is going.
                let unsettled = matches!(state.word, Word::Busy)
                    || state.by_slots == Contended
                    || matches!(state.word, Word::Live(..)) && state.name.contains("key");
                let scanned = scan(&node);
                match (&state.word, unsettled) {
                    (_, true) => assert_eq!(scanned, Contended, "scan: {context}"),
                    (Word::Frozen, _) => assert_eq!(scanned, Stale, "scan: {context}"),
                    _ => assert_eq!(scanned, state.by_slots, "scan: {context}"),
                }
            }
        }
    }
}

fn what_cannot_be_judged_is_stale_once_memory_was_used_again<K: Numbered>() {
    for state in states() {
        let (mut node, segment) = node::<K>(false);
        write(&node, &segment, 4, &state);
        let tables: Vec<(Table<K>, Plan)> = [Plan::TwoStage, Plan::Range, Plan::Speculative]
            .map(|plan| {
                (
                    Table::<K>::open(&mut node.endpoint(), &TableOptions::plan(PlanChoice::Fixed(plan)))
                        .unwrap(),
                    plan,
                )
            })
            .into();
        let before: Vec<Answer> = tables.iter().map(|(_, plan)| ask(&node, *plan, None)).collect();
        node.set_head(1);
        node.reuse(1);
        for ((table, plan), before) in tables.iter().zip(before) {
            let mut scratch = LookupScratch::new(Matcher::detect());
            let mut endpoint = node.endpoint();
            let take = |_: &Outcome, v: Option<&[u8]>| v.map(Node::<K>::number);
            let after = answer(look_up(&mut endpoint, table, &mut scratch, K::key(KEY).borrow(), take));
            let expected = if let Value(value) = before { Value(value) } else { Stale };
            assert_eq!(after, expected, "{}, {plan:?}", state.name);
        }
    }
}

#[test]
#[cfg(feature = "sabotage")]
fn what_is_left_out_on_purpose_shows_in_the_answers() {
    assert_shows::<fpcache::key_space::U64Keys>();
    assert_shows::<fpcache::key_space::ByteKeys>();
}

#[cfg(feature = "sabotage")]
fn assert_shows<K: Numbered>() {
    use fpcache::sabotage::Sabotage;
    let (mut node, segment) = node::<K>(false);
    // A live word over half of another record.
    let torn = states().into_iter().find(|state| state.name == "update: new value").unwrap();
    write(&node, &segment, 4, &State { word: Word::Live(KEY, 1), ..torn });
    let mut answers = |sabotage: Option<Sabotage>, key: u64| {
        let options = TableOptions { sabotage, ..TableOptions::plan(PlanChoice::Fixed(Plan::TwoStage)) };
        let (mut endpoint, mut scratch) = (node.endpoint(), LookupScratch::new(Matcher::detect()));
        let table = Table::<K>::open(&mut endpoint, &options).unwrap();
        node.set_head(node.head + 1);
        node.reuse(node.head);
        let take = |_: &Outcome, v: Option<&[u8]>| v.map(Node::<K>::number);
        let answer = answer(look_up(&mut endpoint, &table, &mut scratch, K::key(key).borrow(), take));
        node.checkpoint();
        answer
    };
    assert_eq!([None, Some(Sabotage::NoChecksum)].map(|s| answers(s, KEY)), [Stale, Value(2)]);
    assert_eq!([None, Some(Sabotage::NoReuseCheck)].map(|s| answers(s, 7)), [Stale, Absent]);
}
