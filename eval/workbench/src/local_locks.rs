//! Locks of a compute node in front of remote ones: of its clients that want a remote lock one
//! tries it, and the others wait for their turns without asking the card. Who has done may hand the
//! remote lock over to the next of them.
//!
//! A place is free again when what ends the lock has been acknowledged, so that the next one's try
//! comes after it.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::words::Address;

/// What a client does that wants a remote lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It tries it.
    Try,
    /// Nothing: another of its compute node has handed it over.
    Held,
    /// It waits until it has its turn, and claims it again.
    Waits,
}

/// A remote lock that clients of a compute node want.
#[derive(Debug, Default)]
struct Wanted {
    waiting: VecDeque<usize>,
    /// How many times it has been handed over since it was free.
    handed: u32,
}

/// What a client has to do with locks.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// The lock whose turn it has, and whether it was handed over.
    turn: Option<(Lock, bool)>,
    /// The one that ends with its trip, and whether it is handed over.
    ending: Option<(Lock, bool)>,
    waits: bool,
    /// It has no trip under way and is to be woken.
    is_idle: bool,
}

/// A remote lock of a compute node's clients.
type Lock = (u16, Address);

/// The locks of all compute nodes.
#[derive(Debug)]
pub struct LocalLocks {
    /// How many times in a row a lock may be handed over.
    handovers: u32,
    wanted: HashMap<Lock, Wanted>,
    clients: Vec<Client>,
    woken: VecDeque<usize>,
}

impl LocalLocks {
    /// Of this many clients, which hand a lock over at most `handovers` times in a row.
    pub fn new(clients: usize, handovers: u32) -> Self {
        let clients = vec![Client::default(); clients];
        Self { handovers, wanted: HashMap::new(), clients, woken: VecDeque::new() }
    }

    /// A client of a compute node wants a remote lock, or wants to know how to go on now that it is
    /// woken, or has tried in vain.
    pub fn claim(&mut self, client: usize, compute: usize, lock: Address) -> Claim {
        let lock = (compute as u16, lock);
        match self.clients[client].turn {
            Some((held, true)) if held == lock => return Claim::Held,
            Some((held, false)) if held == lock => return Claim::Try,
            _ => {}
        }
        debug_assert_eq!(self.clients[client].turn, None, "one lock at a time");
        if let Some(wanted) = self.wanted.get_mut(&lock) {
            wanted.waiting.push_back(client);
            self.clients[client].waits = true;
            return Claim::Waits;
        }
        self.wanted.insert(lock, Wanted::default());
        self.clients[client].turn = Some((lock, false));
        Claim::Try
    }

    /// A client's next trip ends its lock: whether it hands it over, so that nothing tells the
    /// memory node.
    pub fn end(&mut self, client: usize) -> bool {
        let Some((lock, _)) = self.clients[client].turn.take() else { return false };
        let wanted = self.wanted.entry(lock).or_default();
        let hands_over = !wanted.waiting.is_empty() && wanted.handed < self.handovers;
        wanted.handed = if hands_over { wanted.handed + 1 } else { 0 };
        self.clients[client].ending = Some((lock, hands_over));
        hands_over
    }

    /// A client gives up its turn without the remote lock, which it has not got.
    pub fn give_up(&mut self, client: usize) {
        if let Some((lock, _)) = self.clients[client].turn.take() {
            self.pass_on(lock, false);
        }
    }

    /// A client's trip is back, or it is woken: whether it waits for a turn.
    pub(crate) fn goes_on(&mut self, client: usize) -> bool {
        if let Some((lock, hands_over)) = self.clients[client].ending.take() {
            self.pass_on(lock, hands_over);
        }
        self.clients[client].is_idle = self.clients[client].waits;
        self.clients[client].waits
    }

    /// A client has nothing to send before its turn.
    pub(crate) fn sleeps(&mut self, client: usize) {
        self.clients[client].is_idle = true;
    }

    /// Whether a client has a lock's turn: at an operation's end none should.
    pub(crate) fn has_turn(&self, client: usize) -> bool {
        self.clients[client].turn.is_some()
    }

    /// A client that has its turn and is asleep.
    pub(crate) fn next_woken(&mut self) -> Option<usize> {
        self.woken.pop_front()
    }

    /// The next one has its turn.
    fn pass_on(&mut self, lock: Lock, hands_over: bool) {
        let Some(wanted) = self.wanted.get_mut(&lock) else { return };
        let Some(next) = wanted.waiting.pop_front() else {
            self.wanted.remove(&lock);
            return;
        };
        let client = &mut self.clients[next];
        (client.turn, client.waits) = (Some((lock, hands_over)), false);
        if std::mem::take(&mut client.is_idle) {
            self.woken.push_back(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Address = 7;

    /// Clients of one compute node that have claimed a lock one after another; the first has its
    /// turn.
    fn queue(clients: usize, handovers: u32) -> LocalLocks {
        let mut locks = LocalLocks::new(clients, handovers);
        assert_eq!(locks.claim(0, 0, LOCK), Claim::Try);
        for client in 1..clients {
            assert_eq!(locks.claim(client, 0, LOCK), Claim::Waits);
            locks.sleeps(client);
        }
        locks
    }

    #[test]
    fn one_client_of_a_compute_node_tries_a_lock_and_the_others_have_their_turns_in_order() {
        let mut locks = queue(3, 0);
        // Another compute node's, and another lock.
        let mut others = LocalLocks::new(2, 0);
        assert_eq!((others.claim(0, 0, LOCK), others.claim(1, 1, LOCK)), (Claim::Try, Claim::Try));
        assert_eq!(locks.claim(0, 0, LOCK), Claim::Try, "again, after a try in vain");
        for client in 0..2 {
            assert!(!locks.end(client), "nothing is handed over");
            assert_eq!(locks.next_woken(), None, "the trip is not back");
            assert!(!locks.goes_on(client));
            assert_eq!(locks.next_woken(), Some(client + 1));
            assert_eq!(locks.claim(client + 1, 0, LOCK), Claim::Try);
        }
    }

    #[test]
    fn a_lock_is_handed_over_so_many_times_and_then_let_go() {
        let mut locks = queue(5, 2);
        let mut handed = Vec::new();
        for client in 0..5 {
            handed.push(locks.end(client));
            locks.goes_on(client);
            if let Some(next) = locks.next_woken() {
                let claim = if handed[client] { Claim::Held } else { Claim::Try };
                assert_eq!(locks.claim(next, 0, LOCK), claim);
            }
        }
        assert_eq!(handed, [true, true, false, true, false]);
        assert!(locks.wanted.is_empty());
    }

    #[test]
    fn who_has_its_turn_while_a_trip_is_under_way_is_not_woken_besides() {
        let mut locks = LocalLocks::new(2, 0);
        assert_eq!((locks.claim(0, 0, LOCK), locks.claim(1, 0, LOCK)), (Claim::Try, Claim::Waits));
        locks.give_up(0);
        assert_eq!(locks.next_woken(), None);
        assert!(!locks.goes_on(1), "its trip is back");
        assert_eq!(locks.claim(1, 0, LOCK), Claim::Try);
    }
}
