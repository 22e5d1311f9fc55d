//! Groups of keys: the fate of one does not change the answers of others, and what is under way at
//! once is bounded.

use std::borrow::Borrow;

use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{
    Lookup, LookupScratch, NearestScratch, Operation, ReadError, Side, Step, Wanted, find_nearest,
    look_up_all, look_up_more,
};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::TableView;
use fpcache_fabric::Endpoint;

use crate::keys::Numbered;
use crate::node::{Interrupted, Node};

const PLANS: [Plan; 3] = [Plan::TwoStage, Plan::Range, Plan::Speculative];

over_both_key_spaces! {
    a_replaced_segment_leaves_the_other_keys_of_a_group_their_answers
    absent_keys_of_a_group_have_no_answers_where_memory_may_have_another_use
    answers_of_further_keys_come_after_those_that_are_there
    searches_beside_a_replaced_segment_have_their_answers
    a_large_group_of_lookups_has_a_bounded_number_of_bytes_under_way
}

/// Segments of ten keys each, 0, 10, 20, …, with every even key, whose value is itself.
fn node<K: Numbered>() -> Node<K> {
    let records: Vec<(u64, u64)> = (0..25).map(|i| (2 * i, 2 * i)).collect();
    Node::new(&[0, 10, 20, 30, 40], &records, 64, 8)
}

fn table<K: Numbered>(node: &Node<K>, plan: Plan) -> Table<K> {
    let view = TableView::open(&mut node.endpoint()).unwrap();
    Table::over(view, &TableOptions::plan(PlanChoice::Fixed(plan))).unwrap()
}

fn keys<K: Numbered>() -> Vec<K::Owned> {
    (0..50).map(K::key).collect()
}

/// An endpoint over memory that is looked at in place, and one with doorbell batches.
fn endpoints<K: Numbered>(node: &Node<K>) -> [Interrupted<'static>; 2] {
    [true, false].map(|in_place| Interrupted { inner: node.endpoint(), before: Box::new(|| {}), in_place })
}

/// What a lookup that is stale has found: of each key whether there is an answer, and the value.
fn stale<K: Numbered>(node: &Node<K>, table: &Table<K>) -> [Vec<(bool, Option<u64>)>; 2] {
    let keys = keys::<K>();
    endpoints(node).map(|mut endpoint| {
        let mut scratch = LookupScratch::new(Matcher::detect());
        let each = keys.iter().map(Borrow::borrow);
        let ended = look_up_all(&mut endpoint, table, &mut scratch, each, Wanted::Value);
        assert!(matches!(ended, Err(ReadError::Stale)), "{ended:?}");
        let values = scratch.outcomes().map(|(_, value)| value.map(Node::<K>::number));
        scratch.answered().zip(values).collect()
    })
}

fn a_replaced_segment_leaves_the_other_keys_of_a_group_their_answers<K: Numbered>() {
    for plan in PLANS {
        let mut node = node::<K>();
        let table = table(&node, plan);
        node.replace(10, Some(20), &[10]);
        for found in stale(&node, &table) {
            assert_eq!(found.len(), 50);
            for (key, (is_answered, value)) in (0..).zip(found) {
                assert_eq!(is_answered, !(10..20).contains(&key), "{plan:?} {key}");
                assert!(!is_answered || value == (key % 2 == 0).then_some(key), "{plan:?} {key} {value:?}");
            }
        }
    }
}

fn absent_keys_of_a_group_have_no_answers_where_memory_may_have_another_use<K: Numbered>() {
    for plan in PLANS {
        let mut node = node::<K>();
        let table = table(&node, plan);
        node.set_head(1);
        node.reuse(1);
        for found in stale(&node, &table) {
            for (key, (is_answered, value)) in (0..).zip(found) {
                let expected = (key % 2 == 0).then_some(key);
                assert_eq!((is_answered, value), (expected.is_some(), expected), "{plan:?} {key}");
            }
        }
    }
}

