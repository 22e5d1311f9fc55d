//! A table that has more segments than its tables of groups have room for is opened from nothing.

use super::{newer, node_with_log};
use crate::keys::Numbered;
use crate::node::Node;
use fpcache::Refresh;
use fpcache::cache::CacheConfig;
use fpcache::layout::Grouping;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::Endpoint;

over_both_key_spaces! {
    a_table_that_outgrew_its_tables_of_groups_while_a_reader_idled_is_lost
    a_budget_has_tables_of_groups_opened_anew_when_they_have_no_room
}

/// A table whose records are said to lie in groups.
fn node_in_groups<K: Numbered>() -> Node<K> {
    let mut node = node_with_log(8);
    node.parameters.groups = Some(Grouping::plain(9, 10));
    node.checkpoint();
    node
}

fn open_in_groups<K: Numbered>(endpoint: &mut impl Endpoint, cache: Option<CacheConfig>) -> Table<K> {
    let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Fixed(Plan::Groups)) };
    let table = Table::<K>::open(endpoint, &options).unwrap();
    assert!(table.groups().is_some());
    table
}

fn a_table_that_outgrew_its_tables_of_groups_while_a_reader_idled_is_lost<K: Numbered>() {
    let firsts: Vec<u64> = (0..70).collect();
    for cache in [None, Some(CacheConfig::of(1 << 18))] {
        let mut node = node_in_groups::<K>();
        let mut endpoint = node.endpoint();
        let table = open_in_groups::<K>(&mut endpoint, cache);
        node.replace(10, Some(20), &[10]);
        node.replace(0, None, &firsts);
        node.checkpoint();
        assert!(matches!(table.view().refresh(&mut endpoint).unwrap(), Refresh::Lost), "the log is short");
        assert!(matches!(table.refreshed(&mut endpoint).unwrap(), Refresh::Lost));
    }
}

fn a_budget_has_tables_of_groups_opened_anew_when_they_have_no_room<K: Numbered>() {
    let mut node = node_in_groups::<K>();
    let mut endpoint = node.endpoint();
    let table = open_in_groups::<K>(&mut endpoint, Some(CacheConfig::of(1 << 18)));
    node.replace(10, Some(20), &[10]);
    let table = newer(table.refreshed(&mut endpoint));
    node.replace(10, Some(20), &[10, 12, 14]);
    assert!(matches!(table.refreshed(&mut endpoint).unwrap(), Refresh::Lost));
}
