//! Calls whose results are fetched: what they cost, when they switch, and that each is executed once at most, whatever happens.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::rf_rpc::{
    Batcher, BatcherOptions, Client, ClientOptions, Counts, Measured, Mode, Procedures, Received, Results,
    RfError, RfService, Server, ServerOptions, Shape, Tuner, select,
};
use fpcache_fabric::sim::{
    Faults, MemoryOptions, NodeId, NodeOptions, NodeStart, Process, SimClock, SimConnection, SimMemory,
    SimOptions, Verdict, World, explore,
};
use fpcache_fabric::{
    Access, AreaId, ClientId, Clock, Connection, Deadline, FabricError, Handled, REGION, Service, Serving,
    SharedMemory, SystemClock, Work,
};

const SECOND: Duration = Duration::from_secs(1);
const ECHO: u16 = 1;
const MANY: u16 = 2;

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

    /// The results of a batch: what was asked, reversed; or of `MANY` so many bytes.
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

#[test]
fn a_small_call_takes_two_requests() {
    for seed in 0..8 {
        let mut world = World::new(SimOptions::calm().with_seed(seed));
        let load = Arc::new(Load::default());
        load.set(Duration::from_nanos(100));
        let node = add_node(&mut world, &load, true);
        let (counts, cost) = (Arc::new(Mutex::new(Counts::default())), Arc::new(AtomicU64::new(0)));
        let (told, spent) = (Arc::clone(&counts), Arc::clone(&cost));
        world.spawn("client", move |process| {
            let mut client = open(&process, node, ClientOptions::default()).unwrap();
            let (mut result, before) = (Vec::new(), client.meter());
            for call in 0..500u64 {
                client.call(ECHO, &call.to_le_bytes(), &mut result, Deadline::NONE).unwrap();
                assert_eq!(result, answer(ECHO, &call.to_le_bytes()));
            }
            spent.store((client.meter() - before).requests(), Ordering::Relaxed);
            *told.lock().unwrap() = client.counts();
        });
        world.run().unwrap();
        let counts = *counts.lock().unwrap();
        assert!(cost.load(Ordering::Relaxed) <= 1005, "seed {seed}: {cost:?} of 500 calls, {counts:?}");
        assert_eq!((counts.batches, counts.replied, counts.second), (500, 0, 0));
    }
}

#[test]
fn the_switch_settles_within_two_calls() {
    for seed in 0..10 {
        let mut world = World::new(SimOptions::calm().with_seed(seed));
        let load = Arc::new(Load::default());
        let node = add_node(&mut world, &load, true);
        world.spawn("client", move |process| {
            let mut client = open(&process, node, ClientOptions::default()).unwrap();
            let call = |client: &mut Client<_>, count: u32| {
                let mut modes = Vec::new();
                for _ in 0..count {
                    client.call(ECHO, b"request", &mut Vec::new(), Deadline::NONE).unwrap();
                    modes.push(client.mode(ECHO));
                }
                modes
            };
            for _ in 0..3 {
                load.set(Duration::from_nanos(200));
                // The last of those before was taken while they were slow.
                assert_eq!(call(&mut client, 10)[2..], [Mode::Fetch; 8]);
                load.set(Duration::from_micros(60));
                assert_eq!(call(&mut client, 10)[1..], [Mode::Reply; 9]);
                // One slow call, or a quick one, changes nothing.
                load.set(Duration::from_nanos(200));
                assert_eq!(call(&mut client, 1), [Mode::Reply]);
                load.set(Duration::from_micros(60));
                assert_eq!(call(&mut client, 5), [Mode::Reply; 5]);
            }
            assert_eq!(client.counts().switches, 5);
        });
        world.run().unwrap();
    }
}

/// A service as programs run it, with its naps, which looks as often as a processor does.
struct Paced<P> {
    service: RfService<SimMemory, P>,
    memory: Arc<SimMemory>,
    clock: SimClock,
    next: Instant,
}

