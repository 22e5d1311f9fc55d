//! The last request of each client and the replies to it: writes go by them, so that a request that is sent again is not done
//! again.

use std::collections::HashMap;

use fpcache::message::WriteReply;

/// Clients that are remembered; of more, the ones silent longest are forgotten.
pub(crate) const MOST_CLIENTS: usize = 1024;

/// A client's request in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DedupSession {
    pub(crate) client: u64,
    pub(crate) request: u64,
    /// The client's place among those remembered.
    pub(crate) place: usize,
}

/// The last request of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastRequest {
    client: u64,
    request: u64,
    /// Replies to the operations that were done.
    replies: Vec<WriteReply>,
    /// When it was made, counted in requests of all clients.
    heard: u64,
}

/// What is known of clients.
#[derive(Debug, Default)]
pub(crate) struct DedupSessions {
    /// Each client's place in `last`. Operations name the place: only requests are looked up here.
    places: HashMap<u64, usize>,
    last: Vec<LastRequest>,
    requests: u64,
    /// Whether there may be requests that were executed and are not remembered.
    has_forgotten: bool,
}

/// What a request is, given what is known of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// New.
    New,
    /// Begun before: so many operations are done.
    Repeated(DedupSession, usize),
    /// Older than the last one: its client has given it up.
    Outdated,
    /// Perhaps done before: its client is not remembered.
    Forgotten,
}

impl DedupSessions {
    /// Clients of a store that went on where another memory node ended.
    pub(crate) fn inherited() -> Self {
        Self { has_forgotten: true, ..Self::default() }
    }

    /// What a request is.
    pub(crate) fn look_up(&self, client: u64, request: u64, sent_before: bool) -> Known {
        match self.of(client) {
            Some((place, last)) if last.request == request => {
                Known::Repeated(DedupSession { client, request, place }, last.replies.len())
            }
            Some((_, last)) if last.request > request => Known::Outdated,
            None if sent_before && self.has_forgotten => Known::Forgotten,
            _ => Known::New,
        }
    }

    /// A client's place and last request.
    fn of(&self, client: u64) -> Option<(usize, &LastRequest)> {
        let place = *self.places.get(&client)?;
        Some((place, self.last.get(place)?))
    }

    /// Begins a client's next request. Another client may be forgotten for it, but none that has a request in hand: `None` if
    /// all have.
    pub(crate) fn begin(
        &mut self,
        client: u64,
        request: u64,
        is_in_hand: impl Fn(u64) -> bool,
    ) -> Option<DedupSession> {
        let place = match self.places.get(&client) {
            Some(place) => *place,
            None if self.last.len() < MOST_CLIENTS => self.last.len(),
            None => self.silent_longest(is_in_hand)?,
        };
        self.requests += 1;
        let heard = self.requests;
        match self.last.get_mut(place) {
            Some(last) => {
                if last.client != client {
                    self.has_forgotten = true;
                    self.places.remove(&last.client);
                    self.places.insert(client, place);
                }
                (last.client, last.request, last.heard) = (client, request, heard);
                last.replies.clear();
            }
            None => self.add(LastRequest { client, request, replies: Vec::new(), heard }),
        }
        Some(DedupSession { client, request, place })
    }

    /// Gives a client the next place.
    fn add(&mut self, last: LastRequest) {
        self.places.insert(last.client, self.last.len());
        self.last.push(last);
    }

    /// The place of the client silent longest, of those without a request in hand: first places that are kept for nobody, which
    /// have no request.
    fn silent_longest(&self, is_in_hand: impl Fn(u64) -> bool) -> Option<usize> {
        let at_rest = self.last.iter().enumerate().filter(|(_, last)| !is_in_hand(last.client));
        at_rest.min_by_key(|(_, last)| (last.request != 0, last.heard)).map(|(place, _)| place)
    }

    /// Takes up what was noted of the client at the next place, if of any.
    pub(crate) fn restore(&mut self, place: usize, noted: Option<(u64, u64, Vec<WriteReply>)>) {
        // A place without a client is kept by a number that no client has.
        let vacant = (u64::MAX - place as u64, 0, Vec::new());
        let (client, request, replies) = noted.unwrap_or(vacant);
        self.add(LastRequest { client, request, replies, heard: 0 });
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::message::WriteStatus;

    const DONE: WriteReply = WriteReply { status: WriteStatus::Done, token: None };

    #[test]
    fn a_request_is_new_repeated_outdated_or_forgotten() {
        assert_eq!(DedupSessions::default().look_up(7, 1, true), Known::New, "nobody was ever forgotten");
        let mut clients = DedupSessions::inherited();
        assert_eq!(clients.look_up(7, 1, false), Known::New);
        assert_eq!(clients.look_up(7, 1, true), Known::Forgotten);
        let session = clients.begin(7, 2, |_| false).expect("a place");
        clients.done(&session, 0, DONE);
        assert_eq!(clients.look_up(7, 2, true), Known::Repeated(session, 1));
        assert_eq!(clients.replies(7), [DONE]);
        assert_eq!(clients.look_up(7, 1, true), Known::Outdated);
        assert_eq!(
            clients.look_up(7, 3, true),
            Known::New,
            "its predecessor is known, so this one never came"
        );
    }

    #[test]
    fn the_client_silent_longest_is_forgotten_and_its_place_taken() {
        let mut clients = DedupSessions::default();
        for client in 0..MOST_CLIENTS as u64 {
            assert_eq!(
                clients.begin(client, 1, |_| false).map(|session| session.place),
                Some(client as usize)
            );
        }
        clients.begin(0, 2, |_| false);
        assert_eq!(clients.begin(5001, 1, |_| true), None, "all have requests in hand");
        let place = clients.begin(5000, 1, |client| client == 1).map(|session| session.place);
        assert_eq!(place, Some(2), "the first has a request in hand");
        assert_eq!(clients.begin(5002, 1, |_| false).map(|session| session.place), Some(1));
        assert_eq!(clients.look_up(1, 1, true), Known::Forgotten);
        assert_eq!(
            clients.look_up(0, 2, true),
            Known::Repeated(DedupSession { client: 0, request: 2, place: 0 }, 0)
        );
    }

    #[test]
    fn what_was_noted_is_known_again() {
        let mut clients = DedupSessions::default();
        clients.restore(0, None);
        clients.restore(1, Some((9, 4, vec![DONE])));
        assert_eq!(
            clients.look_up(9, 4, true),
            Known::Repeated(DedupSession { client: 9, request: 4, place: 1 }, 1)
        );
        assert_eq!(
            clients.begin(10, 1, |_| false).map(|session| session.place),
            Some(2),
            "places of nobody are taken last"
        );
    }
}
