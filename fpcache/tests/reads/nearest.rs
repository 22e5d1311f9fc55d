//! Floors and ceilings of a table that changes while they are looked for, by doorbell batches and
//! in place.

use std::borrow::Borrow;
use std::cell::Cell;

use fpcache::key_space::U64Keys;
use fpcache::layout::{SlotState, SlotWord};
use fpcache::read::{
    Cost, Nearest, NearestScratch, Neighbour, Operation, ReadError, Side, Step, find_nearest,
    find_nearest_again, find_nearest_to,
};
use fpcache::table_view::TableView;
use fpcache_fabric::{Endpoint, FabricError};

use crate::keys::Numbered;
use crate::node::{Interrupted, Node};

over_both_key_spaces! {
    a_slot_that_does_not_matter_keeps_no_search_waiting
    a_slot_that_matters_and_is_being_written_is_waited_for
    a_record_whose_state_was_damaged_to_free_is_passed_over_by_no_search
    a_search_that_is_told_to_stop_says_so
    another_search_keeps_answers_and_little_else
    what_a_memory_node_has_left_behind_is_no_answer
    a_large_group_has_a_bounded_number_of_bytes_under_way
    what_comes_between_two_looks_leaves_answers_of_one_instant
}

/// What is nearest to a key, both by doorbell batches and in place.
fn nearest<K: Numbered>(node: &Node<K>, side: Side, key: u64) -> Result<Option<u64>, String> {
    let [batches, in_place] = [false, true].map(|in_place| {
        let mut endpoint = Interrupted { inner: node.endpoint(), before: Box::new(|| {}), in_place };
        let view = TableView::<K>::open(&mut endpoint).unwrap();
        let (mut scratch, key) = (NearestScratch::default(), K::key(key));
        find_nearest(&mut endpoint, &view, &mut scratch, (side, [key.borrow()]), |_| true)
            .map_err(|error| error.to_string())?;
        Ok(scratch.answers().next().unwrap().0.map(|found| K::number(found.key)))
    });
    assert_eq!(batches, in_place);
    batches
}

fn make_busy<K: Numbered>(node: &Node<K>, index: u32) {
    let at = node.slot_at(&node.segments[&0], index);
    node.put(at, &SlotWord::new(SlotState::Busy, 9, 0).to_bits().to_le_bytes());
}

/// Records as they were loaded, the first two in the slots of their numbers, two apart from each
/// other's windows.
fn sparse<K: Numbered>() -> Node<K> {
    let node = Node::new(&[0, 40], &[(45, 45)], 8, 8);
    [1, 10].into_iter().for_each(|number| insert(&node, number, 1));
    node
}

/// Neighbours that were found in place counted as answers when it was seen after that that the
/// memory node had gone, so that a client kept them while it asked the next one for others.
fn what_a_memory_node_has_left_behind_is_no_answer<K: Numbered>() {
    let node = sparse::<K>();
    let mut endpoint = node.endpoint();
    let view = TableView::<K>::open(&mut endpoint).unwrap();
    let (mut scratch, key) = (NearestScratch::default(), K::key(11));
    let mut floor = || {
        let ended = find_nearest(&mut endpoint, &view, &mut scratch, (Side::Floor, [key.borrow()]), |_| true);
        (ended, scratch.answered().any(|is_answered| is_answered))
    };
    assert!(matches!(floor(), (Ok(()), true)));
    drop(node);
    let (ended, is_answered) = floor();
    assert!(matches!(ended, Err(ReadError::Fabric(FabricError::Disconnected { .. }))), "{ended:?}");
    assert!(!is_answered);
}

fn a_slot_that_does_not_matter_keeps_no_search_waiting<K: Numbered>() {
    let node = sparse::<K>();
    // Read with the windows, but further off than the record's own window.
    make_busy(&node, 4);
    assert_eq!(nearest(&node, Side::Floor, 11), Ok(Some(10)));
    make_busy(&node, 14);
    assert_eq!(nearest(&node, Side::Ceiling, 9), Ok(Some(10)));
}

fn a_slot_that_matters_and_is_being_written_is_waited_for<K: Numbered>() {
    let node = sparse::<K>();
    make_busy(&node, 12);
    let contended = ReadError::Contended { attempts: 100 }.to_string();
    assert_eq!(nearest(&node, Side::Floor, 12), Err(contended.clone()));
    assert_eq!(nearest(&node, Side::Ceiling, 9), Err(contended));
}

