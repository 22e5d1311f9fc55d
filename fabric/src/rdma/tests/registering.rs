//! Registering memory that grows and shrinks while clients read it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::*;
use crate::memory::Registered;
use crate::rdma::registered::{RegisteredExtents, RegisteredRegion};
use crate::rdma::wire::CardRequest;

const MIB: u64 = 1 << 20;
/// So long that its stretches are of two MiB.
const SPAN: usize = 128 << 20;

impl Node {
    /// A node whose region has words, which tell where they lie, up to there.
    fn spanning(backed: u64) -> Self {
        let region = Arc::new(SharedMemory::create_memfd("region", SPAN, crate::HugePages::No).unwrap().0);
        let node = Self {
            card: Arc::new(NodeCard::open(&CardChoice::default()).unwrap()),
            backed_end: region.share_backed_end(),
            region,
            held: Arc::default(),
            wrong: 0,
        };
        node.region.set_backed_end(0);
        node.grow(backed);
        node
    }

    fn grow(&self, end: u64) {
        let before = self.region.backed_end();
        self.region.set_backed_end(end);
        (before..end).step_by(4096).for_each(|at| self.region.store_relaxed(at, at).unwrap());
    }

    fn shrink(&self, end: u64) {
        self.region.set_backed_end(end);
        assert!(self.region.discard_from(end).unwrap());
    }

    /// The same, for another client.
    fn for_another(&self) -> Self {
        Self { held: Arc::default(), ..self.clone() }
    }

    /// The registered extents, and the error of what cannot be registered.
    fn ask(&self) -> Result<(Vec<RegisteredExtent>, Option<RdmaError>), RdmaError> {
        let areas =
            ServedAreas { region: &self.region, backed_end: &self.backed_end, lease: LEASE, scratch: None };
        let mut held = self.held.lock().unwrap();
        let answer = self.card.answer(&areas, &mut held, &CardRequest::Extents.encode())?;
        Ok((CardReply::decode(&answer.bytes).unwrap().extents, answer.trouble))
    }
}

/// READs a word of each page in this range.
fn read_all(reader: &mut Reader, range: std::ops::Range<u64>) {
    let places = || range.clone().step_by(4096);
    let (read, _) = run(reader, places());
    assert_eq!(read.unwrap(), places().collect::<Vec<_>>());
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_whoever_reads_what_was_there_goes_on_while_memory_grows() {
    const STEP: u64 = 96 << 10;
    let node = Node::spanning(STEP);
    let _first = node.reader().unwrap();
    node.grow(2 * STEP);
    // It was told of both.
    let second = node.for_another();
    let mut reads = second.reader().unwrap();
    for count in 3..43 {
        node.grow(count * STEP);
        let asks = node.for_another();
        let mut newcomer = asks.reader().unwrap();
        read_all(&mut newcomer, (count - 1) * STEP..count * STEP);
        read_all(&mut reads, 0..2 * STEP);
    }
    read_all(&mut reads, 0..42 * STEP);
    let (extents, trouble) = second.ask().unwrap();
    assert!(extents.len() < 10 && trouble.is_none(), "{extents:?}");
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_a_shrink_takes_a_stretch_from_its_readers_and_no_more() {
    let node = Node::spanning(9 * MIB);
    let mut reader = node.reader().unwrap();
    read_all(&mut reader, 0..9 * MIB);
    node.shrink(9 * MIB - (512 << 10));
    read_all(&mut reader, 0..8 * MIB);
    let error = broken(run(&mut reader, [8 * MIB].into_iter()).0).to_string();
    assert!(error.contains("status 10"), "{error}");
    drop(reader);
    read_all(&mut node.reader().unwrap(), 0..9 * MIB - (512 << 10));
}

/// Does it where next to nothing may be locked: in a thread of its own, because a thread whose
/// rights have changed since may not use the devices that it has opened.
fn with_little_lockable<T: Send>(doing: impl FnOnce() -> T + Send) -> T {
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), ..before }).unwrap();
    let done = std::thread::scope(|scope| {
        let limited = scope.spawn(|| {
            let mut lacks = capabilities(None).unwrap();
            lacks.effective.remove(CapabilitySet::IPC_LOCK);
            set_capabilities(None, lacks).unwrap();
            doing()
        });
        limited.join()
    });
    setrlimit(Resource::Memlock, before).unwrap();
    done.unwrap()
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_what_cannot_be_registered_takes_nothing_from_what_is() {
    let node = Node::spanning(MIB);
    let mut reader = node.reader().unwrap();
    node.grow(8 * MIB);
    with_little_lockable(|| {
        let (extents, trouble) = node.ask().unwrap();
        assert_eq!(extents.iter().map(|extent| extent.len).collect::<Vec<_>>(), [MIB]);
        assert!(trouble.unwrap().to_string().contains("ulimit -l unlimited"));
        std::thread::sleep(Duration::from_millis(1100));
        // Tried again, and told once.
        assert!(node.ask().unwrap().1.is_none());
    });
    read_all(&mut reader, 0..MIB);
    // The pause is two seconds now.
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(node.ask().unwrap().0.len(), 4);
    read_all(&mut reader, 0..8 * MIB);
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_nobody_is_served_where_nothing_can_be_registered() {
    let mut node = Node::spanning(MIB);
    let pair = QueuePair::new(&Arc::new(Device::open(&CardChoice::default()).unwrap()), true).unwrap();
    let introduction = CardRequest::QueuePair(pair.end()).encode();
    let refused = with_little_lockable(|| node.exchange(&introduction, Deadline::NONE));
    assert!(refused.unwrap_err().to_string().contains("ulimit -l unlimited"));
    assert!(node.exchange(&introduction, Deadline::NONE).is_ok());
}

/// A withdrawal of memory waits for the part of it that is being registered.
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_nothing_is_registered_of_what_was_withdrawn() {
    let device = Arc::new(Device::open(&CardChoice::default()).unwrap());
    let memory = Arc::new(SharedMemory::create_memfd("region", SPAN, crate::HugePages::No).unwrap().0);
    let backed_end = Arc::new(AtomicU64::new(0));
    let region = RegisteredRegion::new(&device, &memory, &backed_end, RegionRights::RemoteRead);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                assert!(region.tell(0, &mut RegisteredExtents::default()).is_none());
                region.release_replaced();
            }
        });
        let mut found = 0;
        for round in 0..300u64 {
            backed_end.store(8 * MIB + round * 4096, Release);
            std::thread::sleep(Duration::from_micros(round * 20));
            let end = round % 7 * MIB;
            backed_end.store(end, Release);
            region.withdraw(end);
            assert!(region.reach() <= end, "round {round}");
            found += u64::from(region.reach() > 0);
        }
        is_over.store(true, Relaxed);
        assert!(found > 20, "{found}");
    });
}
