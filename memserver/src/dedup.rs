//! The last request of each client and its replies, so that a repeated request is answered without
//! being executed again.
//!
//! A request may have a thousand replies. All tables of a memory node share a limit on the bytes of
//! replies kept; above it, the replies of the clients that have been silent longest are discarded.
//! The number of such a client's last request is kept. If that request is repeated, it is answered
//! from the recovery area, or refused if there is none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fpcache::message::WriteReply;

/// Clients that are remembered; of more, the ones silent longest are forgotten.
pub(crate) const MOST_CLIENTS: usize = 1024;

/// Bytes of replies that all tables of a memory node keep, and down to which they let some go once
/// it is more.
const MOST_KEPT: usize = 4 << 20;
const KEPT_AFTER: usize = MOST_KEPT - MOST_KEPT / 16;
/// Replies for which a client's memory stays reserved, however few its next request has.
const RESERVED: usize = 64;
/// The place of no client.
const NONE: u32 = u32::MAX;

/// What all tables of a memory node keep of replies.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptReplies {
    all: Arc<ReplyTotals>,
}

#[derive(Debug, Default)]
struct ReplyTotals {
    bytes: AtomicUsize,
    /// Requests of all tables: tells whose client has been silent longest.
    requests: AtomicU64,
}

impl KeptReplies {
    /// Whether some are to be evicted.
    #[inline]
    pub(crate) fn are_too_many(&self) -> bool {
        self.all.bytes.load(Ordering::Relaxed) > MOST_KEPT
    }

    /// Whether, once they were too many, enough have been let go.
    pub(crate) fn are_few_enough(&self) -> bool {
        self.all.bytes.load(Ordering::Relaxed) <= KEPT_AFTER
    }

    /// The number of the next request. One thread serves all tables; another that makes one at the
    /// same time may get the same.
    fn next_request(&self) -> u64 {
        let next = self.all.requests.load(Ordering::Relaxed) + 1;
        self.all.requests.store(next, Ordering::Relaxed);
        next
    }

    fn count(&self, before: usize, after: usize) {
        if after > before {
            self.all.bytes.fetch_add((after - before) * size_of::<WriteReply>(), Ordering::Relaxed);
        } else if after < before {
            self.all.bytes.fetch_sub((before - after) * size_of::<WriteReply>(), Ordering::Relaxed);
        }
    }
}

/// A client's request in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DedupSession {
    pub(crate) client: u64,
    pub(crate) request: u64,
    /// The client's place among those remembered.
    pub(crate) place: usize,
}

/// The last request of one client.
#[derive(Debug)]
struct LastRequest {
    client: u64,
    request: u64,
    /// Replies to the operations that were done.
    replies: Vec<WriteReply>,
    /// Whether replies to it were evicted.
    is_evicted: bool,
    /// When it was made, counted in requests of all clients.
    heard: u64,
    /// The places of the clients heard of before and after this one.
    before: u32,
    after: u32,
}

/// What is known of clients.
#[derive(Debug)]
pub(crate) struct DedupSessions {
    /// Each client's place in `last`. Operations name the place: only requests are looked up here.
    places: HashMap<u64, usize>,
    last: Vec<LastRequest>,
    /// The places of the client silent longest, and of the one heard of last.
    oldest: u32,
    newest: u32,
    /// The replies of those before this place were evicted.
    first_kept: u32,
    /// Whether there may be requests that were executed and are not remembered.
    has_forgotten: bool,
    kept: KeptReplies,
}

impl Default for DedupSessions {
    fn default() -> Self {
        Self::new(false)
    }
}

/// What a request is, given what is known of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DedupVerdict {
    /// New.
    New,
    /// Begun before: this many operations are done.
    Repeated(DedupSession, usize),
    /// Begun before: how many operations are done, and what was replied to them, was evicted.
    Evicted(DedupSession),
    /// Older than the last one: its client has given it up.
    Outdated,
    /// Perhaps done before: its client is not remembered.
    Forgotten,
}

impl DedupSessions {
    fn new(has_forgotten: bool) -> Self {
        let (places, last, kept) = (HashMap::new(), Vec::new(), KeptReplies::default());
        Self { places, last, oldest: NONE, newest: NONE, first_kept: NONE, has_forgotten, kept }
    }

    /// Clients of a store that was recovered.
    pub(crate) fn inherited() -> Self {
        Self::new(true)
    }