fn answers_of_further_keys_come_after_those_that_are_there<K: Numbered>() {
    let mut node = node::<K>();
    let table = table(&node, Plan::TwoStage);
    node.replace(10, Some(20), &[10]);
    let keys = keys::<K>();
    let each = |numbers: &'static [usize]| numbers.iter().map(|number| keys[*number].borrow());
    for mut endpoint in endpoints(&node) {
        let mut scratch = LookupScratch::<K>::new(Matcher::detect());
        look_up_more(&mut endpoint, &table, &mut scratch, each(&[2, 3]), Wanted::Value).unwrap();
        assert!(scratch.answered().eq([true, true]));
        let ended = look_up_more(&mut endpoint, &table, &mut scratch, each(&[4, 12, 6]), Wanted::Value);
        assert!(matches!(ended, Err(ReadError::Stale)), "{ended:?}");
        assert!(scratch.answered().eq([true, false, true]));
        let values: Vec<_> = scratch.outcomes().map(|(_, value)| value.map(Node::<K>::number)).collect();
        assert_eq!((&values[..3], values[4]), (&[Some(2), None, Some(4)][..], Some(6)));
        look_up_all(&mut endpoint, &table, &mut scratch, each(&[8]), Wanted::Value).unwrap();
        assert_eq!(scratch.outcomes().len(), 1, "those of before are forgotten");
    }
}

fn searches_beside_a_replaced_segment_have_their_answers<K: Numbered>() {
    let mut node = node::<K>();
    let view = TableView::<K>::open(&mut node.endpoint()).unwrap();
    node.replace(10, Some(20), &[10]);
    let keys = keys::<K>();
    for mut endpoint in endpoints(&node) {
        let mut scratch = NearestScratch::default();
        let asked = (Side::Floor, keys.iter().map(Borrow::borrow));
        let ended = find_nearest(&mut endpoint, &view, &mut scratch, asked, |_| true);
        assert!(matches!(ended, Err(ReadError::Stale)), "{ended:?}");
        assert_eq!(scratch.answers().len(), 50);
        for ((key, is_answered), (found, _)) in (0..).zip(scratch.answered()).zip(scratch.answers()) {
            let found = found.map(|found| K::number(found.key));
            match key {
                10..20 => assert!(!is_answered, "{key}"),
                // The neighbours of others may lie in it.
                0..8 | 26..46 => assert_eq!((is_answered, found), (true, Some(key & !1)), "{key}"),
                _ => assert!(!is_answered || found == Some(key & !1), "{key} {found:?}"),
            }
        }
    }
}

fn a_large_group_of_lookups_has_a_bounded_number_of_bytes_under_way<K: Numbered>() {
    let node = Node::<K>::new(&[0, 40], &[(1, 1), (10, 10), (45, 45)], 8, 32 << 10);
    for plan in [Plan::Range, Plan::TwoStage, Plan::Speculative] {
        let table = table(&node, plan);
        let (mut endpoint, mut scratch) = (node.endpoint(), LookupScratch::<K>::new(Matcher::detect()));
        let key = K::key(10);
        // Fewer slots than would fit one doorbell only where whole windows are read.
        let count = if plan == Plan::Range { 600 } else { 2600 };
        let mut lookup = Lookup::new(&table, &mut scratch, std::iter::repeat_n(key.borrow(), count));
        let mut trips = Vec::new();
        loop {
            match lookup.step().unwrap() {
                Step::Post => {
                    trips.push(lookup.batch().tally().bytes_from);
                    endpoint.run(lookup.batch()).unwrap();
                }
                Step::Check(_) => {}
                Step::Done => break,
            }
        }
        // One key more than the bound allows may have asked.
        let most = (64 << 20) + 16 * node.geometry().slot_bytes as u64;
        assert!(trips.len() > 1 && trips.iter().all(|bytes| *bytes <= most), "{plan:?} {trips:?}");
        assert_eq!(scratch.outcomes().len(), count);
        assert!(scratch.answered().all(|is_answered| is_answered));
        let right = |value: Option<&[u8]>| value.is_some_and(|value| Node::<K>::number(value) == 10);
        assert!(scratch.outcomes().all(|(_, value)| right(value)));
    }
}
