//! The client's side of the request ring, over verbs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::bell::{Bell, Woken};
use crate::clock::Deadline;
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::mapped::{Link, MappedEndpoint};
use crate::ring::{
    BODIES, CLIENT_SLEEPS, DAMAGED, REPLY_CHECKSUM, REPLY_TAG, REPLY_TOO_LONG, REQUEST_CHECKSUM, REQUEST_TAG,
    RingLayout, SERVED, SERVER_SLEEPS, at, checksum, len_of, sequence_of, tag,
};
use crate::spin::Spin;
use crate::turns::Calls;
use crate::verbs::Batch;

/// How long a caller spins for a reply, while that pays off: a quick service answers within it.
const SPIN: Duration = Duration::from_micros(20);

/// A request of more bytes takes the server longer than a spin: its caller sleeps at once.
const LONG: usize = 64 << 10;

/// Replies up to this many bytes are fetched with the look at their tag.
const SHORT: usize = 64;

/// Sends requests through one ring, one at a time. Its endpoint also reads the ring after the
/// memory node has hung up, which may have answered before.
#[derive(Debug)]
pub(crate) struct Caller {
    endpoint: MappedEndpoint,
    bell: Bell,
    link: Arc<Link>,
    layout: RingLayout,
    batch: Batch,
    sequence: u32,
    spin: Spin,
    /// Whether the last request is a long one.
    is_long: bool,
}

impl Caller {
    pub(crate) fn new(endpoint: MappedEndpoint, bell: Bell, link: Arc<Link>, layout: RingLayout) -> Self {
        let (batch, spin) = (Batch::new(), Spin::new(SPIN));
        Self { endpoint, bell, link, layout, batch, sequence: 0, spin, is_long: false }
    }

    fn send(&mut self, request: &[u8]) -> Result<(), FabricError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let tag = tag(self.sequence, request.len());
        self.batch.clear();
        if !request.is_empty() {
            self.batch.write(at(BODIES), request);
        }
        self.batch.write(at(REQUEST_CHECKSUM), &checksum(tag, request).to_le_bytes());
        self.batch.write(at(REQUEST_TAG), &tag.to_le_bytes());
        self.endpoint.run(&mut self.batch)?;
        let mut sleeps = [0];
        self.endpoint.read_words(at(SERVER_SLEEPS), &mut sleeps)?;
        if sleeps != [0] {
            self.bell.ring();
        }
        Ok(())
    }

    /// Spins for the reply's tag, then sleeps for it.
    fn await_reply(&mut self, deadline: Deadline) -> Result<u64, FabricError> {
        if !self.is_long {
            let spin = Deadline::after(self.spin.budget()).earlier(deadline);
            if let Some(tag) = self.spin_for_reply(spin)? {
                return Ok(tag);
            }
        }
        self.set_sleeping(1)?;
        let outcome = self.sleep_for_reply(deadline);
        // Also after an error: a word left at 1 would cost the memory node a system call per reply.
        let cleared = self.set_sleeping(0);
        let tag = outcome?;
        cleared?;
        Ok(tag)
    }

    fn spin_for_reply(&mut self, until: Deadline) -> Result<Option<u64>, FabricError> {
        // One READ, however often it looks.
        self.endpoint.meter().record_read(8);
        loop {
            for _ in 0..16 {
                let tag = self.endpoint.look(at(REPLY_TAG))?;
                if sequence_of(tag) == self.sequence {
                    self.spin.note_success();
                    return Ok(Some(tag));
                }
                std::hint::spin_loop();
            }
            if !self.link.is_alive() {
                // Perhaps after it has answered: `sleep_for_reply` takes another look.
                return Ok(None);
            }
            if until.has_passed(Instant::now()) {
                self.spin.note_failure();
                return Ok(None);
            }
        }
    }

    fn sleep_for_reply(&mut self, deadline: Deadline) -> Result<u64, FabricError> {
        loop {
            // Before the look: what was written before the end is seen by a look after it.
            let has_ended = self.link.has_ended();
            self.batch.clear();
            let landing = self.batch.read(at(REPLY_TAG), 8);
            self.endpoint.run(&mut self.batch)?;
            let tag = self.batch.u64(landing);
            if sequence_of(tag) == self.sequence {
                return Ok(tag);
            }
            if has_ended {
                return Err(self.link.disconnected());
            }
            // Also of a memory node that rings and rings.
            let is_late = deadline.has_passed(Instant::now());
            match self.bell.wait(deadline) {
                Woken::Rung if !is_late => {}
                // Perhaps after it has answered.
                Woken::HungUp => self.link.cut(),
                Woken::Rung | Woken::TimedOut => {
                    return Err(FabricError::DeadlinePassed { waiting_for: "the memory node's reply" });
                }
            }
        }
    }

    fn set_sleeping(&mut self, value: u64) -> Result<(), FabricError> {
        self.batch.clear();
        self.batch.write(at(CLIENT_SLEEPS), &value.to_le_bytes());
        self.endpoint.run(&mut self.batch)
    }

    fn fetch(&mut self, tag: u64, reply: &mut Vec<u8>) -> Result<(), FabricError> {
        let (len, max) = (len_of(tag), self.layout.reply_capacity());
        self.batch.clear();
        let head = self.batch.read(at(REPLY_CHECKSUM), 16);
        let body = self.batch.read(at(self.layout.reply_body()), len.min(max));
        self.endpoint.run(&mut self.batch)?;
        let &[sum, status] = self.batch.words(head) else {
            return Err(self.damaged());
        };
        match status {
            SERVED if len <= max => {}
            DAMAGED => return Err(FabricError::DamagedRequest),
            REPLY_TOO_LONG => return Err(FabricError::ReplyTooLong { len: len as u64, max: max as u64 }),
            _ => return Err(self.damaged()),
        }
        let bytes = self.batch.bytes(body);
        if checksum(tag, bytes) != sum {
            return Err(self.damaged());
        }
        reply.extend_from_slice(bytes);
        Ok(())
    }

    fn damaged(&self) -> FabricError {
        FabricError::DamagedReply { peer: Arc::clone(self.link.peer()) }
    }
}

