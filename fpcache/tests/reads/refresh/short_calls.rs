//! A table that is opened, or brought up to date, by calls that have time for a few batches.

use super::{entries, newer, node, node_with_log, open};
use crate::impatient::Impatient;
use crate::keys::Numbered;
use fpcache::Refresh;
use fpcache::plan::PlanChoice;
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, Opening};
use fpcache_fabric::{Endpoint, FabricError};

over_both_key_spaces! {
    calls_of_one_batch_each_open_a_table_in_the_end
    what_was_fetched_of_a_directory_that_may_have_been_reused_is_fetched_anew
    a_refresh_that_is_cut_short_leaves_what_it_has_applied
    calls_of_two_batches_open_a_table_anew_that_fell_behind_the_log
}

fn options() -> TableOptions {
    TableOptions::plan(PlanChoice::Auto)
}

/// What a call gives that has time for this many batches.
fn call<K: Numbered>(
    endpoint: &mut impl Endpoint,
    opening: &mut Opening<K>,
    batches: usize,
) -> Option<Table<K>> {
    match Table::open_on(&mut Impatient { inner: endpoint, left: batches }, opening, &options()) {
        Ok(table) => Some(table),
        Err(OpenError::Fabric(FabricError::DeadlinePassed { .. })) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Each began with the superblock.
fn calls_of_one_batch_each_open_a_table_in_the_end<K: Numbered>() {
    let mut node = node::<K>();
    node.replace(10, Some(30), &[10, 15, 20]);
    let (mut endpoint, mut opening) = (node.endpoint(), Opening::default());
    assert!(call(&mut endpoint, &mut opening, 1).is_none(), "the superblock");
    assert!(call(&mut endpoint, &mut opening, 1).is_none(), "the root");
    let table = call::<K>(&mut endpoint, &mut opening, 1).expect("the one page");
    assert_eq!(table.view().sequence(), node.checkpoint_sequence());
    let table = newer(table.refreshed(&mut endpoint));
    assert_eq!((entries(table.view()), table.view().sequence()), (entries(&open(&node)), node.head));
}

fn what_was_fetched_of_a_directory_that_may_have_been_reused_is_fetched_anew<K: Numbered>() {
    for batches in [1, 2] {
        let mut node = node::<K>();
        let (mut endpoint, mut opening) = (node.endpoint(), Opening::default());
        assert!(call::<K>(&mut endpoint, &mut opening, batches).is_none());
        node.replace(10, Some(30), &[10, 15, 20]);
        node.checkpoint();
        node.reuse(node.head);
        // Nothing of it was: only the sequence tells.
        let table = call(&mut endpoint, &mut opening, 9).expect("time for all of it");
        assert_eq!(table.view().record().checkpoint, node.head, "{batches}");
        assert_eq!(entries(table.view()), entries(&open(&node)));
    }
}

/// Each began where the first one had, and the news only grew.
fn a_refresh_that_is_cut_short_leaves_what_it_has_applied<K: Numbered>() {
    let mut node = node_with_log::<K>(1024);
    let mut table = Table::<K>::over(open(&node), &options()).unwrap();
    while node.head < 600 {
        node.replace(10, Some(30), &[10, 15, 20]);
        node.replace(10, Some(30), &[10, 20]);
    }
    let mut endpoint = node.endpoint();
    for call in 1..=3 {
        let before = table.view().sequence();
        let mut short = Impatient { inner: &mut endpoint, left: 1 };
        assert!(table.refreshed(&mut short).is_err(), "the head alone is no news");
        table = newer(table.refreshed(&mut Impatient { inner: &mut endpoint, left: 2 }));
        assert!(table.view().sequence() > before + 200 || call == 3, "{}", table.view().sequence());
    }
    assert_eq!((entries(table.view()), table.view().sequence()), (entries(&open(&node)), node.head));
}

fn calls_of_two_batches_open_a_table_anew_that_fell_behind_the_log<K: Numbered>() {
    let mut node = node_with_log::<K>(8);
    let mut endpoint = node.endpoint();
    let table = Table::<K>::open(&mut endpoint, &options()).unwrap();
    for _ in 0..8 {
        node.replace(10, Some(20), &[10]);
        node.checkpoint();
    }
    let mut opening = Opening::default();
    // Each begins with the log's head.
    for part in ["the superblock", "the root"] {
        let mut short = Impatient { inner: &mut endpoint, left: 2 };
        assert!(table.refreshed_on(&mut short, &mut opening).is_err(), "{part}");
    }
    let mut short = Impatient { inner: &mut endpoint, left: 2 };
    let Refresh::Newer(table) = table.refreshed_on(&mut short, &mut opening).unwrap() else {
        panic!("it is")
    };
    assert_eq!((entries(table.view()), table.view().sequence()), (entries(&open(&node)), node.head));
}
