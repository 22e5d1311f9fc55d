//! Drops that leave their region to those who map it.

use std::sync::Arc;

use fpcache::layout::{DROPPED, REUSE_OFFSET};
use fpcache::sabotage::Sabotage;
use fpcache_client::{KeyKind, U64Keys};
use fpcache_memserver::{Catalogue, CatalogueConfig};

use super::place::name;

/// Whether those who map the region of a table are told by its word that it was dropped: until they
/// are hung up on they know it from nothing else.
fn readers_are_told(sabotage: Option<Sabotage>) -> bool {
    let mut catalogue = Catalogue::open(&CatalogueConfig::of(1 << 20)).expect("memory");
    catalogue.sabotage(sabotage);
    catalogue.create(name(0), KeyKind::U64, None).expect("room");
    let region = Arc::clone(catalogue.node::<U64Keys>(&name(0)).expect("it is there").region());
    catalogue.drop_table(&name(0)).expect("it is there");
    region.load_relaxed(REUSE_OFFSET).expect("a word") == DROPPED
}

#[test]
fn drops_that_leave_their_region_to_readers_are_found() {
    assert!(readers_are_told(None));
    assert!(!readers_are_told(Some(Sabotage::DropLeavesRegion)), "it is found");
}
