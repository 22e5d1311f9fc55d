//! What services call at every start-up: the creation of a table that may be there.

use std::sync::Barrier;
use std::thread;

use fpcache_client::{
    CacheConfig, Client, ClientConfig, ClientError, CreateOptions, Nodes, TableName, TableParameters, U64Keys,
};

use super::{Node, config, make, name, urls};
use crate::common::{PATIENCE, TestKeys, patient};

/// It was taken for one with other parameters, since all of the directory was fetched to see them.
#[test]
fn a_table_is_found_to_be_there_by_who_has_no_room_for_its_directory() {
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[1 << 63], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    for number in 0..600u64 {
        client.put(number << 54, &[1; 8]).unwrap();
    }
    let small = patient().with_cache(CacheConfig::of(1 << 10));
    let all = Nodes::at_with(&urls(&nodes), small).unwrap();
    let create = |parameters: TableParameters| {
        all.create::<U64Keys>(&name(), parameters, &[1 << 63], CreateOptions::default())
    };
    create(U64Keys::parameters_of(Some(8))).unwrap();
    let error = create(U64Keys::parameters_of(Some(16))).unwrap_err();
    assert!(!matches!(error, ClientError::Open(_)), "{error:?}");
    assert_eq!(client.get(7 << 54).unwrap(), Some(vec![1; 8]));
}

/// Each removed what the others had begun, and most ended with an error: of a table that does not
/// exist, though it was there a moment later.
#[test]
fn processes_that_start_at_once_all_find_the_table() {
    let nodes = [Node::tcp(), Node::tcp()];
    let list = urls(&nodes);
    for round in 0..4 {
        let (barrier, table) = (Barrier::new(3), format!("t{round}").parse::<TableName>().unwrap());
        let start = || {
            let config = ClientConfig::default().with_deadline(PATIENCE).with_table(table);
            let all = Nodes::at_with(&list, config.clone()).unwrap();
            barrier.wait();
            let options = CreateOptions::default().with_region_bytes(1 << 20);
            all.create::<U64Keys>(&table, TableParameters::default(), &[1000], options)?;
            Client::connect_with(&list, config)?.put(round, &[1; 8])
        };
        thread::scope(|scope| {
            let started: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
            started.into_iter().for_each(|started| started.join().unwrap().unwrap());
        });
    }
}
