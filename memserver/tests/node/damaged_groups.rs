//! Tables of groups that are damaged in memory, and inserts beside them.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::U64Keys;
use fpcache::layout::{Grouping, RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache::read::ReadError;
use fpcache_fabric::SharedMemory;
use fpcache_memserver::MemoryNode;

use crate::common::keys::Integers;
use crate::common::requests::Writer;
use crate::common::{Fixture, GROUPS, scattered};

/// Readers keep tables as they were: what is inserted by one that has been damaged since would lie where they do not look.
#[test]
fn what_is_inserted_beside_a_damaged_table_is_found_by_readers_who_have_it_whole() {
    let mut inserted = 0;
    for (grouping, bit) in [Grouping::plain(4, 5), Grouping::seeded(2, 5), Grouping::pilots(8, 3)]
        .into_iter()
        .flat_map(|grouping| (0..64).map(move |bit| (grouping, bit)))
    {
        let parameters = TableParameters { epsilon: 4, groups: Some(grouping), ..TableParameters::default() };
        let region = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
        let mut node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
        let keys = scattered(120);
        node.load_records(parameters, (), keys.iter().map(|key| (*key, key.to_le_bytes()))).unwrap();
        let f = Fixture::<Integers>::over(region, keys, parameters);
        let mut reader = f.reader(GROUPS[0]);
        f.keys.iter().for_each(|key| assert!(reader.get(*key).unwrap().is_some()));
        let view = f.open().unwrap();
        let (_, segment) = view.models().resident().unwrap().iter().next().unwrap();
        let (geometry, cap) = (f.geometry(), segment.model().cap);
        let offset = segment.address().offset() + geometry.table_offset(cap) as u64;
        let len = geometry.table_bytes(cap);
        // Of separators, seeds and pilots.
        let at = offset + 8 + bit / 8 % (len as u64 - 8);
        f.region.write_bytes(at, &[f.bytes(at, 1)[0] ^ 1 << (bit % 8)]).unwrap();
        let mut writer = Writer::<Integers>::new(1);
        for key in f.keys.windows(2).take(40).map(|pair| pair[0] + 1).filter(|key| !f.keys.contains(key)) {
            let value = key.to_le_bytes();
            let reply = writer.one(&mut node, WriteKind::Insert, key, RecordToken::default(), &value);
            assert_eq!(reply.status, WriteStatus::Done);
            inserted += 1;
            let found = reader.get(key);
            // Who reads of a segment that was replaced opens the table anew.
            let is_right = matches!(found, Err(ReadError::Stale) | Ok(Some(_)));
            assert!(is_right, "{grouping:?}, bit {bit}, key {key}: {found:?}");
        }
        node.audit().expect("the segment was replaced");
    }
    assert!(inserted > 5000);
}
