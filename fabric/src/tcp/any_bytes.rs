//! Tests with any bytes from a peer: decoding and serving them ends, touches nothing it has no
//! right to, and holds a bounded amount.
//!
//! `FPCACHE_FUZZ_INPUTS` says how many inputs; a few hundred thousand unless told.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::areas::{Areas, Output};
use super::channel::{Channel, SendTime};
use super::frame::{
    Change, HEAD_BYTES, Kind, Limits, MAX_STRIDE, ReadEntry, ReplyHead, RequestHead, SERVED, checksum,
};
use super::handshake::{Greeting, Hello, Membership, WELCOME_BYTES, Welcome};
use super::stream::Stream;
use crate::memory::SharedMemory;
use crate::rdma::wire;
use crate::region::RegionName;
use crate::region_questions::{Answered, Answers, ThreadMemory};
use crate::verbs::{Batch, RemoteAddr};

const INPUTS: &str = "FPCACHE_FUZZ_INPUTS";
const LIMITS: Limits =
    Limits { batch_bytes: 1 << 12, reply_bytes: 1 << 13, call_request: 1 << 12, call_reply: 1 << 12 };
/// Bytes of each area.
const AREA: usize = 4096;
/// One of this many inputs goes over a socket too.
const BY_SOCKET: usize = 256;

/// Answers with the question.
#[derive(Debug)]
struct Echo;

impl Answers for Echo {
    fn answer(&self, _: &mut ThreadMemory, question: &[u8], reply: &mut [u64]) -> Answered {
        let words = reply.iter_mut().zip(question).map(|(word, byte)| *word = u64::from(*byte)).count();
        Answered { words, cost: question.len() }
    }
}

struct Peer {
    rng: TestRng,
    bytes: Vec<u8>,
}

impl Peer {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn entry(&mut self) -> ReadEntry {
        // Near the ends of areas, mostly.
        let offset = match self.below(8) {
            0 => self.rng.next_u64(),
            1 => u64::MAX - self.below(64),
            _ => self.below(AREA as u64 + 16),
        };
        let len = if self.below(16) == 0 { self.rng.next_u32() } else { self.below(300) as u32 };
        let stride = if self.below(4) == 0 { self.below(u64::from(MAX_STRIDE) + 1) as u32 } else { 0 };
        ReadEntry { offset, len, area: self.below(4) as u8, stride }
    }

    fn change(&mut self, out: &mut Vec<u8>) {
        let entry = self.entry();
        match self.below(16) {
            0..5 => Change::Read(entry).encode(out),
            5..10 => {
                let data = vec![9; self.below(64) as usize];
                // One in some lies about its length.
                let len = if self.below(8) == 0 { entry.len } else { data.len() as u32 };
                Change::Write(ReadEntry { len, ..entry }, &data).encode(out);
            }
            10..15 => Change::CompareSwap(entry, 1, 2).encode(out),
            // A verb that there is not.
            _ => out.extend([&entry.encode()[..], &3u64.to_le_bytes()].concat()),
        }
    }

    /// Bytes that a peer may send, more or less.
    fn say(&mut self) {
        self.bytes.clear();
        let count = self.below(12) as u32;
        let mut body = Vec::new();
        match self.below(9) {
            8 => {
                let question = vec![5; self.below(40) as usize];
                body.extend(checksum(&question).to_le_bytes());
                body.extend(question);
                let bytes = body.len() as u32;
                let head = RequestHead { bytes, entries: count, tag: 0, kind: Kind::Question };
                self.bytes.extend([&head.encode()[..], &body].concat());
            }
            0..3 => {
                (0..count).for_each(|_| body.extend(self.entry().encode()));
                let bytes = body.len() as u32;
                let head =
                    RequestHead { bytes, entries: count, tag: self.rng.next_u32() as u16, kind: Kind::Reads };
                self.bytes.extend([&head.encode()[..], &body].concat());
            }
            3..6 => {
                (0..count).for_each(|_| self.change(&mut body));
                let bytes = body.len() as u32;
                let head = RequestHead { bytes, entries: count, tag: 0, kind: Kind::Changes };
                self.bytes.extend([&head.encode()[..], &body].concat());
            }
            6 => {
                let member = Membership { client: self.below(3), secret: [1, 2] };
                let join = (self.below(2) == 0).then_some(member);
                let nonce = (self.below(2) == 0).then_some([7; 32]);
                let name = vec![b'n'; 1 + self.below(RegionName::MAX as u64) as usize];
                let name = RegionName::new(name).expect("a short name");
                self.bytes = Hello::encode(4, &name, join, nonce.as_ref());
            }
            _ => self.bytes.resize(self.rng.next_u32() as usize % 200, 0x5a),
        }
        self.spoil();
    }

