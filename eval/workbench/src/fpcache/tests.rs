//! What a core's time is taken for.

use fpcache::key_space::U64Keys;
use fpcache::layout::RecordToken;
use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation};

use super::{FpCache, Options};
use crate::Sizes;
use crate::bench::System;
use crate::nic::{Background, Hosts, NicSpec, Picos};

#[test]
fn records_that_move_between_calls_take_time_of_the_memory_nodes_core() {
    let hosts = Hosts { memory_nodes: 2, cores: 2, ..Hosts::paper(NicSpec::CX6_100G) };
    let keys: Vec<u64> = (1..=40_000).map(|i| i << 20).collect();
    let sizes = Sizes { key: 8, value: 8 };
    let options = Options::published(1 << 20, sizes);
    let mut system = FpCache::<U64Keys>::new(&keys, sizes, &options, &hosts, keys.len()).unwrap();
    let shared = std::rc::Rc::clone(&system.shared);
    let of_last = &shared.nodes[3];
    let (loading, mut charged, mut reply) = (of_last.moved(), 0, Vec::new());
    // Of many inserts of one request more segments are due than are replaced during it.
    for request in 0..20 {
        let mut batch = WriteBatch::default();
        for key in keys[30_000..].iter().skip(request).step_by(40) {
            let (key, value) = (key + 1 + request as u64, Sent::Here(&[0; 8]));
            let (kind, expected) = (WriteKind::Put, RecordToken::default());
            batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
        }
        let mut bytes = Vec::new();
        batch.request(1, request as u64 + 1, false).encode::<U64Keys>(0, &mut bytes);
        charged += of_last.call(&bytes, &mut reply);
    }
    let in_calls = of_last.moved();
    (0..200).for_each(|_| shared.work(3));
    assert!(of_last.moved() > in_calls, "nothing was due any more");
    for Background { node, core, service } in std::iter::from_fn(|| system.next_background()) {
        assert_eq!((node, core), (1, Some(1)));
        charged += service;
    }
    let moved: Picos = (of_last.moved() - loading) * Options::RECORD_MOVED;
    assert_eq!(charged, moved);
}
