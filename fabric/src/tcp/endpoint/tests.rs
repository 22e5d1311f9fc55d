use std::io::Write;
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::connection::Connection;
use crate::memory::{HugePages, SharedMemory};
use crate::one_region::OneRegion;
use crate::region::{Export, RegionName};
use crate::service::{ClientId, Handled, Service};
use crate::tcp::frame::{Limits, ReplyHead, SERVED};
use crate::tcp::stream::Stream;
use crate::tcp::{ConnectOptions, ListenOptions, Listener, connect};

/// Never asked.
struct Idle;

impl Service for Idle {
    fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        Handled::Now
    }
}

/// A long READ was waited for as long as its bytes came faster than they were taken.
#[test]
fn a_wait_ends_with_its_deadline_though_all_of_a_long_answer_is_there() {
    const LEN: usize = 32 << 10;
    let (region, fd) = SharedMemory::create_memfd("region", LEN, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let at = ["tcp://127.0.0.1:0".parse().unwrap()];
    let listener = Listener::bind(&at, ListenOptions::default()).unwrap();
    let address = listener.addresses()[0].clone();
    let _serving = listener.spawn(OneRegion::new(RegionName::default(), export, Idle)).unwrap();
    let options = ConnectOptions { spin: Duration::ZERO, ..Default::default() };
    let mut endpoint = connect(&address, options).unwrap().endpoint();
    // Over another socket, whose other end has answered already.
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    ours.set_nonblocking(true).unwrap();
    let (mut theirs, _) = listening.accept().unwrap();
    let limits =
        Limits { batch_bytes: 64 << 10, reply_bytes: LEN as u32, call_request: 4096, call_reply: 4096 };
    endpoint.channel = Some(Box::new(Channel::new(Stream::new(ours.into(), None), limits)));
    let mut batch = Batch::new();
    // One look, and one more for what may have come with the deadline: each of 64 KiB at most.
    let frames = (2 * READS + 1) * (64 << 10) / LEN;
    theirs.set_nonblocking(true).unwrap();
    for tag in 0..frames as u16 {
        batch.read(RemoteAddr::region(0), LEN);
        let head = ReplyHead { bytes: LEN as u32, tag, status: SERVED, word: 0 }.encode();
        theirs.write_all(&head.map(u64::to_le_bytes).concat()).unwrap();
        theirs.write_all(&[7; LEN]).unwrap();
    }
    endpoint.set_patience(Duration::ZERO);
    let outcome = endpoint.execute(&mut batch);
    assert!(matches!(outcome, Err(FabricError::DeadlinePassed { .. })), "{outcome:?}");
}
