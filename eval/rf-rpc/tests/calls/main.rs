//! Calls whose results are fetched: what they cost, when they switch, and that each is executed
//! once at most, whatever happens.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod batches;
mod mapped;
mod modes;
mod once;
#[cfg(feature = "rdma")]
mod rdma;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{
    Access, AreaId, ClientId, Clock, Connection, Deadline, FabricError, Handled, REGION, Service, Serving,
    SharedMemory, SystemClock, Work,
};
use fpcache_rf_rpc::{
    Client, ClientOptions, Counts, Mode, Procedures, Received, Results, RfError, RfService, Server,
    ServerOptions, Shape,
};
use fpcache_sim::{
    Faults, MemoryOptions, NodeId, NodeOptions, NodeStart, Process, SimClock, SimConnection, SimMemory,
    SimOptions, Verdict, World, explore,
};

const SECOND: Duration = Duration::from_secs(1);
const ECHO: u16 = 1;
const MANY: u16 = 2;

/// Lengths of results, by batch of requests: of one READ, of two, of several batches, too long for
/// any, none.
const BATCHES: [&[u32]; 7] =
    [&[8], &[0], &[400], &[8192, 1, 8192, 4000, 9000, 0, 8193], &[4000; 12], &[100_000, 5, 50_000], &[]];

/// How often the simulated server looks at its buffers.
const LOOK: Duration = Duration::from_nanos(100);

/// What a simulated server takes and has done.
#[derive(Default)]
struct Load {
    /// Nanoseconds for a request.
    process: AtomicU64,
    /// Nanoseconds for each reply that the server sends: an out-bound operation.
    outbound: AtomicU64,
    /// How often each request was executed, by its first eight bytes.
    executed: Mutex<HashMap<u64, u32>>,
}

impl Load {
    fn set(&self, process: Duration) {
        self.process.store(process.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// A server with one processor, which takes its time for each batch.
struct Simulated {
    server: Server<SimMemory>,
    memory: Arc<SimMemory>,
    clock: SimClock,
    load: Arc<Load>,
    queue: VecDeque<Received>,
    /// What it works on, and until when.
    current: Option<(Received, Instant)>,
    free_at: Instant,
    looks_at: Instant,
    /// Stores become visible at once, instead of by and by.
    at_once: bool,
}

impl Simulated {
    fn new(start: &NodeStart, load: &Arc<Load>, at_once: bool) -> Self {
        let memory = Arc::clone(&start.memories[1]);
        let shape = ServerOptions::default().shape;
        let options = ServerOptions { area: AreaId(1), seed: start.life, shape, ..ServerOptions::default() };
        let server = Server::new(Arc::clone(&memory), options, Arc::new(start.clock.clone())).unwrap();
        let now = start.clock.now();
        let (clock, load) = (start.clock.clone(), Arc::clone(load));
        let (queue, current) = (VecDeque::new(), None);
        Self { server, memory, clock, load, queue, current, free_at: now, looks_at: now, at_once }
    }

    /// The results of a batch: what was asked, reversed; or, for `MANY`, as many bytes as asked
    /// for.
    fn execute(&self, received: &Received) -> Vec<Vec<u8>> {
        let mut executed = self.load.executed.lock().unwrap();
        let results = received.requests().map(|request| {
            if let Some(number) = request.first_chunk() {
                *executed.entry(u64::from_le_bytes(*number)).or_default() += 1;
            }
            answer(received.rpc, request)
        });
        results.collect()
    }
}

fn answer(rpc: u16, request: &[u8]) -> Vec<u8> {
    if rpc == MANY {
        let bytes = u32::from_le_bytes(*request.last_chunk().unwrap());
        return (0..bytes).map(|at| (at % 251) as u8).collect();
    }
    request.iter().rev().copied().collect()
}

impl Service for Simulated {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.server.handle(client, request, reply).unwrap_or(Handled::Now)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let client = self.server.next_reply(reply)?;
        let outbound = Duration::from_nanos(self.load.outbound.load(Ordering::Relaxed));
        self.free_at = self.free_at.max(self.clock.now()) + outbound;
        Some(client)
    }

    fn work(&mut self) -> Work {
        while let Some(received) = self.server.recv() {
            self.queue.push_back(received);
        }
        let now = self.clock.now();
        if let Some((received, _)) = self.current.take_if(|(_, ready)| *ready <= now) {
            let results = self.execute(&received);
            self.server.send(received.id, &results).unwrap();
            if self.at_once {
                self.memory.flush();
            }
        }
        if self.current.is_none()
            && let Some(received) = self.queue.pop_front()
        {
            let process = Duration::from_nanos(self.load.process.load(Ordering::Relaxed));
            self.free_at = self.free_at.max(now) + process;
            self.current = Some((received, self.free_at));
        }
        // One look follows another, and no more of them for each request.
        if self.looks_at > now {
            return Work::Nothing;
        }
        let ready = self.current.as_ref().map(|(_, ready)| *ready).filter(|ready| *ready > now);
        self.looks_at = ready.unwrap_or(now + LOOK).min(now + LOOK);
        Work::At(self.looks_at)
    }

    fn disconnected(&mut self, client: ClientId) {
        self.server.disconnected(client);
    }
}

/// A memory node with buffers for its clients in area 1.
fn add_node(world: &mut World, load: &Arc<Load>, at_once: bool) -> NodeId {
    let buffers = MemoryOptions { offered: Some(Access::ReadWrite), ..MemoryOptions::private(2 << 20) };
    let options = NodeOptions::new(vec![MemoryOptions::region(4096), buffers]);
    let load = Arc::clone(load);
    world.add_node(options, move |start| Box::new(Simulated::new(&start, &load, at_once))).unwrap()
}

fn open(process: &Process, node: NodeId, options: ClientOptions) -> Result<Client<SimConnection>, RfError> {
    let clock = process.sim.clock();
    let deadline = clock.deadline(Duration::from_millis(2));
    let connection = process.sim.connect(node, deadline)?;
    Client::open(connection, options, Arc::new(clock), deadline)
}
