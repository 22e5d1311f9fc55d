//! The memory nodes of the `fabric` command.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use fpcache_fabric::{
    Access, AreaId, ClientId, Clock, Deadline, Export, Handled, HugePages, NodeMemory, OneRegion, RegionName,
    Service, SharedMemory, SystemClock, Work, shm, tcp,
};
use fpcache_rf_rpc::{RfService, ServerOptions, Shape};
use fpcache_sim::{MemoryOptions, NodeOptions, SimOptions, World};

use super::measure::{REGION_BYTES, SCRATCH_BYTES, bench, word_at};
use super::options::{FabricArgs, Way};
use super::perftest::Perftest;
use super::row::FabricRow;
use crate::leftovers::TemporaryFolder;

/// The buffers of calls: the longest batch there may be, twice.
const SHAPE: Shape = Shape { slots: 2, parts: 1, capacity: 1 << 20 };
const CLIENTS: u16 = 2;
/// The area that may be written, over every transport but the simulated one.
const SCRATCH: AreaId = AreaId(2);
const SIMULATED_SCRATCH: AreaId = AreaId(1);
/// How often the simulated memory node looks at its buffers.
const LOOK: Duration = Duration::from_nanos(200);

type Echo = fn(ClientId, u16, &[u8], &mut Vec<u8>);

fn echo(_: ClientId, _: u16, request: &[u8], result: &mut Vec<u8>) {
    result.extend_from_slice(request);
}

/// Gives back what it is given, by whatever way.
struct EchoService<M> {
    calls: RfService<M, Echo>,
    /// In a simulated world, where every look is an event: when the next is due.
    looks: Option<(Arc<dyn Clock>, Instant)>,
}

impl<M: NodeMemory> EchoService<M> {
    fn new(memory: Arc<M>, area: AreaId, clock: Arc<dyn Clock>, simulated: bool) -> anyhow::Result<Self> {
        let options = ServerOptions {
            shape: SHAPE,
            clients: CLIENTS,
            area,
            offset: SCRATCH_BYTES as u64,
            seed: 1,
            max_results: 1 << 20,
        };
        let looks = simulated.then(|| (Arc::clone(&clock), clock.now()));
        Ok(Self { calls: RfService::new(memory, options, clock, echo as Echo)?, looks })
    }
}

impl<M: NodeMemory> Service for EchoService<M> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        if request.starts_with(b"RF") {
            return self.calls.handle(client, request, reply);
        }
        reply.extend_from_slice(request);
        Handled::Now
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.calls.next_reply(reply)
    }

    fn work(&mut self) -> Work {
        let work = self.calls.work();
        let Some((clock, next)) = &mut self.looks else { return work };
        let now = clock.now();
        if *next > now {
            return Work::Nothing;
        }
        *next = now + LOOK;
        Work::At(*next)
    }

    fn disconnected(&mut self, client: ClientId) {
        self.calls.disconnected(client);
    }
}

/// Bytes of the memory that may be written.
fn scratch_bytes() -> usize {
    SCRATCH_BYTES + usize::from(CLIENTS) * SHAPE.channel_bytes() as usize
}

fn fill(region: &impl NodeMemory) -> anyhow::Result<()> {
    let mut words = [0u8; 4096];
    for offset in (0..REGION_BYTES as u64).step_by(words.len()) {
        for (index, word) in words.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&word_at(offset + index as u64 * 8).to_le_bytes());
        }
        region.write_bytes(offset, &words)?;
    }
    Ok(())
}

