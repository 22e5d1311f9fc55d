//! The simulated backend passes the part of the suite that neither waits for the real clock nor
//! shares a connection between threads outside the world.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../tests/conformance/suite/mod.rs"]
#[allow(dead_code, reason = "some of it is not for a simulated clock")]
mod suite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache_fabric::{Access, AreaId, Deadline, SharedMemory};
use fpcache_sim::{MemoryOptions, NodeId, NodeOptions, SimConnection, SimOptions, World};
use suite::{Fixture, TestService};

struct Simulated {
    world: World,
    node: NodeId,
    /// What compute nodes see, written past the memory node.
    region: Arc<SharedMemory>,
    connection: SimConnection,
}

impl Fixture for Simulated {
    type Connection = SimConnection;

    fn start() -> Self {
        // The suite takes its deadlines from the machine's clock.
        let mut world = World::new(SimOptions { base: Some(Instant::now()), ..SimOptions::default() });
        let scratch = MemoryOptions { offered: Some(Access::ReadWrite), ..MemoryOptions::private(64 << 10) };
        let options = NodeOptions {
            down_time: Duration::from_secs(1 << 20),
            ..NodeOptions::new(vec![MemoryOptions::region(1 << 20), scratch])
        };
        let node = world.add_node(options, |_| Box::new(TestService::default())).unwrap();
        let region = world.visible(node, 0);
        let connection = world.sim().connect(node, Deadline::NONE).unwrap();
        Self { world, node, region, connection }
    }

    fn connection(&self) -> &SimConnection {
        &self.connection
    }

    fn region(&self) -> &SharedMemory {
        &self.region
    }

    fn scratch(&self) -> (AreaId, u64) {
        (AreaId(1), 0)
    }

    fn stop_memory_node(&mut self) {
        self.world.sim().kill_node(self.node);
    }
}

#[test]
fn the_simulated_backend_conforms() {
    suite::reads_and_writes_move_bytes(&Simulated::start());
    suite::batches_of_every_shape(&Simulated::start());
    suite::words_are_read_as_by_a_batch(&Simulated::start());
    suite::changes_take_posting_order(&Simulated::start());
    suite::bad_requests_are_refused(&Simulated::start());
    suite::atomics_agree_under_contention(&Simulated::start());
    suite::many_in_flight(&Simulated::start());
    suite::landings_stay_put(&Simulated::start());
    suite::the_meter_counts(&Simulated::start());
    suite::calls_carry_every_size(&Simulated::start());
    suite::the_end_of_the_memory_node_is_noticed(Simulated::start());
}