impl<P: Procedures> Service for Paced<P> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.service.handle(client, request, reply)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.service.next_reply(reply)
    }

    fn work(&mut self) -> Work {
        let now = self.clock.now();
        if self.next > now {
            return Work::At(self.next);
        }
        let work = self.service.work();
        self.memory.flush();
        self.next = match work {
            Work::More => now + LOOK,
            Work::At(at) => at,
            Work::Nothing => return Work::Nothing,
        };
        Work::At(self.next)
    }

    fn disconnected(&mut self, client: ClientId) {
        self.service.disconnected(client);
    }
}

/// Calls of one client in virtual time, `pause` between them: how long they took from the third on, and what all cost.
fn paced(pause: Duration, fixed: Option<Mode>, calls: u32) -> (Duration, Counts) {
    let mut world = World::new(SimOptions::calm().with_seed(6));
    let buffers = MemoryOptions { offered: Some(Access::ReadWrite), ..MemoryOptions::private(2 << 20) };
    let node = world.add_node(NodeOptions::new(vec![MemoryOptions::region(4096), buffers]), |start| {
        let memory = Arc::clone(&start.memories[1]);
        let options = ServerOptions { area: AreaId(1), seed: start.life, ..ServerOptions::default() };
        let procedures = |_: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>| {
            result.extend_from_slice(&answer(rpc, request));
        };
        let clock: Arc<dyn Clock> = Arc::new(start.clock.clone());
        let service = RfService::new(Arc::clone(&memory), options, clock, procedures).unwrap();
        let (clock, next) = (start.clock.clone(), start.clock.now());
        Box::new(Paced { service, memory, clock, next }) as Box<dyn Service>
    });
    let node = node.unwrap();
    let told = Arc::new(Mutex::new((Duration::ZERO, Counts::default())));
    let outcome = Arc::clone(&told);
    world.spawn("client", move |process| {
        let options = ClientOptions { fixed, ..ClientOptions::default() };
        let mut client = open(&process, node, options).unwrap();
        let mut waited = Duration::ZERO;
        for call in 0..calls {
            process.sleep(pause);
            let began = process.sim.clock().elapsed();
            client.call(ECHO, b"request", &mut Vec::new(), Deadline::NONE).unwrap();
            // It has settled by then.
            if call >= 2 {
                waited += process.sim.clock().elapsed() - began;
            }
        }
        *outcome.lock().unwrap() = (waited, client.counts());
    });
    world.run().unwrap();
    *told.lock().unwrap()
}

/// A service that took naps while calls came by message found a WRITE late: the client went back to messages, and on and on.
#[test]
fn a_service_that_naps_has_a_mode_that_stays() {
    const CALLS: u32 = 60;
    let micros = Duration::from_micros;
    // Calls without a break, some that let it fall asleep now and then, and some that always do.
    for (pause, mode, most) in [(0, Mode::Fetch, 0), (300, Mode::Fetch, 0), (5_037, Mode::Reply, 1)] {
        let (hybrid, counts) = paced(micros(pause), None, CALLS);
        let (settled, _) = paced(micros(pause), Some(mode), CALLS);
        let what = format!("pause {pause} µs: {hybrid:?}, {settled:?} by {mode:?} alone, {counts:?}");
        println!("{what}");
        assert!(counts.switches <= most, "{what}");
        assert!(settled.as_secs_f64() >= 0.95 * hybrid.as_secs_f64(), "{what}");
    }
}

const CLIENTS: u64 = 8;

