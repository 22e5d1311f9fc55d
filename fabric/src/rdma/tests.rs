//! Failures of cards, between both ends in one process. `rdma/guest.sh` gives a machine a card.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod registering;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::device::Device;
use super::memory_region::{MemoryRegion, RegionRights};
use super::node::{NodeCard, PeerQueuePair};
use super::queue_pair::{CardVerb, DEPTH, QueuePair, WorkRequest};
use super::reader::Reader;
use super::wire::{CardReply, QueuePairInfo, RegisteredExtent};
use super::{CardChoice, CardCounters, CardFailure, Introduction, RdmaError, ServedAreas, WaitLimit};
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::mapped::Link;
use crate::memory::SharedMemory;
use crate::verbs::{Batch, RemoteAddr};

const LEN: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_millis(500);
/// Far more than it takes, in a guest that is emulated on a busy machine, and far less than for ever.
const ENOUGH: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_millis(100);

/// A memory node's card and its region, and what of it has become of a client's queue pair.
#[derive(Debug, Clone)]
struct Node {
    card: Arc<NodeCard>,
    region: Arc<SharedMemory>,
    backed_end: Arc<AtomicU64>,
    held: Arc<Mutex<Option<PeerQueuePair>>>,
    /// Bits by which the second half of the region has another rkey than it really has.
    wrong: u32,
}

impl Node {
    fn start() -> Self {
        let region = Arc::new(SharedMemory::create_memfd("region", LEN, crate::HugePages::No).unwrap().0);
        (0..LEN as u64).step_by(8).for_each(|at| region.store_relaxed(at, at).unwrap());
        Self {
            card: Arc::new(NodeCard::open(&CardChoice::default()).unwrap()),
            backed_end: region.share_backed_end(),
            region,
            held: Arc::default(),
            wrong: 0,
        }
    }

    fn reader(&self) -> Result<Reader, FabricError> {
        let device = Arc::new(Device::open(&CardChoice::default())?);
        Reader::connect(
            &device,
            Box::new(self.clone()),
            Some(0),
            &Arc::new(CardCounters::default()),
            Deadline::NONE,
        )
    }
}

impl Introduction for Node {
    fn exchange(&mut self, request: &[u8], _: Deadline) -> Result<Vec<u8>, FabricError> {
        let areas =
            ServedAreas { region: &self.region, backed_end: &self.backed_end, lease: LEASE, scratch: None };
        let mut held = self.held.lock().unwrap();
        let mut answer = CardReply::decode(&self.card.answer(&areas, &mut held, request)?.bytes).unwrap();
        let half = LEN as u64 / 2;
        if let [all @ RegisteredExtent { len: 0x10_0000, .. }] = answer.extents[..] {
            let (mut first, mut second) = (all, all);
            first.len = half;
            (second.offset, second.len, second.address) = (half, all.len - half, all.address + half);
            second.rkey ^= self.wrong;
            answer.extents = vec![first, second];
        }
        Ok(answer.encode())
    }
}

/// A batch of READs, and how long it took to fail or not.
fn run(reader: &mut Reader, places: impl Iterator<Item = u64>) -> (Result<Vec<u64>, CardFailure>, Duration) {
    let mut batch = Batch::new();
    let landings: Vec<_> = places.map(|at| batch.read(RemoteAddr::region(at), 8)).collect();
    let link = Link::new("the node").unwrap();
    let began = Instant::now();
    let count = batch.len();
    let outcome = reader.run(&mut batch, count, &WaitLimit { link: &link, patience: PATIENCE });
    (outcome.map(|()| landings.iter().map(|landing| batch.u64(*landing)).collect()), began.elapsed())
}