/// Measures all rows of a transport.
pub fn measure(way: Way, arguments: &FabricArgs) -> anyhow::Result<Vec<FabricRow>> {
    if way == Way::Sim {
        return measure_simulated(arguments);
    }
    let (region, region_fd) = SharedMemory::create_memfd("region", REGION_BYTES, HugePages::No)?;
    let (region, clock): (_, Arc<dyn Clock>) = (Arc::new(region), Arc::new(SystemClock));
    fill(&*region)?;
    let export = Export::new(&region, region_fd, 1)?;
    let (scratch, scratch_fd) = SharedMemory::create_memfd("scratch", scratch_bytes(), HugePages::No)?;
    let scratch = Arc::new(scratch);
    let service = EchoService::new(Arc::clone(&scratch), SCRATCH, Arc::clone(&clock), false)?;
    let service = OneRegion::new(RegionName::default(), export, service);
    let took = Duration::from_secs_f64(arguments.seconds);
    let retries = arguments.retries.unwrap_or(if way == Way::Shm { 200 } else { 5 });
    let how = (took, retries, arguments.seed);
    match way {
        Way::Shm => {
            let name = format!("fpcache-fabric-{}", std::process::id());
            let folder = TemporaryFolder::new(std::env::temp_dir().join(name));
            std::fs::create_dir_all(folder.path()).context("making a folder for the socket")?;
            let address = shm::ShmAddress::at_path(folder.path().join("node.sock"))?;
            let offered = Some(shm::Scratch::new(Arc::clone(&scratch), scratch_fd));
            let options = shm::ListenOptions { scratch: offered, ..shm::ListenOptions::default() };
            let _serving = shm::Listener::bind(&address, options)?.spawn(service)?;
            let connect = || Ok(shm::connect(&address, shm::ConnectOptions::default())?);
            rows(way, arguments, bench(connect, clock, SCRATCH, how)?)
        }
        Way::Tcp | Way::Rdma => {
            let address = format!("{}://127.0.0.1:0", way.name()).parse::<tcp::TcpAddress>()?;
            let options =
                tcp::ListenOptions { scratch: Some(Arc::clone(&scratch)), ..tcp::ListenOptions::default() };
            let listener = tcp::Listener::bind(&[address], options)?;
            let address = listener.addresses().first().context("it listens nowhere")?.clone();
            let serving = listener.spawn(service)?;
            let connect = || Ok(tcp::connect(&address, tcp::ConnectOptions::default())?);
            let mut rows = rows(way, arguments, bench(connect, clock, SCRATCH, how)?)?;
            // Neither takes the other's processors.
            drop(serving);
            if way == Way::Rdma {
                measure_by_perftest(arguments, &mut rows)?;
            }
            Ok(rows)
        }
        Way::Sim => bail!("the simulated fabric is measured in a world of its own"),
    }
}

fn rows<C: fpcache_fabric::Connection>(
    way: Way,
    arguments: &FabricArgs,
    mut bench: super::measure::Bench<C>,
) -> anyhow::Result<Vec<FabricRow>> {
    let measured =
        arguments.tasks().into_iter().map(|task| Ok(FabricRow::new(way, task, &bench.measure(task)?)));
    measured.collect()
}

/// Over the same cards by perftest, where it is installed.
fn measure_by_perftest(arguments: &FabricArgs, rows: &mut [FabricRow]) -> anyhow::Result<()> {
    let Some(tools) = Perftest::find() else { return Ok(()) };
    for (task, row) in arguments.tasks().into_iter().zip(rows) {
        row.perftest_rate = tools.rate(task, (row.rate * arguments.seconds) as u64)?;
    }
    Ok(())
}

fn measure_simulated(arguments: &FabricArgs) -> anyhow::Result<Vec<FabricRow>> {
    let options =
        SimOptions { seed: arguments.seed, max_events: u64::MAX, trace: 0, ..SimOptions::without_faults() };
    let mut world = World::new(options);
    let scratch =
        MemoryOptions { offered: Some(Access::ReadWrite), ..MemoryOptions::private(scratch_bytes()) };
    let options = NodeOptions::new(vec![MemoryOptions::region(REGION_BYTES), scratch]);
    let node = world.add_node(options, |start| {
        let clock: Arc<dyn Clock> = Arc::new(start.clock.clone());
        // The memory is as long as it was asked for.
        let service = EchoService::new(Arc::clone(&start.memories[1]), SIMULATED_SCRATCH, clock, true);
        service.map_or_else(|error| panic!("{error}"), |service| Box::new(service) as Box<dyn Service>)
    })?;
    // Past the memory node, whose stores would become visible one by one.
    fill(&*world.visible(node, 0))?;
    let measured = Arc::new(Mutex::new(Err(anyhow!("the client did not end"))));
    let (told, asked) = (Arc::clone(&measured), arguments.clone());
    world.spawn("client", move |process| {
        let clock: Arc<dyn Clock> = Arc::new(process.sim.clock());
        let connect = || Ok(process.sim.connect(node, Deadline::NONE)?);
        let took = Duration::from_secs_f64(asked.seconds / 1000.0);
        let how = (took, asked.retries.unwrap_or(5), asked.seed);
        let outcome =
            bench(connect, clock, SIMULATED_SCRATCH, how).and_then(|bench| rows(Way::Sim, &asked, bench));
        // Nothing else holds it while the world runs.
        *told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = outcome;
    });
    world.run().map_err(|failure| anyhow!("{failure}"))?;
    let mut measured = measured.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::mem::replace(&mut *measured, Ok(Vec::new()))
}
