//! Kills of memory nodes and clients whose READs network cards serve.

use super::*;

fn place<K: NumberedKeys>(sync: &str) -> Place {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr()).unwrap();
    Place::new::<K>(sync, None).over(Reached::Cards(free.port()))
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_nothing_acknowledged_is_lost() {
    survives_kills::<U64Keys>(place::<U64Keys>("10ms"), 9);
    survives_kills::<ByteKeys>(place::<ByteKeys>("always"), 19);
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_clients_that_are_killed_leave_nothing_locked_and_nothing_torn() {
    clients_are_killed(place::<U64Keys>("10ms"));
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_nothing_acknowledged_is_lost_in_groups() {
    let plain_and_pilots = [Grouping::plain(3, 4), Grouping::pilots(6, 2)];
    survives_kills_in_groups::<U64Keys>(place::<U64Keys>("10ms"), plain_and_pilots, 10);
    let seeded_and_pilots = [Grouping::seeded(2, 3), Grouping::pilots(4, 2)];
    survives_kills_in_groups::<ByteKeys>(place::<ByteKeys>("10ms"), seeded_and_pilots, 11);
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_nothing_acknowledged_is_lost_of_many_tables_and_of_lost_memory() {
    many_tables_survive_kills(place::<U64Keys>("10ms"));
    loses_its_memory(place::<U64Keys>("always"));
}