/// Beside a slot that was rewritten, so that all have to be looked at again.
fn a_record_whose_state_was_damaged_to_free_is_passed_over_by_no_search<K: Numbered>() {
    let node = Node::<K>::new(&[0, 40], &[(45, 45)], 8, 8);
    [(4, 1), (5, 9), (7, 1), (9, 1)].into_iter().for_each(|(number, version)| insert(&node, number, version));
    assert_eq!(nearest(&node, Side::Floor, 7), Ok(Some(7)));
    assert_eq!(nearest(&node, Side::Ceiling, 7), Ok(Some(7)));
    let segment = &node.segments[&0];
    let slot = node.slot(segment, 1, 7, 107);
    let word = u64::from_le_bytes(*slot.first_chunk().unwrap());
    let free = word & !3;
    assert_eq!(SlotWord::from_bits(free).state(), SlotState::Free);
    assert!(!SlotWord::from_bits(free).is_free(), "a checksum stays");
    node.put(node.slot_at(segment, 7), &free.to_le_bytes());
    for side in [Side::Floor, Side::Ceiling] {
        let found = nearest(&node, side, 7);
        assert!(found.is_err(), "{side:?} {found:?}");
    }
}

#[test]
fn what_is_nearest_to_the_ends_of_all_keys_is_found_however_far_off_it_is() {
    let node = sparse::<U64Keys>();
    assert_eq!(nearest(&node, Side::Floor, u64::MAX), Ok(Some(45)));
    // Segments that were emptied, so that nothing lies where the greatest key would.
    let empty = |first: u64| {
        let freed = SlotWord::new(SlotState::Free, 9, 0).to_bits().to_le_bytes();
        (0..16).for_each(|slot| node.put(node.slot_at(&node.segments[&first], slot), &freed));
    };
    empty(40);
    assert_eq!(nearest(&node, Side::Floor, u64::MAX), Ok(Some(10)));
    empty(0);
    assert_eq!(nearest(&node, Side::Floor, u64::MAX), Ok(None));
    assert_eq!(nearest(&node, Side::Ceiling, 0), Ok(None));
}

#[test]
fn a_keys_own_record_is_found_in_one_look_beside_slots_that_were_changed() {
    let node = sparse::<U64Keys>();
    let view = TableView::<U64Keys>::open(&mut node.endpoint()).unwrap();
    insert(&node, 12, 9);
    let mut endpoint = Interrupted { inner: node.endpoint(), before: Box::new(|| {}), in_place: true };
    let mut scratch = NearestScratch::default();
    let mut looks = |key: u64| {
        let take = |found: Option<Neighbour<'_, U64Keys>>, cost: Cost| {
            (found.map(|found| *found.key), cost.round_trips)
        };
        find_nearest_to(&mut endpoint, &view, &mut scratch, (Side::Floor, &key), |_| true, take).unwrap()
    };
    assert_eq!(looks(10), (Some(10), 1));
    assert_eq!(looks(12), (Some(12), 1));
    assert_eq!(looks(11), (Some(10), 2), "another one's, which may have come between");
    // What is left of a record is not one.
    delete(&node, 12, 10);
    assert_eq!(looks(12), (Some(10), 2));
}

#[test]
fn the_record_of_key_0_is_found_in_place_among_free_slots_of_zeros() {
    let node = Node::<U64Keys>::new(&[0, 40], &[(0, 0), (10, 10)], 8, 8);
    let view = TableView::<U64Keys>::open(&mut node.endpoint()).unwrap();
    for (side, key) in [(Side::Ceiling, 0), (Side::Floor, 0), (Side::Floor, 3)] {
        let mut endpoint = Interrupted { inner: node.endpoint(), before: Box::new(|| {}), in_place: true };
        let mut scratch = NearestScratch::default();
        let number = |found: Option<Neighbour<'_, U64Keys>>, _| found.map(|found| *found.key);
        let found =
            find_nearest_to(&mut endpoint, &view, &mut scratch, (side, &key), |_| true, number).unwrap();
        assert_eq!(found, Some(0), "{side:?} {key}");
        // Doorbell batches leave their answers there.
        assert_eq!(scratch.answers().len(), 0, "{side:?} {key}");
    }
}

