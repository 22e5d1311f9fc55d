//! A region or a client of another release, and memory that is no region, are refused by name.

use std::sync::Arc;
use std::time::Instant;

use crate::common::{Fixture, scattered};
use fpcache::key_space::U64Keys;
use fpcache::layout::{LAYOUT_VERSION, SuperblockError, TableParameters};
use fpcache::message::{ErrorCode, NodeStats, PROTOCOL_VERSION, Request, decode_reply};
use fpcache::table_view::OpenError;
use fpcache_fabric::{ClientId, Service, SharedMemory};
use fpcache_memserver::MemoryNode;

fn open_error(f: &Fixture) -> OpenError {
    f.open().map(|_| ()).expect_err("must not open")
}

#[test]
fn another_layout_version_is_refused_with_both_versions() {
    let f = Fixture::new(scattered(10), TableParameters::default());
    for other in [0, LAYOUT_VERSION + 1, 77, u32::MAX] {
        f.with(8, &other.to_le_bytes(), || {
            let error = open_error(&f);
            assert!(
                matches!(error, OpenError::Superblock(SuperblockError::Version { found }) if found == other)
            );
            let text = error.to_string();
            let named = [format!("version {other},"), format!("version {LAYOUT_VERSION}:")];
            assert!(named.iter().all(|part| text.contains(part)) && text.contains("same release"), "{text}");
        });
    }
    f.open().expect("nothing else was touched");
}

#[test]
fn memory_that_is_no_region_is_refused() {
    for first in [0u64, u64::MAX, u64::from_le_bytes(*b"SQLite f")] {
        let region = Arc::new(SharedMemory::anonymous(64 << 10).unwrap());
        region.fill_words(0, 8192, first).unwrap();
        let error = open_error(&Fixture::over(region, Vec::new(), TableParameters::default()));
        assert!(
            matches!(error, OpenError::Superblock(SuperblockError::Foreign(b)) if b == first.to_le_bytes())
        );
        assert!(error.to_string().contains("no FPCache region"), "{error}");
    }
}

#[test]
fn memory_too_small_for_a_superblock_is_refused() {
    let region = Arc::new(SharedMemory::anonymous(4096).unwrap());
    let f = Fixture::over(Arc::clone(&region), Vec::new(), TableParameters::default());
    assert!(matches!(open_error(&f), OpenError::Superblock(SuperblockError::Foreign(_))));
}

#[test]
fn a_region_without_a_table_says_what_to_do() {
    let region = Arc::new(SharedMemory::anonymous(64 << 10).unwrap());
    MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let error = open_error(&Fixture::over(region, Vec::new(), TableParameters::default()));
    assert!(matches!(error, OpenError::Empty) && error.to_string().contains("load"), "{error}");
}

#[test]
fn requests_of_another_protocol_version_are_refused_with_both_versions() {
    let region = Arc::new(SharedMemory::anonymous(64 << 10).unwrap());
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).unwrap();
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    Request::Stats.encode::<U64Keys>(0, &mut request);
    let other = PROTOCOL_VERSION + 8;
    request[2..4].copy_from_slice(&other.to_le_bytes());
    node.handle(ClientId(1), &request, &mut reply);
    let refusal = decode_reply(&reply).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Version);
    let named = [format!("version {other}"), format!("version {PROTOCOL_VERSION}")];
    assert!(named.iter().all(|part| refusal.message.contains(part)), "{refusal}");
}

#[test]
fn requests_that_make_no_sense_change_nothing() {
    let region = Arc::new(SharedMemory::anonymous(64 << 10).unwrap());
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).unwrap();
    let mut reply = Vec::new();
    let mut begin = Vec::new();
    let parameters = TableParameters::default();
    Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] }
        .encode::<U64Keys>(0, &mut begin);
    let version = PROTOCOL_VERSION as u8;
    let head = |operation: u8| [operation, 0, version, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let chunk_without_a_load = [head(3), [0; 16]].concat();
    let requests: [&[u8]; 9] = [
        &[],
        &[1],
        &head(99),
        &head(1)[..8],
        &[&head(1)[..], &[0]].concat(),
        &begin[..begin.len() - 1],
        &chunk_without_a_load,
        &chunk_without_a_load[..28],
        &head(4),
    ];
    for request in requests {
        node.handle(ClientId(1), request, &mut reply);
        let refusal = decode_reply(&reply).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::Invalid, "{refusal}");
    }
    assert_eq!(node.stats(), NodeStats { requests: 9, ..node.stats() });
    assert_eq!((node.stats().keys, node.stats().used_bytes), (0, 4096));
}
