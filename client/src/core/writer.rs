//! Writers, the senders of changes, and their deadlines.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteBatch, WriteReply};
use fpcache_fabric::{Clock, Deadline};

/// How much of a call's time one sending of a request waits for its reply, and at least how long.
const PART: (u32, Duration) = (4, Duration::from_millis(1));

/// Who sends changes, as the memory node knows it: a thread, or a lane of writes in flight. It has
/// one request in flight, so that a request with a higher number says that the ones before are no
/// longer waited for.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) identity: u64,
    /// The number of the process that created it. To the memory node, every process is a different
    /// client.
    pub(super) process: u64,
    /// The number of the last request.
    pub(super) requests: u64,
    /// The creation number of the table for which the batch was put together: its shape, and where
    /// the hot cache believes records to lie.
    pub(super) creation: u64,
    /// The creation number of the only table that the changes are for, if they are for one alone.
    pub(super) meant: Option<u64>,
    pub(super) batch: WriteBatch,
    pub(super) request: Vec<u8>,
    pub(super) reply: Vec<u8>,
    /// For changes made one at a time.
    pub(super) replies: Vec<WriteReply>,
}

impl Writer {
    pub(super) fn new(identity: u64, process: u64) -> Self {
        let (request, reply, replies) = (Vec::new(), Vec::new(), Vec::new());
        let batch = WriteBatch::default();
        Self { identity, process, requests: 0, creation: 0, meant: None, batch, request, reply, replies }
    }

    /// The bytes of the batch as a request that perhaps was sent before.
    pub(super) fn encode<K: BuildKeys>(&mut self, sent_before: bool) -> &[u8] {
        let request = self.batch.request(self.identity, self.requests, sent_before);
        request.encode::<K>(self.creation, &mut self.request);
        &self.request
    }

    /// The batch is a request of its own from here on.
    pub(super) fn next_request(&mut self) {
        self.requests += 1;
    }
}

/// Until when a request may be sent again, and how long each sending of it may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) within: Duration,
    pub(super) deadline: Deadline,
}

impl Limits {
    pub(super) fn new(within: Duration, clock: &dyn Clock) -> Self {
        Self { within, deadline: Deadline::after_on(clock, within) }
    }

    /// What is left of the call's time.
    pub(super) fn left(&self, clock: &dyn Clock) -> Duration {
        self.deadline.remaining(clock.now()).unwrap_or(self.within)
    }

    /// By when a sending that begins now must be answered.
    pub(super) fn part(&self, clock: &dyn Clock) -> Deadline {
        Deadline::after_on(clock, (self.within / PART.0).max(PART.1)).earlier(self.deadline)
    }
}