fn a_search_that_is_told_to_stop_says_so<K: Numbered>() {
    // Nothing but the first record, thirty segments before the key.
    let firsts: Vec<u64> = (0..31).map(|i| i * 16).collect();
    let node = Node::<K>::new(&firsts, &[(1, 1)], 8, 8);
    let mut endpoint = node.endpoint();
    let view = TableView::<K>::open(&mut endpoint).unwrap();
    let (mut scratch, key) = (NearestScratch::default(), K::key(490));
    let mut asked = Vec::new();
    let mut find = |most: u32| {
        find_nearest(&mut endpoint, &view, &mut scratch, (Side::Floor, [key.borrow()]), |round_trips| {
            asked.push(round_trips);
            round_trips < most
        })
    };
    let stopped = find(2);
    assert!(matches!(stopped, Err(ReadError::Unfinished { round_trips: 2 })), "{stopped:?}");
    find(u32::MAX).unwrap();
    assert!(asked.starts_with(&[1, 2, 1, 2, 3]), "{asked:?}");
    assert_eq!(scratch.answers().next().unwrap().0.map(|found| K::number(found.key)), Some(1));
}

fn another_search_keeps_answers_and_little_else<K: Numbered>() {
    let node = sparse::<K>();
    let mut endpoint = node.endpoint();
    let view = TableView::<K>::open(&mut endpoint).unwrap();
    let (mut scratch, keys) = (NearestScratch::default(), [11, 44, 50].map(K::key));
    let keys = || keys.iter().map(Borrow::borrow);
    find_nearest(&mut endpoint, &view, &mut scratch, (Side::Floor, keys().take(1)), |_| true).unwrap();
    delete(&node, 10, 7);
    let mut again = |most| {
        find_nearest_again(&mut endpoint, &view, &mut scratch, (Side::Floor, keys()), |trips| trips < most)
            .map_err(|_| scratch.kept_bytes())
    };
    for _ in 0..1000 {
        // What was changed takes two round trips.
        assert!(again(1).unwrap_err() < 4 << 10);
    }
    again(u32::MAX).unwrap();
    let found = scratch.answers().map(|(found, _)| found.map(|found| K::number(found.key)));
    assert!(found.eq([Some(10), Some(1), Some(45)]));
}

fn a_large_group_has_a_bounded_number_of_bytes_under_way<K: Numbered>() {
    let node = Node::<K>::new(&[0, 40], &[(1, 1), (10, 10), (45, 45)], 8, 32 << 10);
    let mut endpoint = node.endpoint();
    let view = TableView::<K>::open(&mut endpoint).unwrap();
    let (mut scratch, key) = (NearestScratch::default(), K::key(11));
    let (count, guards) = (600, endpoint.guards());
    let keys = std::iter::repeat_n(key.borrow(), count);
    let mut search = Nearest::new(&view, &mut scratch, Side::Floor, keys, guards);
    let mut trips = Vec::new();
    loop {
        match search.step().unwrap() {
            Step::Post => {
                trips.push(search.batch().tally().bytes_from);
                endpoint.run(search.batch()).unwrap();
            }
            Step::Check(_) => {}
            Step::Done => break,
        }
    }
    // One search more than the bound allows may have asked.
    let most = (64 << 20) + 16 * node.geometry().slot_bytes as u64;
    assert!(trips.len() > 1 && trips.iter().all(|bytes| *bytes <= most), "{trips:?}");
    drop(search);
    assert_eq!(scratch.answers().len(), count);
    assert!(scratch.answers().all(|(found, _)| found.is_some_and(|found| K::number(found.key) == 10)));
}

/// A record in the slot of its number, as an insert leaves it.
fn insert<K: Numbered>(node: &Node<K>, number: u64, version: u32) {
    let segment = &node.segments[&0];
    let slot = node.slot(segment, version, number, 100 + number);
    node.put(node.slot_at(segment, number as u32), &slot);
    node.put(node.fingerprint_at(segment, number as u32), &node.fingerprint(number));
}

fn delete<K: Numbered>(node: &Node<K>, number: u64, version: u32) {
    let at = node.slot_at(&node.segments[&0], number as u32);
    node.put(at, &SlotWord::new(SlotState::Free, version, 0).to_bits().to_le_bytes());
}

/// The numbers of the record nearest to a key and of its value, asked for alone or in a group.
fn found_by<K: Numbered>(
    endpoint: &mut Interrupted<'_>,
    view: &TableView<K>,
    (side, key): (Side, u64),
    alone: bool,
) -> Option<(u64, u64)> {
    let (mut scratch, wanted) = (NearestScratch::default(), K::key(key));
    let numbers = |found: Option<Neighbour<'_, K>>| {
        found.map(|found| (K::number(found.key), Node::<K>::number(found.value)))
    };
    if alone {
        let asked = (side, wanted.borrow());
        return find_nearest_to(endpoint, view, &mut scratch, asked, |_| true, |found, _| numbers(found))
            .unwrap();
    }
    find_nearest(endpoint, view, &mut scratch, (side, [wanted.borrow()]), |_| true).unwrap();
    numbers(scratch.answers().next().unwrap().0)
}

