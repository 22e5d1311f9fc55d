//! Jakiro's process: a thread and an address for each partition.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use fpcache_fabric::{
    AreaId, ClientId, Export, HugePages, OneRegion, RegionName, Serving, SharedMemory, SystemClock,
    random_bits, shm, tcp,
};
use fpcache_rf_rpc::{RfService, ServerOptions, Shape};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::store::Partition;
use super::{GET, PUT};

/// What the process takes.
#[derive(Args, Debug)]
pub struct JakiroNodeArgs {
    /// Where each partition listens
    #[arg(long, required = true)]
    pub listen: Vec<String>,
    /// Buckets of each partition
    #[arg(long)]
    pub buckets: usize,
    /// A file to make once it serves
    #[arg(long)]
    pub ready: PathBuf,
}

/// Channels of a partition, one for each thread that asks it.
pub const CLIENTS: u16 = 32;
const SHAPE: Shape = Shape { slots: 1, parts: 2, capacity: 64 << 10 };
const BUFFERS: AreaId = AreaId(2);

/// Serves until the process is ended.
///
/// # Errors
/// If it cannot listen at an address.
pub fn serve(arguments: &JakiroNodeArgs) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("asking for a signal at the parent's end")?;
    let serving = |address: &String| serve_partition(address, arguments.buckets);
    let _serving = arguments.listen.iter().map(serving).collect::<anyhow::Result<Vec<_>>>()?;
    std::fs::write(&arguments.ready, b"ready").context("saying that it serves")?;
    loop {
        std::thread::park();
    }
}

/// Has a thread serve a partition.
pub fn serve_partition(address: &str, buckets: usize) -> anyhow::Result<Serving> {
    let bytes = usize::from(CLIENTS) * SHAPE.channel_bytes() as usize;
    let (buffers, buffers_fd) = SharedMemory::create_memfd("buffers", bytes, HugePages::No)?;
    let buffers = Arc::new(buffers);
    let seed = random_bits()?;
    let options =
        ServerOptions { shape: SHAPE, clients: CLIENTS, area: BUFFERS, seed, ..ServerOptions::default() };
    let mut partition = Partition::new(buckets);
    let procedures = move |_: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>| {
        answer(&mut partition, rpc, request, result);
    };
    let calls = RfService::new(Arc::clone(&buffers), options, Arc::new(SystemClock), procedures)?;
    // Nothing is read one-sidedly but results.
    let (region, region_fd) = SharedMemory::create_memfd("region", 4096, HugePages::No)?;
    let export = Export::new(&Arc::new(region), region_fd, 1)?;
    let service = OneRegion::new(RegionName::default(), export, calls);
    if address.starts_with("shm:") {
        let scratch = Some(shm::Scratch::new(buffers, buffers_fd));
        let options = shm::ListenOptions { scratch, ..shm::ListenOptions::default() };
        return Ok(shm::Listener::bind(&address.parse()?, options)?.spawn(service)?);
    }
    let options = tcp::ListenOptions { scratch: Some(buffers), ..tcp::ListenOptions::default() };
    Ok(tcp::Listener::bind(&[address.parse()?], options)?.spawn(service)?)
}

/// Answers a request: a byte that says whether there is a value, and the value.
fn answer(partition: &mut Partition, rpc: u16, request: &[u8], result: &mut Vec<u8>) {
    match rpc {
        GET => match partition.get(request) {
            Some(value) => {
                result.push(1);
                result.extend_from_slice(value);
            }
            None => result.push(0),
        },
        PUT => {
            let Some((length, rest)) = request.split_first_chunk() else { return };
            let Some((key, value)) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))) else {
                return;
            };
            result.push(u8::from(!partition.put(key, value)));
        }
        _ => {}
    }
}
