//! Memory that a long group needed is given back by the thread that looked it up. Alone in its
//! process: the allocator counts all threads.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test uses its share")]
#[path = "common/allocations.rs"]
mod allocations;
#[macro_use]
#[path = "common/keys.rs"]
#[allow(unused_macros, reason = "others use them")]
mod keys;
#[path = "common/node.rs"]
mod node;

use std::borrow::Borrow;

use allocations::live;
use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{LookupScratch, NearestScratch, Side, Wanted, find_nearest, look_up_all};
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