fn broken(outcome: Result<Vec<u64>, CardFailure>) -> FabricError {
    match outcome {
        Err(CardFailure::Broken(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_an_error_in_the_middle_of_a_list_is_told_and_the_next_queue_pair_reads() {
    let node = Node::start();
    let mut reader = Node { wrong: 0x5a00, ..node.clone() }.reader().unwrap();
    let half = LEN as u64 / 2;
    // The sixteenth of 32 has an unknown rkey.
    let places = |middle| (0..32).map(move |at| if at == 15 { middle } else { at * 64 });
    let (outcome, took) = run(&mut reader, places(half));
    let error = broken(outcome).to_string();
    assert!(error.contains("status 10") && error.contains("connect anew"), "{error}");
    assert!(took < ENOUGH, "{took:?}");
    // The queue pair is of no use any more, and says so; another one is.
    assert!(run(&mut reader, places(0)).0.is_err());
    drop(reader);
    let (read, _) = run(&mut node.reader().unwrap(), places(half));
    assert_eq!(read.unwrap(), places(half).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_a_peer_that_died_within_a_batch_is_waited_for_no_longer_than_the_deadline() {
    let node = Node::start();
    let mut reader = node.reader().unwrap();
    assert!(run(&mut reader, [0, 8].into_iter()).0.is_ok());
    // The rest of the first list is not answered.
    *node.held.lock().unwrap() = None;
    let (outcome, took) = run(&mut reader, (0..300).map(|at| at * 8));
    assert!(matches!(outcome, Err(CardFailure::Silent | CardFailure::Broken(_))), "{outcome:?}");
    assert!(took < ENOUGH, "{took:?}");
    let began = Instant::now();
    drop(reader);
    assert!(began.elapsed() < ENOUGH, "leaving took {:?}", began.elapsed());
}

/// When a queue pair is gone its card writes nothing more to the memory that its READs were to land
/// in, whatever was under way.
#[test]
#[ignore = "needs an RDMA device"]
#[allow(unsafe_code)]
fn rdma_nothing_lands_after_a_queue_pair_is_gone() {
    const PART: u32 = 64 << 10;
    let device = Arc::new(Device::open(&CardChoice::default()).unwrap());
    let node = Node::start();
    let source =
        MemoryRegion::register(&device, &node.region, 0, LEN as u64, RegionRights::RemoteRead).unwrap();
    for round in 0..20 {
        let memory = Arc::new(SharedMemory::anonymous(LEN).unwrap());
        let landing = MemoryRegion::register(&device, &memory, 0, LEN as u64, RegionRights::Landing).unwrap();
        let (mut asks, _answers) = pairs(&device, 5);
        let read = |at: u64| WorkRequest {
            work: CardVerb::Read,
            local: landing.address() + at,
            len: PART,
            remote: source.address() + at,
            rkey: source.rkey(),
            is_fenced: false,
        };
        let list: Vec<_> = (0..LEN as u64).step_by(PART as usize).map(read).collect();
        // SAFETY: the landing memory is registered until after the pair is gone, and nothing
        // depends on its contents until then.
        unsafe { asks.post(&list, landing.lkey(), 1) }.unwrap();
        drop(asks);
        memory.write_bytes(0, &vec![0xee; LEN]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut bytes = vec![0; LEN];
        memory.read_bytes(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0xee), "round {round}");
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_the_rkey_of_a_dropped_table_is_void() {
    let node = Node::start();
    let mut reader = node.reader().unwrap();
    assert!(run(&mut reader, [64].into_iter()).0.is_ok());
    node.region.set_backed_end(0);
    node.region.discard_from(0).unwrap();
    let error = broken(run(&mut reader, [64].into_iter()).0);
    let FabricError::Rdma(error) = &error else { panic!("{error}") };
    assert!(matches!(**error, RdmaError::Completion { status: 10, .. }), "{error}");
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_what_a_child_has_inherited_is_never_unmapped() {
    for is_inherited in [false, true] {
        let mut device = Device::open(&CardChoice::default()).unwrap();
        if is_inherited {
            device.inherit();
        }
        let memory = Arc::new(SharedMemory::anonymous(4096).unwrap());
        let held = Arc::downgrade(&memory);
        let region =
            MemoryRegion::register(&Arc::new(device), &memory, 0, 4096, RegionRights::Landing).unwrap();
        drop(memory);
        drop(region);
        assert_eq!(held.upgrade().is_some(), is_inherited);
    }
}

/// Two queue pairs of one device that know each other, as the smaller of `mtu` and the device's has
/// it.
fn pairs(device: &Arc<Device>, mtu: u8) -> (QueuePair, QueuePair) {
    let (mut asks, mut answers) =
        (QueuePair::new(device, true).unwrap(), QueuePair::new(device, false).unwrap());
    let (one, other) = (asks.end(), answers.end());
    answers.connect(&QueuePairInfo { mtu, ..one }, 1, 16).unwrap();
    asks.connect(&QueuePairInfo { mtu, ..other }, 16, 1).unwrap();
    (asks, answers)
}

#[test]
#[ignore = "needs an RDMA device"]
#[allow(unsafe_code)]
fn rdma_a_queue_that_is_full_says_so_and_overruns_nothing() {
    let device = Arc::new(Device::open(&CardChoice::default()).unwrap());
    let memory = Arc::new(SharedMemory::anonymous(4096).unwrap());
    let region = MemoryRegion::register(&device, &memory, 0, 4096, RegionRights::RemoteChange).unwrap();
    let (mut asks, answers) = pairs(&device, 1);
    let (local, rkey) = (region.address(), region.rkey());
    let request =
        WorkRequest { work: CardVerb::Read, local, len: 8, remote: local + 8, rkey, is_fenced: false };
    let list = [request; DEPTH];
    let post = |asks: &mut QueuePair, number| {
        // SAFETY: the place is registered until after the pair is gone, and nothing depends on its
        // contents.
        unsafe { asks.post(&list, region.lkey(), number) }
    };
    let refused = (0..20).find_map(|number| post(&mut asks, number).err());
    assert_eq!(refused.unwrap().raw_os_error(), Some(libc::ENOMEM));
    // What was taken is done, one completion after another.
    let (limit, mut done) = (Instant::now() + Duration::from_secs(5), 0);
    while done == 0 && Instant::now() < limit {
        while let Some(completion) = asks.poll().unwrap() {
            assert_eq!(completion.status, 0);
            done += 1;
        }
        std::thread::yield_now();
    }
    assert!(done > 0);
    drop((asks, answers));
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_too_low_a_limit_of_locked_memory_is_told_with_the_command() {
    let device = Arc::new(Device::open(&CardChoice::default()).unwrap());
    let memory = Arc::new(SharedMemory::anonymous(LEN).unwrap());
    let (before, had) = (getrlimit(Resource::Memlock), capabilities(None).unwrap());
    let mut lacks = had;
    lacks.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, lacks).unwrap();
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), ..before }).unwrap();
    let refused = MemoryRegion::register(&device, &memory, 0, LEN as u64, RegionRights::Landing);
    setrlimit(Resource::Memlock, before).unwrap();
    set_capabilities(None, had).unwrap();
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("65536 bytes") && error.contains("ulimit -l unlimited"), "{error}");
    MemoryRegion::register(&device, &memory, 0, LEN as u64, RegionRights::Landing).unwrap();
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_a_device_that_was_gone_is_opened_anew() {
    let node = Node::start();
    let mut before = node.reader().unwrap();
    let lost = node.card.device().unwrap();
    lost.lose();
    let error = QueuePair::new(&lost, true).unwrap_err().to_string();
    assert!(error.contains("opened anew"), "{error}");
    // Those who have it stay with it, until they find out.
    assert!(run(&mut before, [8].into_iter()).0.is_ok());
    let other = Node { held: Arc::default(), ..node.clone() };
    assert_eq!(run(&mut other.reader().unwrap(), [8, 16].into_iter()).0.unwrap(), [8, 16]);
    assert!(!Arc::ptr_eq(&lost, &node.card.device().unwrap()));
    // What was registered with it is withdrawn with the rest.
    node.region.set_backed_end(0);
    node.region.discard_from(0).unwrap();
    assert!(matches!(run(&mut before, [64].into_iter()).0, Err(CardFailure::Broken(_))));
}

/// Needs to be root, of a machine whose card nothing else uses: the guest.
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_a_port_that_goes_down_is_told_and_comes_back() {
    if std::env::var_os("FPCACHE_IN_GUEST").is_none() {
        return;
    }
    let link = |state: &str| {
        let status = std::process::Command::new("ip").args(["link", "set", "dummy0", state]).status();
        assert!(status.unwrap().success());
    };
    let node = Node::start();
    let device = Arc::new(Device::open(&CardChoice::default()).unwrap());
    let reader =
        || Reader::connect(&device, Box::new(node.clone()), Some(0), &Arc::default(), Deadline::NONE);
    let mut before = reader().unwrap();
    let until = |is_up: bool| {
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            let made = QueuePair::new(&device, true);
            // The port is down a moment before the device tells of it.
            if if is_up { made.is_ok() } else { matches!(made, Err(RdmaError::Event { .. })) } {
                return made.map(drop);
            }
            assert!(Instant::now() < limit, "{made:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    link("down");
    let (outcome, took) = run(&mut before, (0..32).map(|at| at * 8));
    let (told, newly_opened) = (until(false), Device::open(&CardChoice::default()));
    link("up");
    assert!(outcome.is_err() && took < ENOUGH, "{outcome:?} after {took:?}");
    let error = told.unwrap_err();
    assert!(matches!(error, RdmaError::Event { .. }), "{error}");
    assert!(error.to_string().contains("port 1 is down; bring the link up"), "{error}");
    assert!(matches!(newly_opened, Err(RdmaError::Port { .. })), "{newly_opened:?}");
    until(true).unwrap();
    drop(before);
    assert!(run(&mut reader().unwrap(), [8].into_iter()).0.is_ok());
}
