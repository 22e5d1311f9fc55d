//! What a memory node holds of long requests and replies that are under way, whatever its clients send.
//!
//! A request that goes on later is kept with its bytes, and so is the reply that a lookup has put together so far. Of all tables
//! together there are so many bytes of each; a request for which there is no room waits in its ring, and a lookup whose reply has
//! none waits with its request alone. The two have bounds of their own: a lookup that has room for its reply ends without
//! waiting for anything, so there is always some again. What is [short](SHORT_BODY) is not counted: every connection may have
//! one request and one reply of that length.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fpcache_fabric::SHORT_BODY;

/// Bytes of long requests that are kept at most, and of replies.
const MOST: usize = 8 << 20;

/// Bytes that are kept.
#[derive(Debug, Default)]
struct Kept {
    requests: AtomicUsize,
    replies: AtomicUsize,
}

/// What a table keeps of requests and replies, beside what all tables of its memory node do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transit {
    all: Arc<Kept>,
    own: Arc<Kept>,
}

/// Which of the two bounds counts.
#[derive(Clone, Copy, Debug)]
enum Body {
    Request,
    Reply,
}

impl Kept {
    fn of(&self, body: Body) -> &AtomicUsize {
        match body {
            Body::Request => &self.requests,
            Body::Reply => &self.replies,
        }
    }
}

/// Bytes that are kept, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    transit: Transit,
    body: Body,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        for kept in [&self.transit.all, &self.transit.own] {
            kept.of(self.body).fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Transit {
    /// For another table of the same memory node.
    pub(crate) fn beside(&self) -> Self {
        Self { all: Arc::clone(&self.all), own: Arc::default() }
    }

    /// Whether a request of so many bytes can be kept.
    pub(crate) fn has_room_for_request(&self, bytes: usize) -> bool {
        self.has_room(Body::Request, bytes)
    }

    /// Whether a reply of so many bytes can be kept.
    pub(crate) fn has_room_for_reply(&self, bytes: usize) -> bool {
        self.has_room(Body::Reply, bytes)
    }

    /// A table gets no more than is left: however long its requests wait, for a disk for example, others have room.
    fn has_room(&self, body: Body, bytes: usize) -> bool {
        let [all, own] = [&self.all, &self.own].map(|kept| kept.of(body).load(Ordering::Relaxed));
        // The first one always has, however long requests may be.
        bytes <= SHORT_BODY || all == 0 || own + bytes <= MOST.saturating_sub(all)
    }

    /// Counts a request that is kept, if it is long.
    pub(crate) fn keep_request(&self, bytes: usize) -> Option<Held> {
        (bytes > SHORT_BODY).then(|| self.keep(Body::Request, bytes))
    }

    /// Counts a reply that is to be put together; `None` if there is no room for it.
    pub(crate) fn keep_reply(&self, bytes: usize) -> Option<Held> {
        self.has_room_for_reply(bytes).then(|| self.keep(Body::Reply, bytes))
    }

    fn keep(&self, body: Body, bytes: usize) -> Held {
        for kept in [&self.all, &self.own] {
            kept.of(body).fetch_add(bytes, Ordering::Relaxed);
        }
        Held { transit: self.clone(), body, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_table_leaves_room_for_others_and_what_is_dropped_is_free_again() {
        let first = Transit::default();
        let second = first.beside();
        let mut held: Vec<Held> = (0..4).map(|_| first.keep_reply(MIB).expect("room")).collect();
        assert!(first.keep_reply(MIB).is_none(), "as much as is left");
        held.extend((0..2).map(|_| second.keep_reply(MIB).expect("room left by the first")));
        assert!(second.keep_reply(MIB).is_none());
        assert!(second.has_room_for_request(MIB), "requests have room of their own");
        held.clear();
        assert!(second.keep_reply(MIB).is_some());
    }

    #[test]
    fn short_requests_always_have_room() {
        let transit = Transit::default();
        let held: Vec<_> = (0..64).map(|_| transit.keep_request(MIB)).collect();
        assert!(!transit.has_room_for_request(SHORT_BODY + 1));
        assert!(transit.has_room_for_request(SHORT_BODY) && transit.keep_request(SHORT_BODY).is_none());
        drop(held);
        assert!(transit.has_room_for_request(MIB));
    }
}
