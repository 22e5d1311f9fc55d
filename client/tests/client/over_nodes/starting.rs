//! What services call at every start-up: the creation of a table that may be there.

use fpcache_client::{
    CacheConfig, Client, ClientConfig, ClientError, CreateOptions, Nodes, TableParameters, U64Keys,
};

use super::{Node, config, make, name, urls};
use crate::common::TestKeys;

/// It was taken for one with other parameters, since all of the directory was fetched to see them.
#[test]
fn a_table_is_found_to_be_there_by_who_has_no_room_for_its_directory() {
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[1 << 63], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    client.put(7, &[1; 8]).unwrap();
    let small = ClientConfig::default().with_cache(CacheConfig::of(1 << 10));
    let all = Nodes::at_with(&urls(&nodes), small).unwrap();
    let create = |parameters: TableParameters| {
        all.create::<U64Keys>(&name(), parameters, &[1 << 63], CreateOptions::default())
    };
    create(U64Keys::parameters_of(Some(8))).unwrap();
    let error = create(U64Keys::parameters_of(Some(16))).unwrap_err();
    assert!(!matches!(error, ClientError::Open(_)), "{error:?}");
    assert_eq!(client.get(7).unwrap(), Some(vec![1; 8]));
}
