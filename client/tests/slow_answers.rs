//! Requests about tables that a memory node takes long to answer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use fpcache_client::{ClientConfig, TableName, Tables};
use fpcache_fabric::{
    ClientId, Export, Handled, HugePages, OneRegion, RegionName, Service, SharedMemory, tcp,
};

/// Longer than connections wait for silent memory nodes unless told.
const SLOW: Duration = Duration::from_millis(5_500);

/// A memory node whose processor takes long for every request.
struct Slow;

impl Service for Slow {
    fn handle(&mut self, _: ClientId, _: &[u8], reply: &mut Vec<u8>) -> Handled {
        std::thread::sleep(SLOW);
        reply.extend_from_slice(&[0; 8]);
        Handled::Now
    }
}

/// The memory node counted as gone after five seconds, while it dropped the table.
#[test]
fn a_request_over_a_socket_is_waited_for_as_long_as_its_deadline_says() {
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 16, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let at = ["tcp://127.0.0.1:0".parse().unwrap()];
    let listener = tcp::Listener::bind(&at, tcp::ListenOptions::default()).unwrap();
    let url = listener.addresses()[0].to_string();
    let _serving = listener.spawn(OneRegion::new(RegionName::default(), export, Slow)).unwrap();
    let tables = Tables::connect_with(&url, ClientConfig::default().with_deadline(4 * SLOW)).unwrap();
    tables.drop_table(&TableName::from_static("big")).unwrap();
}