/// What happens to a table before some look, and what is nearest to a key before the first event
/// and after each.
type Script<K> = (Side, u64, [fn(&Node<K>); 2], [Option<u64>; 3]);

fn what_comes_between_two_looks_leaves_answers_of_one_instant<K: Numbered>() {
    let scripts: [Script<K>; 5] = [
        (
            Side::Floor,
            12,
            [|node| insert(node, 12, 7), |node| insert(node, 11, 8)],
            [Some(10), Some(12), Some(12)],
        ),
        (
            Side::Floor,
            11,
            [|node| delete(node, 10, 7), |node| insert(node, 9, 8)],
            [Some(10), Some(1), Some(9)],
        ),
        (
            Side::Floor,
            11,
            [|node| insert(node, 11, 7), |node| delete(node, 10, 8)],
            [Some(10), Some(11), Some(11)],
        ),
        (
            Side::Ceiling,
            8,
            [|node| insert(node, 8, 7), |node| insert(node, 9, 8)],
            [Some(10), Some(8), Some(8)],
        ),
        (
            Side::Ceiling,
            9,
            [|node| delete(node, 10, 7), |node| insert(node, 10, 8)],
            [Some(10), Some(45), Some(10)],
        ),
    ];
    for (script, (side, key, events, answers)) in scripts.into_iter().enumerate() {
        let node = sparse::<K>();
        let mut seen = vec![nearest(&node, side, key).unwrap()];
        for event in events {
            event(&node);
            seen.push(nearest(&node, side, key).unwrap());
        }
        assert_eq!(seen, answers, "script {script}, nothing between looks");
        for (first, second) in (0..9).flat_map(|first| (first..9).map(move |second| (first, second))) {
            for (in_place, alone) in [(false, false), (true, false), (true, true)] {
                let node = sparse::<K>();
                let view = TableView::<K>::open(&mut node.endpoint()).unwrap();
                let looks = Cell::new(0);
                let before = Box::new(|| {
                    let look = looks.replace(looks.get() + 1);
                    for (_, event) in [first, second].iter().zip(events).filter(|(at, _)| **at == look) {
                        event(&node);
                    }
                });
                let mut endpoint = Interrupted { inner: node.endpoint(), before, in_place };
                let found = found_by(&mut endpoint, &view, (side, key), alone);
                let happened = [first, second].iter().filter(|at| **at < looks.get()).count();
                let what =
                    format!("script {script}, events before looks {first} and {second}, {in_place} {alone}");
                assert!(answers[..=happened].contains(&found.map(|found| found.0)), "{what}: {found:?}");
                let is_value = |(number, value)| value == number || value == 100 + number;
                assert!(found.is_none_or(is_value), "{what}: {found:?}");
            }
        }
    }
}

#[test]
fn no_farther_record_is_found_when_the_slot_of_the_nearest_is_used_again_between_looks() {
    for (side, look, alone) in [Side::Floor, Side::Ceiling]
        .into_iter()
        .flat_map(|side| (0..8).flat_map(move |look| [true, false].map(|alone| (side, look, alone))))
    {
        // Keys and slots from the first on, or from the last down.
        let turned = |number: u64| if side == Side::Floor { number } else { 15 - number };
        let node = Node::<U64Keys>::new(&[0, 40], &[(45, 45)], 8, 8);
        let segment = &node.segments[&0];
        let put = |key: u64, slot: u64, version: u32| {
            let bytes = node.slot(segment, version, turned(key), turned(key));
            node.put(node.slot_at(segment, turned(slot) as u32), &bytes);
        };
        // Slots from 8 on are looked at first, where 8 is the nearest; then those from 6 on.
        put(8, 9, 1);
        put(9, 7, 1);
        let view = TableView::<U64Keys>::open(&mut node.endpoint()).unwrap();
        let looks = Cell::new(0);
        let before = Box::new(|| {
            if looks.replace(looks.get() + 1) == look {
                put(12, 12, 7);
                delete(&node, turned(7), 8);
                put(5, 7, 9);
            }
        });
        let mut endpoint = Interrupted { inner: node.endpoint(), before, in_place: true };
        let found = found_by(&mut endpoint, &view, (side, turned(14)), alone).map(|found| found.0);
        let answers = [9, 12].map(|number| Some(turned(number)));
        assert!(answers.contains(&found), "{side:?}, before look {look}, {alone}: {found:?}");
    }
}
