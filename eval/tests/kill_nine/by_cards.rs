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