    /// Changes some bytes, and the length.
    fn spoil(&mut self) {
        for _ in 0..self.below(4) {
            if let Some(last) = self.bytes.len().checked_sub(1) {
                let at = self.below(last as u64 + 1) as usize;
                self.bytes[at] = match self.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => self.bytes[at] ^ 1 << self.below(8),
                    _ => self.rng.next_u32() as u8,
                };
            }
        }
        match self.below(8) {
            0 => {
                let len = self.below(self.bytes.len() as u64 + 1) as usize;
                self.bytes.truncate(len);
            }
            1 => self.bytes.extend([0xa5; 24]),
            _ => {}
        }
    }
}

/// Serves the bytes as those of a client.
fn serve(areas: &Areas, bytes: &[u8], out: &mut Output) -> bool {
    out.clear();
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return false };
    let Ok(head) = RequestHead::decode(head, &LIMITS) else { return false };
    assert!(head.bytes <= LIMITS.call_request + 8);
    let Some(body) = rest.get(..head.bytes as usize) else { return false };
    let served = match head.kind {
        Kind::Reads => areas.read(&head, body, LIMITS.reply_bytes, out),
        Kind::Changes => areas.change(&head, body, LIMITS.reply_bytes, out),
        Kind::Question => {
            areas.answer(&mut ThreadMemory::default(), &head, body, out);
            Ok(())
        }
        Kind::Call | Kind::Card => return false,
    };
    assert!(out.len() <= HEAD_BYTES + LIMITS.reply_bytes as usize);
    assert_eq!(served.is_ok(), out.len() >= HEAD_BYTES, "only what was served is answered");
    served.is_ok()
}

/// Takes the bytes as what a memory node says.
fn greet(bytes: &[u8]) -> bool {
    if let Some(welcome) = bytes.first_chunk::<WELCOME_BYTES>() {
        let _ = Welcome::decode(welcome);
    }
    let _ = (wire::CardRequest::decode(bytes), wire::CardReply::decode(bytes));
    matches!(Hello::read(bytes, 4), Greeting::Whole(..))
}

/// Takes the bytes as the replies to two batches of READs, and to a question.
fn land(bytes: &[u8]) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (own, others): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
    let mut channel = Channel::new(Stream::new(own, None), LIMITS);
    let sent = SendTime { at: Instant::now(), is_trip: false };
    for len in [40, 64] {
        let mut batch = Batch::new();
        batch.read(RemoteAddr::region(0), len);
        channel.submit(None, batch, None, sent);
    }
    let mut question = Batch::new();
    question.ask(b"what", 5);
    channel.submit(None, question, None, sent);
    rustix::io::write(&others, bytes).expect("a socket takes some bytes");
    let mut landed = 0;
    while channel.progress(usize::MAX, &mut |_| landed += 1).is_ok_and(|moved| moved) {}
    // Until here it is there.
    drop(others);
    assert!(landed <= 3);
    landed > 0
}

/// The replies to these batches and the question, whole.
fn replies() -> Vec<u8> {
    let head = |bytes, tag| ReplyHead { bytes, tag, status: SERVED, word: 7 }.encode().map(u64::to_le_bytes);
    let reply = |bytes: u32, tag| [head(bytes, tag).concat(), vec![3; bytes as usize]].concat();
    [reply(40, 0), reply(64, 1), reply(24, 2)].concat()
}

#[test]
fn whatever_a_peer_sends_ends_and_stays_within_bounds() {
    let inputs = std::env::var(INPUTS).map_or(200_000, |text| text.parse().expect("a number of inputs"));
    let area = || Arc::new(SharedMemory::anonymous(AREA).expect("a page"));
    let (region, scratch) = (area(), area());
    region.store_release(0, 0x1122).expect("within");
    let backed_end = Arc::new(AtomicU64::new(AREA as u64 / 2));
    let echo: Arc<dyn Answers> = Arc::new(Echo);
    let areas = Areas {
        region: Arc::clone(&region),
        for_card: Arc::clone(&region),
        backed_end,
        watched: Some(0),
        lease: Duration::ZERO,
        scratch: Some(scratch),
        answers: Some(Arc::downgrade(&echo)),
    };
    let mut seed = [7; 32];
    // Another run of many is another one.
    seed[..8].copy_from_slice(&(inputs as u64).to_le_bytes());
    let mut peer = Peer { rng: TestRng::from_seed(RngAlgorithm::ChaCha, &seed), bytes: Vec::new() };
    let (mut out, replies) = (Output::default(), replies());
    let (mut served, mut greeted, mut landed) = (0, 0, 0);
    for input in 0..inputs {
        peer.say();
        served += usize::from(serve(&areas, &peer.bytes, &mut out));
        greeted += usize::from(greet(&peer.bytes));
        if input % BY_SOCKET == 0 {
            peer.bytes.clone_from(&replies);
            peer.spoil();
            landed += usize::from(land(&peer.bytes));
        }
    }
    // Clients change nothing of the region, and valid changes get through.
    assert_eq!(region.load_relaxed(0).expect("within"), 0x1122);
    let part = |count: usize, of: usize| assert!(count > of / 100, "{count} of {of}");
    part(served, inputs);
    part(greeted, inputs);
    part(landed, inputs / BY_SOCKET);
}