    /// Keeps no more replies than these tables do together.
    pub(crate) fn keep_within(&mut self, kept: &KeptReplies) {
        let replies = self.last.iter().map(|last| last.replies.capacity()).sum();
        self.kept.count(replies, 0);
        self.kept = kept.clone();
        self.kept.count(0, replies);
    }

    /// What a request is.
    pub(crate) fn look_up(&self, client: u64, request: u64, sent_before: bool) -> DedupVerdict {
        match self.of(client) {
            Some((place, last)) if last.request == request => {
                let session = DedupSession { client, request, place };
                if last.is_evicted {
                    DedupVerdict::Evicted(session)
                } else {
                    DedupVerdict::Repeated(session, last.replies.len())
                }
            }
            Some((_, last)) if last.request > request => DedupVerdict::Outdated,
            None if sent_before && self.has_forgotten => DedupVerdict::Forgotten,
            _ => DedupVerdict::New,
        }
    }

    /// A client's place and last request.
    fn of(&self, client: u64) -> Option<(usize, &LastRequest)> {
        let place = *self.places.get(&client)?;
        Some((place, self.last.get(place)?))
    }

    /// A client's place.
    pub(crate) fn place_of(&self, client: u64) -> Option<usize> {
        self.places.get(&client).copied()
    }

    /// Begins a client's next request, of this many operations. Another client may be forgotten for
    /// it, but none that has a request in hand: `None` if all have.
    pub(crate) fn begin(
        &mut self,
        client: u64,
        request: u64,
        operations: usize,
        is_in_hand: impl Fn(usize, u64) -> bool,
    ) -> Option<DedupSession> {
        let place = match self.places.get(&client) {
            Some(place) => *place,
            None if self.last.len() < MOST_CLIENTS => self.add(client, request),
            None => self.silent_longest(is_in_hand)?,
        };
        let heard = self.kept.next_request();
        let last = self.last.get_mut(place)?;
        if last.client != client {
            self.has_forgotten = true;
            self.places.remove(&last.client);
            self.places.insert(client, place);
        }
        (last.client, last.request, last.heard, last.is_evicted) = (client, request, heard, false);
        last.replies.clear();
        if last.replies.capacity() > RESERVED + 4 * operations {
            self.kept.count(last.replies.capacity(), 0);
            last.replies = Vec::new();
        }
        self.grow(place, operations);
        self.touch(place as u32);
        Some(DedupSession { client, request, place })
    }

    /// Makes room for the replies to a request that continues.
    pub(crate) fn reserve(&mut self, place: usize, operations: usize) {
        self.grow(place, operations);
        self.look_again(place);
    }

    /// Makes room for the replies to a request of this many operations.
    fn grow(&mut self, place: usize, operations: usize) {
        let Some(last) = self.last.get_mut(place) else { return };
        let before = last.replies.capacity();
        if before < operations {
            last.replies.reserve_exact(operations - last.replies.len());
            self.kept.count(before, last.replies.capacity());
        }
    }

    /// Gives a client the next place, as the one heard of last.
    fn add(&mut self, client: u64, request: u64) -> usize {
        let place = self.last.len();
        self.places.insert(client, place);
        let (replies, before) = (Vec::new(), self.newest);
        self.last.push(LastRequest {
            client,
            request,
            replies,
            is_evicted: false,
            heard: 0,
            before,
            after: NONE,
        });
        self.link(before, place as u32);
        self.link(place as u32, NONE);
        place
    }

    /// Has a place come directly after another; [`NONE`] stands for the ends.
    fn link(&mut self, before: u32, after: u32) {
        match self.last.get_mut(before as usize) {
            Some(last) => last.after = after,
            None => self.oldest = after,
        }
        match self.last.get_mut(after as usize) {
            Some(last) => last.before = before,
            None => self.newest = before,
        }
    }

    /// Makes a client the one heard of last.
    #[inline]
    fn touch(&mut self, place: u32) {
        if self.newest != place {
            let Some(&LastRequest { before, after, .. }) = self.last.get(place as usize) else { return };
            if self.first_kept == place {
                self.first_kept = after;
            }
            self.link(before, after);
            self.link(self.newest, place);
            self.link(place, NONE);
        }
        if self.first_kept == NONE {
            self.first_kept = place;
        }
    }

    /// Looks for replies to let go from the beginning again, as far as that may be needed for this
    /// place.
    fn look_again(&mut self, place: usize) {
        if self.last.get(place).is_some_and(|last| last.replies.capacity() > 0) {
            self.first_kept = self.oldest;
        }
    }

