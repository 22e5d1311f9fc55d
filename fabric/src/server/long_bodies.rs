//! Long requests and replies in the rings: whose request is taken next when the service has no room for all of them, and which
//! pages of rings the process keeps mapped.

use std::collections::VecDeque;

use super::Session;
use crate::connection::{ClientId, SHORT_BODY, Service};
use crate::memory::AccessError;
use crate::ring::BODIES;

/// Bytes of long bodies that stay mapped, of all rings together. Mapping them anew takes a tenth of the time of a copy.
const MOST_MAPPED: usize = 16 << 20;

/// What is known of the long bodies of all rings.
#[derive(Debug, Default)]
pub(super) struct LongBodies {
    /// Clients whose long requests the service has no room for, in the order in which they came.
    waiting: VecDeque<ClientId>,
    /// Bytes of long bodies in rings that may be mapped.
    mapped: usize,
}

/// What is known of the long bodies of one ring.
#[derive(Debug, Default)]
pub(super) struct RingPages {
    /// Whether its client is among those that wait.
    waits: bool,
    /// Bytes of requests and of replies that may be mapped.
    request: usize,
    reply: usize,
    /// Whether the last reply takes memory that nobody needs when the next request is there.
    discards_reply: bool,
}

impl RingPages {
    pub(super) fn waits(&self) -> bool {
        self.waits
    }
}

impl LongBodies {
    /// Whether clients wait for the service to have room.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a long request is taken now. If not it stays in its ring, and no other long one overtakes it.
    pub(super) fn admits<S: Service>(&mut self, session: &mut Session, len: usize, service: &S) -> bool {
        if self.waiting.front().is_none_or(|first| *first == session.id) && service.has_room(session.id, len)
        {
            return true;
        }
        if !std::mem::replace(&mut session.pages.waits, true) {
            self.waiting.push_back(session.id);
        }
        false
    }

    /// A client waits no longer: its request is taken, it has given that up, or it has gone.
    #[cold]
    pub(super) fn stop_waiting(&mut self, session: &mut Session) {
        session.pages.waits = false;
        self.waiting.retain(|client| *client != session.id);
    }

    /// A ring has taken another request: the reply before it is of no use any more.
    pub(super) fn begin(&mut self, session: &mut Session) -> Result<(), AccessError> {
        if std::mem::take(&mut session.pages.discards_reply) {
            let kept = session.layout.reply_body() + SHORT_BODY as u64;
            session.ring.discard_from(kept)?;
        }
        Ok(())
    }

    /// Bodies of these lengths have passed through a ring. Pages of rings count as the process's memory while it has them
    /// mapped, so those of long bodies are let go of when there are many.
    #[cold]
    pub(super) fn passed(&mut self, session: &mut Session, request: usize, reply: usize) {
        let pages = &mut session.pages;
        let before = pages.request + pages.reply;
        (pages.request, pages.reply) = (pages.request.max(request), pages.reply.max(reply));
        self.mapped += pages.request + pages.reply - before;
        if self.mapped > MOST_MAPPED {
            pages.discards_reply = pages.reply > SHORT_BODY;
            session.ring.unmap_pages(BODIES);
            self.forget(session);
        }
    }

    /// A ring is gone, or its pages are not mapped any more.
    fn forget(&mut self, session: &mut Session) {
        self.mapped -= session.pages.request + session.pages.reply;
        (session.pages.request, session.pages.reply) = (0, 0);
    }

    pub(super) fn closed(&mut self, session: &mut Session) {
        self.forget(session);
        if session.pages.waits {
            self.stop_waiting(session);
        }
    }
}
