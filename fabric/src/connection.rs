//! A compute node's connection to a memory node.

use crate::clock::Deadline;
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::meter::MeterSnapshot;
use crate::verbs::AreaId;

/// A request that was posted, until its reply has been waited for or it was given up. No other
/// request goes over its connection meanwhile.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "its connection takes no other request until this one was waited for or given up"]
pub struct Posted(u64);

impl Posted {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Whether it is the connection's request of this number.
    pub(crate) fn is(&self, number: impl Into<u64>) -> bool {
        self.0 == number.into()
    }
}

/// A connection to one memory node, shared by the threads of a compute node.
pub trait Connection: Send + Sync {
    /// The kind of queue pair it gives.
    type Endpoint: Endpoint + Send;

    /// A new queue pair with its own meter. Cheap: one per thread. It outlives the connection
    /// value, but keeps the memory node's areas mapped.
    fn endpoint(&self) -> Self::Endpoint;

    /// Sends a request to the memory node's [`Service`](crate::Service) and returns without waiting
    /// for its reply. One at a time per connection: until the reply was [waited](Self::wait) for,
    /// or the request [given up](Self::give_up), others wait their turn. A caller that wants
    /// several requests under way opens several connections.
    ///
    /// The deadline is that of the turn; [`wait`](Self::wait) has one of its own.
    ///
    /// # Errors
    /// [`RequestTooLong`](FabricError::RequestTooLong) and [`Crowded`](FabricError::Crowded):
    /// nothing was sent. [`Disconnected`](FabricError::Disconnected): the request may have been
    /// executed or may yet be.
    fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError>;

    /// Takes the reply to a request that was posted here, if it is there: `None` then, and else the
    /// request, whose turn goes on. A look at a few words, to be taken between other work; a caller
    /// with nothing else to do waits.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), except that no deadline passes.
    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError>;

    /// Waits for the reply to a request that was posted here, which replaces the contents of
    /// `reply`. A reply that is there is taken also when the deadline has passed. The request's
    /// turn ends, however this does.
    ///
    /// # Errors
    /// [`ReplyTooLong`](FabricError::ReplyTooLong), [`DeadlinePassed`](FabricError::DeadlinePassed)
    /// and [`Disconnected`](FabricError::Disconnected). After one of the last two the request may
    /// have been executed or may yet be. [`NotPosted`](FabricError::NotPosted) if it was posted to
    /// another connection.
    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError>;

    /// Ends the turn of a request without its reply: it may have been executed or may yet be.
    fn give_up(&self, posted: Posted);

    /// Sends a request and waits for its reply, which replaces the contents of `reply`:
    /// [`post`](Self::post) and [`wait`](Self::wait).
    ///
    /// # Errors
    /// Those of the two.
    fn call(&self, request: &[u8], reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        reply.clear();
        let posted = self.post(request, deadline)?;
        self.wait(posted, reply, deadline)
    }

    /// Longest request in bytes.
    fn max_request(&self) -> usize;

    /// Longest reply in bytes.
    fn max_reply(&self) -> usize;

    /// Whether the memory node still serves this connection: one relaxed load, false soon after it
    /// ended.
    fn is_alive(&self) -> bool;

    /// A hint that `len` bytes at `offset` of an area will be read at random before long. Mapped
    /// memory maps their pages now, a tenth of a microsecond each, instead of faulting on each at
    /// its first READ.
    fn will_read(&self, area: AreaId, offset: u64, len: u64) {
        let _ = (area, offset, len);
    }

    /// Which life of the memory node this is; a restarted one has another.
    fn incarnation(&self) -> u64;

    /// Which of the regions that have had its name this is: the number that the service gave it.
    /// Unlike the incarnation it stays when the memory node starts anew and goes on with the
    /// region.
    fn creation(&self) -> u64;

    /// The cost of requests so far.
    fn call_meter(&self) -> MeterSnapshot;
}