/// Calls per second of clients of one server, in virtual time, and the most failed fetches of a call.
fn rate(seed: u64, process: Duration, retries: u32, fixed: Option<Mode>) -> (f64, u32) {
    const CALLS: u64 = 40;
    let mut world = World::new(SimOptions::calm().with_seed(seed));
    let load = Arc::new(Load::default());
    load.set(process);
    // An out-bound operation keeps a card five times as long as an in-bound one: 2.11 M a second, figure 1 of the paper.
    load.outbound.store(470, Ordering::Relaxed);
    let node = add_node(&mut world, &load, true);
    let failed = Arc::new(AtomicU64::new(0));
    let times = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..CLIENTS {
        let (failed, times) = (Arc::clone(&failed), Arc::clone(&times));
        world.spawn("client", move |process| {
            let options = ClientOptions { retries, fixed, ..ClientOptions::default() };
            let mut client = open(&process, node, options).unwrap();
            let mut result = Vec::new();
            let mut before = 0;
            // Until the mode has settled.
            for call in 0..CALLS + 10 {
                if call == 10 {
                    times.lock().unwrap().push(process.sim.clock().elapsed());
                }
                client.call(ECHO, b"request", &mut result, Deadline::NONE).unwrap();
                let now = client.counts().failed;
                failed.fetch_max(if call < 10 { 0 } else { now - before }, Ordering::Relaxed);
                before = now;
            }
            times.lock().unwrap().push(process.sim.clock().elapsed());
        });
    }
    world.run().unwrap();
    let times = times.lock().unwrap();
    let took = *times.iter().max().unwrap() - *times.iter().min().unwrap();
    let calls = CLIENTS * CALLS;
    (calls as f64 / took.as_secs_f64(), failed.load(Ordering::Relaxed) as u32)
}

#[test]
fn the_switch_is_as_good_as_the_better_mode() {
    for seed in [5] {
        let curve: Vec<Measured> = [200, 500, 1000, 2000, 4000, 8000, 16_000, 32_000]
            .map(Duration::from_nanos)
            .map(|process| {
                let (fetched, failed) = rate(seed, process, u32::MAX - 1, Some(Mode::Fetch));
                let (replied, _) = rate(seed, process, 1, Some(Mode::Reply));
                Measured { process, fetched, replied, failed }
            })
            .to_vec();
        let selection = select(&curve, &[(256, 1e6)], &[32], 0.03).unwrap();
        for at in &curve {
            let (hybrid, _) = rate(seed, at.process, selection.retries, None);
            let best = at.fetched.max(at.replied);
            assert!(
                hybrid >= 0.95 * best,
                "seed {seed}, {:?}: {hybrid:.0} a second, {at:?}, {selection:?}",
                at.process
            );
        }
    }
}

/// Results of every length come back: in one READ, in two, split over batches, by server reply.
#[test]
fn batches_of_every_shape_come_back() {
    let options = SimOptions { faults: Faults::WEATHER, ..SimOptions::default() };
    explore(0..8, &options, |world| {
        let load = Arc::new(Load::default());
        let node = add_node(world, &load, false);
        for fixed in [None, Some(Mode::Reply)] {
            world.spawn("client", move |process| {
                let options = ClientOptions { fixed, ..ClientOptions::default() };
                let mut client = open(&process, node, options).unwrap();
                let mut results = Results::new();
                for lengths in [
                    &[8u32][..],
                    &[0],
                    &[400],
                    &[8192, 1, 8192, 4000, 9000, 0, 8193],
                    &[4000; 12],
                    &[100_000, 5, 50_000],
                    &[],
                ] {
                    let requests: Vec<_> = lengths.iter().map(|len| len.to_le_bytes()).collect();
                    let sent = client.send(MANY, &requests, Deadline::NONE).unwrap();
                    client.recv(sent, &mut results, Deadline::NONE).unwrap();
                    let expected: Vec<_> = requests.iter().map(|request| answer(MANY, request)).collect();
                    assert!(results.iter().eq(expected.iter().map(Vec::as_slice)), "{lengths:?}");
                }
                let sent = client.send(ECHO, &[[7; 50_000]], Deadline::NONE).unwrap();
                client.recv(sent, &mut results, Deadline::NONE).unwrap();
                assert!(results.iter().eq([&[7; 50_000][..]]), "a long request");
                let sent = client.send(MANY, &[(2u32 << 20).to_le_bytes()], Deadline::NONE).unwrap();
                let error = client.recv(sent, &mut results, Deadline::NONE).unwrap_err();
                assert!(matches!(error, RfError::ResultsTooLong), "{error}");
            });
        }
        world.run()?;
        Ok(())
    });
}

