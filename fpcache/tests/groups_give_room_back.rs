//! Memory that a long group needed is given back by the thread that looked it up. One test, alone
//! in its process: the allocator counts all threads.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test uses its share")]
#[path = "common/allocations.rs"]
mod allocations;
mod common;
#[macro_use]
#[path = "common/keys.rs"]
#[allow(unused_macros, reason = "others use them")]
mod keys;
#[path = "common/node.rs"]
mod node;

use std::borrow::Borrow;

use allocations::live;
use common::{Firsts, Region, least_bytes};
use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{LookupScratch, NearestScratch, ReadError, Side, Wanted, find_nearest, look_up_all};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::TableView;
use keys::Numbered;
use node::{Interrupted, Node};

const KEYS: usize = 100_000;

#[test]
fn what_long_groups_needed_is_given_back() {
    for plan in [Plan::TwoStage, Plan::Range] {
        a_long_group_leaves_little::<U64Keys>(plan);
        a_long_group_leaves_little::<ByteKeys>(plan);
    }
    for round_trips in [1, 4] {
        searches_leave_neither_pages_nor_slots::<U64Keys>(round_trips);
        searches_leave_neither_pages_nor_slots::<ByteKeys>(round_trips);
    }
}

/// Searches held the pages of the directory that they had come to, and the words of slots, until
/// the next call with as many keys: longer than the view whose they were.
fn searches_leave_neither_pages_nor_slots<K: Firsts>(round_trips: u32) {
    // Nothing but emptied segments.
    const PAGES: u64 = 400;
    let region = Region::<K>::new(&[K::full(); PAGES as usize]);
    let mut endpoint = region.endpoint();
    let mut scratch = NearestScratch::<K>::default();
    let before = live();
    let view = TableView::<K>::open_within(&mut endpoint, least_bytes(&region)).unwrap();
    assert!(view.models().paged().is_some());
    // One in the middle of each page.
    let keys: Vec<K::Owned> = (0..PAGES).map(|page| K::key((2 * page + 1) * K::full() as u64 * 5)).collect();
    let asked = (Side::Floor, keys.iter().map(Borrow::borrow));
    let ended = find_nearest(&mut endpoint, &view, &mut scratch, asked, |made| made < round_trips);
    assert!(matches!(ended, Err(ReadError::Unfinished { .. })), "{ended:?}");
    drop((view, keys));
    let left = live() - before;
    assert!(left < PAGES as usize * (4 << 10), "after {round_trips} round trips {left} bytes are left");
}

fn a_long_group_leaves_little<K: Numbered>(plan: Plan) {
    let node = Node::<K>::new(&[0, 10], &[(1, 1), (4, 4), (12, 12)], 8, 8);
    let view = TableView::<K>::open(&mut node.endpoint()).unwrap();
    let table = Table::over(view, &TableOptions::plan(PlanChoice::Fixed(plan))).unwrap();
    let key = K::key(4);
    let each = |count| std::iter::repeat_n(key.borrow(), count);
    for in_place in [true, false] {
        let mut endpoint = Interrupted { inner: node.endpoint(), before: Box::new(|| {}), in_place };
        let (mut scratch, before) = (LookupScratch::<K>::new(Matcher::detect()), live());
        look_up_all(&mut endpoint, &table, &mut scratch, each(KEYS), Wanted::Value).unwrap();
        assert!(live() - before > 4 << 20, "a long group");
        look_up_all(&mut endpoint, &table, &mut scratch, each(1), Wanted::Value).unwrap();
        // Room for some thousand keys stays.
        let left = live() - before;
        assert!(left < 6 << 20, "{plan:?}, in place: {in_place}: {left} bytes are left of lookups");

        let (mut scratch, before) = (NearestScratch::<K>::default(), live());
        let mut find = |count| {
            let asked = (Side::Ceiling, each(count));
            find_nearest(&mut endpoint, table.view(), &mut scratch, asked, |_| true).unwrap();
        };
        find(KEYS);
        find(1);
        let left = live() - before;
        assert!(left < 8 << 20, "{plan:?}, in place: {in_place}: {left} bytes are left of searches");
    }
}
