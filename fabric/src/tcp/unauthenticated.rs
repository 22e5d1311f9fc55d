//! Connections that have not yet said who they are, or not proven it.
//!
//! Any peer that reaches an address can make such connections. So only a few are allowed in all,
//! whatever the number of threads; they count neither among the connections of clients nor among
//! the descriptors that clients and tables share.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::socket::{Origin, Party};
use crate::eviction_choice::{GRACE, MAX_GREETING, first_of_most};
use crate::lock::lock;

/// Further sockets of known clients, among these, that stay whatever others come.
const MAX_KNOWN: usize = MAX_GREETING / 2;
/// Those that were told to go and have not gone yet, beside these.
const MAX_LEAVING: usize = 16;

/// All of a memory node.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    state: Mutex<NewcomerList>,
}

#[derive(Debug, Default)]
struct NewcomerList {
    next: u64,
    /// In the order in which they came.
    here: Vec<Newcomer>,
}

#[derive(Debug)]
struct Newcomer {
    number: u64,
    thread: usize,
    party: Party,
    since: Instant,
    is_leaving: bool,
    /// Whether it has named a client and its secret.
    is_known: bool,
}

/// A newcomer's place; given back when this is dropped.
#[derive(Debug)]
pub(super) struct NewcomerGuard {
    of: Arc<Newcomers>,
    pub(super) number: u64,
}

/// A newcomer that has to go, and the thread that looks after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Evicted {
    pub(super) thread: usize,
    pub(super) number: u64,
}

impl Newcomers {
    /// The most that are there at once.
    pub(super) const MAX: usize = MAX_GREETING + MAX_LEAVING;

    /// Whether none may come now, because none of those here can be sent away yet.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let is_left_alone = |at: usize| now < state.here[at].since + GRACE;
        state.here.len() >= Self::MAX || state.crowding().is_some_and(is_left_alone)
    }

    /// A place for one that this thread will look after, and who has to go for it. To be asked when
    /// it is not full.
    pub(super) fn enter(
        self: &Arc<Self>,
        origin: &Origin,
        thread: usize,
        now: Instant,
    ) -> (NewcomerGuard, Option<Evicted>) {
        let mut state = lock(&self.state);
        let crowded = state.crowding().map(|at| {
            let newcomer = &mut state.here[at];
            newcomer.is_leaving = true;
            Evicted { thread: newcomer.thread, number: newcomer.number }
        });
        let number = state.next;
        state.next += 1;
        let party = origin.party();
        state.here.push(Newcomer { number, thread, party, since: now, is_leaving: false, is_known: false });
        (NewcomerGuard { of: Arc::clone(self), number }, crowded)
    }
}

impl NewcomerList {
    /// The one to close when there are as many as allowed.
    fn crowding(&self) -> Option<usize> {
        let staying = self.here.iter().filter(|newcomer| !newcomer.is_leaving);
        if staying.count() < MAX_GREETING {
            return None;
        }
        let may_go = |newcomer: &Newcomer| !newcomer.is_leaving && !newcomer.is_known;
        first_of_most(self.here.iter().map(|newcomer| may_go(newcomer).then_some(newcomer.party)))
    }
}

impl NewcomerGuard {
    /// It has named a client and its secret, which strangers cannot: others do not take its place,
    /// if few such have one.
    pub(super) fn is_of_client(&self) {
        let mut state = lock(&self.of.state);
        let known = state.here.iter().filter(|newcomer| newcomer.is_known).count();
        let own =
            state.here.iter_mut().find(|newcomer| newcomer.number == self.number && !newcomer.is_leaving);
        if let Some(newcomer) = own.filter(|_| known < MAX_KNOWN) {
            newcomer.is_known = true;
        }
    }
}

impl Drop for NewcomerGuard {
    fn drop(&mut self) {
        lock(&self.of.state).here.retain(|newcomer| newcomer.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: &str) -> Origin {
        Origin::Internet(std::net::SocketAddr::new(ip.parse().unwrap(), 9))
    }

    #[test]
    fn sockets_of_clients_keep_their_places_but_not_all_of_them() {
        let (all, begin) = (Arc::new(Newcomers::default()), Instant::now());
        let places: Vec<NewcomerGuard> = (0..64).map(|_| all.enter(&at("192.0.2.1"), 0, begin).0).collect();
        places[..MAX_KNOWN + 8].iter().for_each(NewcomerGuard::is_of_client);
        assert!(!all.is_full(begin + GRACE));
        let (_one, crowded) = all.enter(&at("192.0.2.1"), 0, begin + GRACE);
        assert_eq!(crowded.map(|crowded| crowded.number), Some(places[MAX_KNOWN].number));
    }

    #[test]
    fn a_flood_from_one_address_crowds_out_its_own_and_nobody_else_nor_anybody_at_once() {
        let (all, begin) = (Arc::new(Newcomers::default()), Instant::now());
        let (honest, crowded) = all.enter(&at("192.0.2.1"), 1, begin);
        assert_eq!(crowded, None);
        let mut flood: Vec<NewcomerGuard> =
            (1..64).map(|_| all.enter(&at("192.0.2.2"), 0, begin).0).collect();
        assert!(all.is_full(begin) && all.is_full(begin + GRACE / 2), "whoever has just come is left alone");
        let later = begin + GRACE;
        for i in 0..MAX_LEAVING {
            assert!(!all.is_full(later));
            let (place, crowded) = all.enter(&at("192.0.2.2"), 0, later);
            assert_eq!(crowded, Some(Evicted { thread: 0, number: flood[i].number }));
            flood.push(place);
        }
        assert!(all.is_full(later), "those that are to go have not gone");
        assert_eq!(lock(&all.state).here.len(), Newcomers::MAX);
        flood.drain(..MAX_LEAVING);
        assert!(!all.is_full(later));
        // What an address has in IPv6 clothes is the address's own.
        let (_place, crowded) = all.enter(&at("::ffff:192.0.2.2"), 0, later);
        assert_eq!(crowded.map(|crowded| crowded.number), Some(flood[0].number));
        drop((honest, flood));
        assert_eq!(lock(&all.state).here.len(), 1);
    }
}