impl Calls for Caller {
    fn post(&mut self, request: &[u8]) -> Result<u32, FabricError> {
        if request.len() > self.layout.request_capacity() {
            let (len, max) = (request.len() as u64, self.layout.request_capacity() as u64);
            return Err(FabricError::RequestTooLong { len, max });
        }
        if !self.link.is_alive() {
            return Err(self.link.disconnected());
        }
        self.send(request)?;
        self.is_long = request.len() > LONG;
        Ok(self.sequence)
    }

    fn wait(&mut self, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        if self.poll(reply)? {
            return Ok(());
        }
        let answered = self.await_reply(deadline)?;
        self.fetch(answered, reply)
    }

    /// Takes the reply to the last request if it is there. A short one comes with the look that
    /// finds it, as in RFP (Su et al., "RFP: When RPC is Faster than Server-Bypass with RDMA",
    /// EuroSys 2017, section 3.2), and no clock is looked at.
    fn poll(&mut self, reply: &mut Vec<u8>) -> Result<bool, FabricError> {
        reply.clear();
        let has_ended = self.link.has_ended();
        let (mut head, mut body) = ([0; 3], [0; SHORT / 8]);
        self.endpoint.read_both((at(REPLY_TAG), &mut head), (at(self.layout.reply_body()), &mut body))?;
        let [tag, sum, status] = head;
        if sequence_of(tag) != self.sequence {
            return if has_ended { Err(self.link.disconnected()) } else { Ok(false) };
        }
        // The READs have no order, nor the words of one: what came with the tag may be older than
        // it. The checksum proves a body; of none it proves nothing about the status, which may be
        // that of the reply before.
        let is_short = len_of(tag) > 0 && status == SERVED;
        let bytes = body.as_bytes().get(..len_of(tag)).filter(|_| is_short);
        match bytes.filter(|bytes| checksum(tag, bytes) == sum) {
            Some(bytes) => reply.extend_from_slice(bytes),
            None => self.fetch(tag, reply)?,
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::mapped::Area;
    use crate::memory::{Access, HugePages, SharedMemory};

    /// A caller that is woken by this, and the ring that its memory node has too.
    fn caller(bell: Bell) -> (Caller, Arc<SharedMemory>) {
        let layout = RingLayout::OURS;
        let (ring, _) = SharedMemory::create_memfd("ring", layout.len(), HugePages::No).expect("memory");
        let ring = Arc::new(ring);
        let areas: Arc<[Area]> = [
            Area::new(Arc::new(SharedMemory::anonymous(4096).expect("memory")), Access::ReadOnly),
            Area::new(Arc::clone(&ring), Access::ReadWrite),
        ]
        .into();
        let link = Arc::new(Link::new("a test").expect("a process"));
        let endpoint = MappedEndpoint::new(areas, Arc::clone(&link), None);
        (Caller::new(endpoint, bell, link, layout), ring)
    }

    /// Has a ring's memory node answer a request.
    fn answer(ring: &SharedMemory, sequence: u32, body: &[u8]) {
        let tag = tag(sequence, body.len());
        ring.write_bytes(RingLayout::OURS.reply_body(), body).expect("inside");
        ring.store_relaxed(REPLY_CHECKSUM, checksum(tag, body)).expect("inside");
        ring.store_release(REPLY_TAG, tag).expect("inside");
    }

    #[test]
    fn the_status_of_an_empty_reply_is_looked_at_after_its_tag() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let (mut caller, ring) = caller(Bell::new(ours.into()));
        for (body, reads) in [(&b"short"[..], 2), (&[], 4)] {
            let sequence = caller.post(&[1]).expect("posted");
            answer(&ring, sequence, body);
            let (before, mut reply) = (caller.endpoint.meter().snapshot(), Vec::new());
            assert!(caller.poll(&mut reply).expect("answered"));
            assert_eq!(reply, body);
            // A look at tag, status and body, and one more where nothing proves that they belong
            // together.
            assert_eq!(caller.endpoint.meter().snapshot().reads - before.reads, reads);
        }
    }

    /// Makes a call that is not answered.
    fn call_unanswered(caller: &mut Caller) {
        caller.post(&[1]).expect("posted");
        let began = Instant::now();
        let outcome = caller.wait(&mut Vec::new(), Deadline::after(Duration::from_millis(100)));
        assert!(matches!(outcome, Err(FabricError::DeadlinePassed { .. })), "{outcome:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[test]
    fn a_call_ends_with_its_deadline_though_the_memory_node_rings_for_ever() {
        // It is always readable, and never empty.
        let zero = std::fs::File::open("/dev/zero").expect("a device");
        call_unanswered(&mut caller(Bell::new(zero.into())).0);
    }

    #[test]
    fn a_call_ends_with_its_deadline_though_the_tag_changes_for_ever() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let (mut caller, ring) = caller(Bell::new(ours.into()));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let end = Instant::now() + Duration::from_secs(10);
                let goes_on = |_: &u32| !is_over.load(Ordering::Relaxed) && Instant::now() < end;
                for other in (1u32 << 30..).take_while(goes_on) {
                    ring.store_release(REPLY_TAG, tag(other, 0)).expect("inside");
                }
            });
            call_unanswered(&mut caller);
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