#[test]
fn requests_are_batched_by_number_bytes_and_time() {
    let options = SimOptions { faults: Faults::WEATHER, ..SimOptions::default() };
    explore(0..8, &options, |world| {
        let load = Arc::new(Load::default());
        let node = add_node(world, &load, false);
        world.spawn("client", move |process| {
            let clock: Arc<dyn Clock> = Arc::new(process.sim.clock());
            let mut client = open(&process, node, ClientOptions::default()).unwrap();
            let bounds = BatcherOptions { entries: 7, in_flight: 3, ..BatcherOptions::default() };
            let (mut answers, mut sent) = (Vec::new(), Vec::new());
            let mut batcher =
                Batcher::new(&mut client, Arc::clone(&clock), ECHO, bounds.clone(), Deadline::NONE);
            for number in 0..100u64 {
                let request = number.to_le_bytes().repeat(1 + number as usize % 60);
                assert_eq!(batcher.push(&request, &mut answers).unwrap(), number);
                sent.push(request);
            }
            batcher.finish(&mut answers).unwrap();
            let mut all = Vec::new();
            for answer in &answers {
                assert_eq!(answer.first, all.len() as u64);
                assert!(answer.results.len() <= 7);
                all.extend(answer.results.iter().map(<[u8]>::to_vec));
            }
            assert!(
                all.iter().eq(sent.iter().map(|request| answer(ECHO, request)).collect::<Vec<_>>().iter())
            );
            // One waits for others, but not for ever.
            let before = client.counts().batches;
            let mut batcher = Batcher::new(&mut client, Arc::clone(&clock), ECHO, bounds, Deadline::NONE);
            batcher.push(b"alone", &mut answers).unwrap();
            batcher.tick(&mut answers).unwrap();
            assert!(batcher.receive().unwrap().is_none(), "it waits");
            process.sleep(Duration::from_millis(5));
            batcher.tick(&mut answers).unwrap();
            assert_eq!(batcher.receive().unwrap().unwrap().results.len(), 1);
            drop(batcher);
            assert_eq!(client.counts().batches, before + 1);
        });
        world.run()?;
        Ok(())
    });
}

#[test]
fn a_tuned_batch_keeps_the_bound_on_latency() {
    let mut world = World::new(SimOptions::calm().with_seed(3));
    let load = Arc::new(Load::default());
    load.set(Duration::from_nanos(500));
    let node = add_node(&mut world, &load, true);
    world.spawn("client", move |process| {
        let clock: Arc<dyn Clock> = Arc::new(process.sim.clock());
        let mut client = open(&process, node, ClientOptions::default()).unwrap();
        for (bound, sizes) in [(Duration::from_micros(1), 1..=1), (Duration::from_millis(1), 16..=16)] {
            let options =
                BatcherOptions { tuner: Some(Tuner::new(bound, 50_000, 16)), ..BatcherOptions::default() };
            let mut batcher = Batcher::new(&mut client, Arc::clone(&clock), ECHO, options, Deadline::NONE);
            let mut answers = Vec::new();
            for _ in 0..6000 {
                batcher.push(b"request", &mut answers).unwrap();
                answers.clear();
            }
            assert!(sizes.contains(&batcher.batch_size()), "{bound:?}: {}", batcher.batch_size());
        }
    });
    world.run().unwrap();
}

/// A request that was told to be answered by the server, and was received after the mode had changed back, was waited for for ever.
#[test]
fn a_batch_written_in_one_mode_is_received_in_the_other() {
    let mut world = World::new(SimOptions::calm().with_seed(4));
    let load = Arc::new(Load::default());
    let node = add_node(&mut world, &load, true);
    world.spawn("client", move |process| {
        let mut client = open(&process, node, ClientOptions::default()).unwrap();
        let mut results = Results::new();
        load.set(Duration::from_micros(60));
        while client.mode(ECHO) == Mode::Fetch {
            client.call(ECHO, b"slow", &mut Vec::new(), Deadline::NONE).unwrap();
        }
        load.set(Duration::ZERO);
        // The first is posted and the others are written, and the second of these is received by fetching.
        let sent = [(); 4].map(|()| client.send(ECHO, &[b"quick"], Deadline::NONE).unwrap());
        for sent in sent {
            client.recv(sent, &mut results, process.sim.clock().deadline(Duration::from_millis(1))).unwrap();
            assert!(results.iter().eq([b"kciuq"]));
        }
        assert_eq!(client.mode(ECHO), Mode::Fetch);
    });
    world.run().unwrap();
}

