//! Long requests and replies in the rings: those that wait for the service to have room, and the
//! pages of rings that the process keeps mapped.

use crate::memory::{AccessError, SharedMemory};
use crate::ring::{BODIES, RingLayout};
use crate::room_queue::{RoomQueue, RoomTicket};
use crate::service::{ClientId, SHORT_BODY, Service};

/// Bytes of long bodies that stay mapped, of all rings together. Mapping them anew takes a tenth of
/// the time of a copy.
const MOST_MAPPED: usize = 16 << 20;

/// What is known of the long bodies of all rings.
#[derive(Debug, Default)]
pub(super) struct LongBodies {
    /// The requests that wait for the service to have room, over sockets too.
    pub(super) queue: RoomQueue,
    /// Bytes of long bodies in rings that may be mapped.
    mapped: usize,
}

/// What is known of the long bodies of one ring.
#[derive(Debug, Default)]
pub(super) struct RingPages {
    /// Its client's place among those that wait for room, if it is one of them.
    ticket: Option<RoomTicket>,
    /// Bytes of requests and of replies that may be mapped.
    request: usize,
    reply: usize,
    /// Whether the last reply takes memory that is not needed once the next request is there.
    discards_reply: bool,
}

impl RingPages {
    pub(super) fn waits(&self) -> bool {
        self.ticket.is_some()
    }

    /// The ring has taken another request: the reply before it is of no use any more.
    pub(super) fn begin(&mut self, ring: &SharedMemory, layout: &RingLayout) -> Result<(), AccessError> {
        if std::mem::take(&mut self.discards_reply) {
            ring.discard_from(layout.reply_body() + SHORT_BODY as u64)?;
        }
        Ok(())
    }
}

impl LongBodies {
    /// Whether a long request is taken now. If not it stays in its ring, and no other long one for
    /// the same room overtakes it.
    pub(super) fn admits<S: Service>(
        &mut self,
        pages: &mut RingPages,
        client: ClientId,
        len: usize,
        service: &S,
    ) -> bool {
        self.queue.admits(&mut pages.ticket, client, len, service)
    }

    /// A client waits no longer: it has given its request up, or it has gone.
    #[cold]
    pub(super) fn stop_waiting(&mut self, pages: &mut RingPages) {
        self.queue.leave(&mut pages.ticket);
    }

    /// Bodies of these lengths have passed through a ring. Pages of rings count as the process's
    /// memory while it has them mapped, so those of long bodies are let go of when there are many.
    #[cold]
    pub(super) fn passed(
        &mut self,
        pages: &mut RingPages,
        ring: &SharedMemory,
        request: usize,
        reply: usize,
    ) {
        let before = pages.request + pages.reply;
        (pages.request, pages.reply) = (pages.request.max(request), pages.reply.max(reply));
        self.mapped += pages.request + pages.reply - before;
        if self.mapped > MOST_MAPPED {
            pages.discards_reply = pages.reply > SHORT_BODY;
            ring.unmap_pages(BODIES);
            self.forget(pages);
        }
    }

    /// A ring is gone, or its pages are not mapped any more.
    fn forget(&mut self, pages: &mut RingPages) {
        self.mapped -= pages.request + pages.reply;
        (pages.request, pages.reply) = (0, 0);
    }

    pub(super) fn closed(&mut self, pages: &mut RingPages) {
        self.forget(pages);
        self.stop_waiting(pages);
    }
}
