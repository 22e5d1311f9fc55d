//! Tests of drops that fail half-way, and what of a table is there until they have ended.

use super::tests::{ask, catalogue, name};
use super::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fpcache::key_space::{KeyKind, U64Keys};
use fpcache::layout::{DROPPED, REUSE_OFFSET, RecordShape, TableParameters};

use crate::catalogue::closed::ClosedTable;
use crate::catalogue::error::TableOpenError;
use crate::catalogue::hosted::LeftRegion;
use crate::recovery::{Origin, Recovery};

/// Has a client drop a table, and says what it is told in the end.
fn drop_for(catalogue: &mut Catalogue, client: u64, name: TableName) -> Result<(), Refusal> {
    let (handled, mut reply) = ask(catalogue, client, &TablesRequest::Drop { name });
    while handled == Handled::Later && catalogue.next_reply(&mut reply).is_none() {
        catalogue.work();
    }
    fpcache::message::decode_reply(&reply).map(drop)
}

/// The region was lost with the thread that failed: the drop was repeated and acknowledged, and who
/// mapped the region read on.
#[test]
fn the_readers_of_a_dropped_table_are_told_although_the_thread_panics() {
    let (mut catalogue, scripts) = catalogue(&[Work::Nothing]);
    let region = Arc::clone(catalogue.get(&name(0)).expect("it is there").node.region());
    catalogue.connected(ClientId(1), b"t0");
    catalogue.connected(ClientId(2), b"");
    scripts[0].panics_at_end.store(true, Ordering::Relaxed);
    let refusal = drop_for(&mut catalogue, 2, name(0)).expect_err("the thread fails");
    assert_eq!(refusal.code, ErrorCode::Internal);
    assert_eq!(catalogue.next_farewell(), Some(ClientId(1)));
    assert_eq!(region.load_relaxed(REUSE_OFFSET), Ok(DROPPED));
    drop_for(&mut catalogue, 2, name(0)).expect("the thread goes on with the next job");
    assert!(catalogue.export(b"t0").is_none());
}

/// A drop was refused by a panic, and the table's memory made zeros, which the next start met.
#[test]
fn a_durable_table_whose_drop_panicked_is_on_the_disk_as_it_was() {
    let (mut catalogue, scripts) = catalogue(&[Work::Nothing]);
    let region = Arc::clone(catalogue.get(&name(0)).expect("it is there").node.region());
    let table = catalogue.tables[0].as_mut().expect("it is there");
    table.recovery = Some(Recovery { origin: Origin::Nothing, keys: 0, took: Duration::ZERO });
    scripts[0].panics_at_end.store(true, Ordering::Relaxed);
    drop_for(&mut catalogue, 1, name(0)).expect_err("the thread fails");
    assert_eq!(region.load_relaxed(REUSE_OFFSET), Ok(0));
}

/// The budget came free before the memory did, seconds for a large table: others filled both.
#[test]
fn a_dropped_table_has_its_budget_as_long_as_its_memory() {
    let (mut catalogue, _) = catalogue(&[]);
    catalogue.create(name(0), KeyKind::U64, None).expect("room");
    let node = catalogue.node::<U64Keys>(&name(0)).expect("a table");
    let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
    node.load(parameters, (0..5_000u32).map(u64::from), |_, _| {}).expect("room");
    let granted = catalogue.budget().granted();
    let (dropping, _) = catalogue.detach(&name(0)).expect("it is there");
    let left = LeftRegion::of(dropping.table);
    assert_eq!(catalogue.budget().granted(), granted);
    left.give_up().expect("it may be written");
    assert_eq!(catalogue.budget().granted(), granted);
    drop(left);
    assert_eq!(catalogue.budget().granted(), 0);
}

#[test]
fn a_closed_table_is_dropped_on_a_thread_and_has_its_name_until_then() {
    let (mut catalogue, _) = catalogue(&[Work::Nothing]);
    let why = TableOpenError::Descriptors { needed: 8, left: 0 };
    catalogue.closed.insert(name(7), ClosedTable { kind: KeyKind::U64, why, left: None });
    catalogue.connected(ClientId(1), b"");
    let (handled, _) = ask(&mut catalogue, 1, &TablesRequest::Drop { name: name(7) });
    assert_eq!((handled, catalogue.closed.len()), (Handled::Later, 1));
    let mut reply = Vec::new();
    while catalogue.next_reply(&mut reply).is_none() {
        catalogue.work();
    }
    assert_eq!((fpcache::message::decode_reply(&reply), catalogue.closed.len()), (Ok(&[][..]), 0));
    let (handled, reply) = ask(&mut catalogue, 1, &TablesRequest::Drop { name: name(7) });
    let refusal = fpcache::message::decode_reply(&reply).expect_err("it is gone");
    assert_eq!((handled, refusal.code), (Handled::Now, ErrorCode::NoSuchTable));
}
