//! What readers keep of the groups that they have looked up.

use fpcache::layout::TableParameters;
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_fabric::{Serving, shm};
use fpcache_memserver::{Catalogue, CatalogueConfig};

use super::*;
use crate::answers::Answers;
use crate::client::{Client, Transport};
use crate::config::ClientConfig;
use crate::nodes::Nodes;

/// A memory node on threads of this process, over sockets or mapped memory.
fn start(over_sockets: bool) -> (String, Serving) {
    let catalogue = Catalogue::open(&CatalogueConfig::of(64 << 20)).expect("memory");
    if over_sockets {
        let any = "tcp://127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(&[any], ListenOptions::default()).expect("a port");
        return (listener.addresses()[0].to_string(), listener.spawn(catalogue).expect("a thread"));
    }
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("fpcache-kept-{}-{number}", std::process::id());
    let address = shm::ShmAddress::named(&name).expect("a name");
    let listener = shm::Listener::bind(&address, shm::ListenOptions::default()).expect("a free name");
    (address.to_string(), listener.spawn(catalogue).expect("a thread"))
}

/// They kept the values of the last group, and the caller's buffers for those of the one before.
#[test]
fn readers_keep_no_values_of_a_group_of_several_memory_nodes() {
    for over_sockets in [true, false] {
        let (nodes, _serving): (Vec<String>, Vec<Serving>) =
            [(); 2].map(|()| start(over_sockets)).into_iter().unzip();
        let table = "t".parse().expect("a name");
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 64 };
        let all = Nodes::at(&nodes.join(",")).expect("URLs");
        let parameters = TableParameters { shape, ..TableParameters::default() };
        all.create::<U64Keys>(&table, parameters, &[100], Default::default()).expect("a table");
        let config = ClientConfig::default().with_table(table);
        let client = Client::connect_with(&nodes[0], config).expect("it is there");
        let keys = [1, 2, 101, 102];
        keys.iter().for_each(|key| client.put(*key, &vec![7; 2 << 20]).expect("room"));
        let mut answers = Answers::new();
        for _ in 0..2 {
            client.multi_get_into(&keys, &mut answers).expect("answers");
            assert!(answers.values().all(|value| value.is_some_and(|value| value.len() == 2 << 20)));
        }
        let Transport::Pool(pool) = &client.transport else { panic!("it is over several") };
        pool.here(|held| {
            assert!(held.answers.is_empty());
            assert!(held.parts.iter().all(Outcomes::is_empty));
        });
    }
}

#[test]
fn the_room_for_a_long_group_is_not_kept() {
    let mut answers = Outcomes::default();
    for count in [KEPT_ANSWERS, KEPT_ANSWERS + 1] {
        (0..count).for_each(|_| answers.push_server_side(None, &[], 0));
        clear_answers(&mut answers);
        assert!(answers.is_empty());
    }
}