    /// The places of clients from this one on, the one silent longest first.
    fn places_from(&self, place: u32) -> impl Iterator<Item = (usize, &LastRequest)> {
        let at = |place: u32| self.last.get(place as usize).map(|last| (place as usize, last));
        std::iter::successors(at(place), move |(_, last)| at(last.after))
    }

    /// The place of the client silent longest, of those without a request in hand.
    fn silent_longest(&self, is_in_hand: impl Fn(usize, u64) -> bool) -> Option<usize> {
        let mut places = self.places_from(self.oldest);
        places.find(|(place, last)| !is_in_hand(*place, last.client)).map(|(place, _)| place)
    }

    /// When the client was heard of whose replies are evicted next, if there are any.
    pub(crate) fn oldest_kept(&mut self) -> Option<u64> {
        while let Some(last) = self.last.get(self.first_kept as usize) {
            if last.replies.capacity() > 0 {
                return Some(last.heard);
            }
            self.first_kept = last.after;
        }
        None
    }

    /// Evicts the replies of the client silent longest, of those without a request in hand; `false`
    /// if there are none.
    pub(crate) fn evict_oldest(&mut self, is_in_hand: impl Fn(usize, u64) -> bool) -> bool {
        self.oldest_kept();
        let at_rest = |(place, last): &(usize, &LastRequest)| {
            last.replies.capacity() > 0 && !is_in_hand(*place, last.client)
        };
        let Some((place, _)) = self.places_from(self.first_kept).find(at_rest) else { return false };
        self.evict(place);
        true
    }

    fn evict(&mut self, place: usize) {
        let Some(last) = self.last.get_mut(place) else { return };
        last.is_evicted |= !last.replies.is_empty();
        self.kept.count(last.replies.capacity(), 0);
        last.replies = Vec::new();
    }

    /// Evicts all replies, which are in the recovery area.
    pub(crate) fn evict_all(&mut self) {
        (0..self.last.len()).for_each(|place| self.evict(place));
    }

    /// Puts the replies to a client's last request back that were evicted, as they were noted
    /// elsewhere.
    pub(crate) fn restore_replies(&mut self, session: &DedupSession, replies: Vec<WriteReply>) {
        let Some(last) = self.last.get_mut(session.place) else { return };
        self.kept.count(last.replies.capacity(), replies.capacity());
        (last.replies, last.is_evicted) = (replies, false);
        self.look_again(session.place);
    }

    /// Takes up what was noted of the client at the next place, if of any.
    pub(crate) fn restore(&mut self, place: usize, noted: Option<(u64, u64, Vec<WriteReply>)>) {
        // A place without a client is kept by a number that no client has.
        let is_vacant = noted.is_none();
        let (client, request, replies) = noted.unwrap_or((u64::MAX - place as u64, 0, Vec::new()));
        let place = self.add(client, request);
        self.kept.count(0, replies.capacity());
        self.last[place].replies = replies;
        self.look_again(place);
        if is_vacant && self.oldest != place as u32 {
            // The first to be given to another.
            let LastRequest { before, after, .. } = self.last[place];
            self.link(before, after);
            self.link(place as u32, self.oldest);
            self.link(NONE, place as u32);
        }
    }

    /// A client's request, if it is its last.
    pub(crate) fn with_request(&self, client: u64, request: u64) -> Option<DedupSession> {
        let (place, _) = self.of(client).filter(|(_, last)| last.request == request)?;
        Some(DedupSession { client, request, place })
    }

    /// Keeps the reply to an operation of a client's request; those before it are done.
    #[inline(always)]
    pub(crate) fn done(&mut self, session: &DedupSession, operation: usize, reply: WriteReply) {
        if let Some(last) = self.last.get_mut(session.place)
            && (last.client, last.request) == (session.client, session.request)
            && operation <= last.replies.len()
        {
            last.replies.truncate(operation);
            last.replies.push(reply);
        }
    }

    /// The replies to a client's last request.
    pub(crate) fn replies(&self, client: u64) -> &[WriteReply] {
        self.of(client).map_or(&[], |(_, last)| &last.replies)
    }

    /// Whether there are more replies than there may be, and none of another table to evict.
    pub(crate) fn must_evict(&self) -> bool {
        // The catalogue discards replies before there are that many.
        self.kept.all.bytes.load(Ordering::Relaxed) > MOST_KEPT + MOST_KEPT / 8
    }
}

impl Drop for DedupSessions {
    fn drop(&mut self) {
        self.kept.count(self.last.iter().map(|last| last.replies.capacity()).sum(), 0);
    }
}

#[cfg(test)]
#[path = "dedup/tests.rs"]
mod tests;