/// Clients that call on until all is done, whatever dies: what was answered was executed once, and nothing twice.
fn each_once(world: &mut World) -> Verdict {
    let load = Arc::new(Load::default());
    load.set(Duration::from_nanos(world.seed() % 7 * 3000));
    let node = add_node(world, &load, false);
    let answered = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3u64 {
        let answered = Arc::clone(&answered);
        world.spawn("client", move |process| {
            let mut client = None;
            for call in 0..40u64 {
                let mut this =
                    match client.take().map_or_else(|| open(&process, node, ClientOptions::default()), Ok) {
                        Ok(this) => this,
                        Err(_) => continue,
                    };
                let tokens = [0, 1, 2].map(|entry| ((number << 32) | (call << 2) | entry).to_le_bytes());
                let deadline = process.sim.clock().deadline(Duration::from_micros(400));
                let mut results = Results::new();
                let outcome = this
                    .send(ECHO, &tokens, deadline)
                    .and_then(|sent| this.recv(sent, &mut results, deadline));
                match outcome {
                    Ok(()) => {
                        assert!(
                            results
                                .iter()
                                .eq(tokens.map(|token| answer(ECHO, &token)).iter().map(Vec::as_slice))
                        );
                        answered.lock().unwrap().extend(tokens.map(u64::from_le_bytes));
                        client = Some(this);
                    }
                    Err(
                        RfError::Fabric(FabricError::DeadlinePassed { .. } | FabricError::Crowded)
                        | RfError::Lost,
                    ) => {
                        client = Some(this);
                    }
                    Err(RfError::Fabric(FabricError::Disconnected { .. })) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    world.run()?;
    let executed = load.executed.lock().unwrap();
    if let Some((token, times)) = executed.iter().find(|(_, times)| **times > 1) {
        return Err(format!("{token:#x} was executed {times} times").into());
    }
    match answered.lock().unwrap().iter().find(|token| !executed.contains_key(token)) {
        None => Ok(()),
        Some(token) => Err(format!("{token:#x} was answered and never executed").into()),
    }
}

#[test]
fn no_call_is_executed_twice_in_any_storm() {
    let storm = SimOptions { faults: Faults::STORM, ..SimOptions::default() };
    let explored = explore(0..100, &storm, each_once);
    assert!(explored.deaths > 5 && explored.killed > 3, "{explored:?}");
}

/// A service over memory of this process, and its clients.
struct Local {
    hub: Hub,
    memory: Arc<SharedMemory>,
    _serving: Serving,
}

const SHAPE: Shape = Shape { slots: 4, parts: 2, capacity: 10_240 };

impl Local {
    fn start(clients: u16) -> Self {
        let memory = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
        let options = LocalOptions { region_access: Access::ReadWrite, ..LocalOptions::default() };
        let hub = Hub::new(Arc::clone(&memory), options).unwrap();
        let options =
            ServerOptions { area: REGION, shape: SHAPE, clients, seed: 1, ..ServerOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let procedures = |_: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>| {
            result.extend_from_slice(&answer(rpc, request));
        };
        let service = RfService::new(Arc::clone(&memory), options, clock, procedures).unwrap();
        let _serving = hub.spawn(service).unwrap();
        Self { hub, memory, _serving }
    }

    fn open(&self, options: ClientOptions) -> Result<Client<impl Connection + use<>>, RfError> {
        Client::open(
            self.hub.connect().unwrap(),
            options,
            Arc::new(SystemClock),
            Deadline::after(SECOND * 10),
        )
    }
}

#[test]
fn calls_over_mapped_memory_from_many_threads_keep_apart() {
    let local = Local::start(4);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let local = &local;
            scope.spawn(move || {
                let mut client =
                    local.open(ClientOptions { retries: 50, ..ClientOptions::default() }).unwrap();
                let mut result = Vec::new();
                for call in 0..300u64 {
                    let request = ((thread << 32) | call).to_le_bytes().repeat(1 + call as usize % 200);
                    client.call(ECHO, &request, &mut result, Deadline::after(SECOND * 10)).unwrap();
                    assert_eq!(result, answer(ECHO, &request), "call {call}");
                }
            });
        }
    });
}

#[test]
fn channels_are_few_and_come_free_again() {
    let local = Local::start(1);
    let mut first = local.open(ClientOptions::default()).unwrap();
    let error = local.open(ClientOptions::default()).unwrap_err();
    assert!(matches!(error, RfError::Full), "{error}");
    let sent: Vec<_> = (0..4).map(|_| first.send(ECHO, &[b"x"], Deadline::NONE).unwrap()).collect();
    let error = first.send(ECHO, &[b"x"], Deadline::NONE).unwrap_err();
    assert!(matches!(error, RfError::InFlight(4)), "{error}");
    // Received out of order, or not at all.
    let mut results = Results::new();
    for sent in sent.into_iter().skip(1).rev() {
        first.recv(sent, &mut results, Deadline::after(SECOND * 10)).unwrap();
    }
    let error = first.send(ECHO, &vec![[0; 8000]; 2], Deadline::NONE).unwrap_err();
    assert!(matches!(error, RfError::TooLong { max: 10_240, .. }), "{error}");
    drop(first);
    let limit = Instant::now() + SECOND * 10;
    while let Err(error) = local.open(ClientOptions::default()) {
        assert!(matches!(error, RfError::Full) && Instant::now() < limit, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_memory_node_without_buffers_says_so() {
    let memory = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for (area, access) in [(REGION, Access::ReadOnly), (AreaId(7), Access::ReadWrite)] {
        let options = LocalOptions { region_access: access, ..LocalOptions::default() };
        let hub = Hub::new(Arc::clone(&memory), options).unwrap();
        let options = ServerOptions { area, shape: SHAPE, clients: 2, ..ServerOptions::default() };
        let nothing = |_: ClientId, _: u16, _: &[u8], _: &mut Vec<u8>| {};
        let service = RfService::new(Arc::clone(&memory), options, Arc::clone(&clock), nothing).unwrap();
        let _serving = hub.spawn(service).unwrap();
        let connection = hub.connect().unwrap();
        let error = Client::open(connection, ClientOptions::default(), Arc::clone(&clock), Deadline::NONE)
            .unwrap_err();
        assert!(matches!(error, RfError::NoBuffers), "{error}");
    }
    let short = ServerOptions { clients: 1000, ..ServerOptions::default() };
    assert!(Server::new(memory, short, clock).is_err());
}

/// Whatever a client writes into its buffers, and others' messages, the server stands and goes on serving others.
#[test]
fn a_hostile_client_breaks_its_own_calls_alone() {
    let local = Local::start(2);
    let mut honest = local.open(ClientOptions { retries: 50, ..ClientOptions::default() }).unwrap();
    let hostile = local.hub.connect().unwrap();
    let mut reply = Vec::new();
    hostile.call(b"RF\x01\x01", &mut reply, Deadline::NONE).unwrap();
    let offset = u64::from_le_bytes(reply[17..25].try_into().unwrap());
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    for round in 0..300u64 {
        for slot in 0..4 {
            let at = offset + slot * SHAPE.channel_bytes() / 4;
            let first = (1 << 31) | (random() % 20_000) | (random() << 32);
            local.memory.store_relaxed(at, random()).unwrap();
            local.memory.store_relaxed(at + 72, (1 << 56) | (random() >> 8)).unwrap();
            local.memory.store_relaxed(at + 80, random()).unwrap();
            local.memory.store_relaxed(at + 88, first).unwrap();
            local.memory.store_release(at + 64, first).unwrap();
        }
        let mut message = b"RF\x01".to_vec();
        message.extend((0..random() % 40).map(|_| random() as u8 % 8));
        // What is asked for and never comes is given up.
        let _ = hostile.call(&message, &mut reply, Deadline::after(Duration::from_millis(5)));
        let mut result = Vec::new();
        honest.call(ECHO, &round.to_le_bytes(), &mut result, Deadline::after(SECOND * 10)).unwrap();
        assert_eq!(result, answer(ECHO, &round.to_le_bytes()));
    }
}
