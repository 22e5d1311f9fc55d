//! The begin and end of connections, and messages that travel over them, get lost or come twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpcache_fabric::ClientId;

use crate::event::Event;
use crate::link::Link;
use crate::memory::Reply;
use crate::node::Item;
use crate::process_state::{Outcome, Waiter};
use crate::state::State;
use crate::trace::TraceKind;

impl State {
    /// A new connection to what is at present the memory node's life; it is of use once it was
    /// opened.
    pub(crate) fn add_link(&mut self, node: usize, opener: Waiter) -> usize {
        let connection = self.make_link(node, Some(opener));
        let after = self.way();
        self.schedule(after, Event::Open { connection });
        connection
    }

    /// A connection inside a memory node, of use at once, of which its service is not told.
    pub(crate) fn add_local_link(&mut self, node: usize) -> usize {
        let connection = self.make_link(node, None);
        let link = &mut self.links[connection];
        (link.is_local, link.closed) = (true, true);
        connection
    }

    pub(crate) fn make_link(&mut self, node: usize, opener: Option<Waiter>) -> usize {
        let connection = self.links.len();
        let of = &self.nodes[node];
        self.links.push(Link {
            node,
            life: of.life(),
            client: ClientId(connection as u64 + 1),
            areas: Arc::clone(&of.areas),
            alive: Arc::new(AtomicBool::new(true)),
            peer: Arc::clone(&of.name),
            in_hand: None,
            held: VecDeque::new(),
            opener,
            closed: false,
            calls: 0,
            calling: None,
            taken: false,
            turns: VecDeque::new(),
            may_lose: false,
            is_local: false,
            answers: of.answers.is_some(),
        });
        connection
    }

    /// Whether the life a connection leads to still goes on.
    pub(crate) fn reaches(&self, connection: usize) -> bool {
        let link = &self.links[connection];
        let node = &self.nodes[link.node];
        node.is_up() && node.life() == link.life
    }

    pub(crate) fn open(&mut self, connection: usize) {
        if self.reaches(connection) {
            let node = self.links[connection].node;
            self.nodes[node].inbox.push_back(Item::Connect(connection));
            self.wake_node(node);
        } else {
            self.cut(connection);
        }
    }

    pub(crate) fn opened(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        let (node, opener) = (link.node, link.opener.take());
        if !link.is_alive() {
            return;
        }
        self.note(TraceKind::Connected, connection, node as u64, 0);
        if let Some(opener) = opener {
            self.wake(opener, Outcome::Done);
        }
    }

    /// The client's side of a connection ends: everything that waits on it fails.
    pub(crate) fn cut(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        if !link.alive.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut waiting: Vec<Waiter> = link.turns.drain(..).collect();
        waiting.extend(link.calling.take().and_then(|calling| calling.waiter));
        waiting.extend(link.opener.take());
        self.note(TraceKind::Cut, connection, 0, 0);
        for waiter in waiting {
            self.wake(waiter, Outcome::Cut);
        }
        self.fail_flights(connection);
    }

    /// The client has gone: the memory node will learn it.
    pub(crate) fn hang_up(&mut self, connection: usize) {
        self.cut(connection);
        let after = self.way();
        self.schedule(after, Event::Close { connection });
    }

    pub(crate) fn close(&mut self, connection: usize) {
        if std::mem::replace(&mut self.links[connection].closed, true) || !self.reaches(connection) {
            return;
        }
        let link = &mut self.links[connection];
        link.in_hand = None;
        link.held.clear();
        let node = link.node;
        self.nodes[node].inbox.push_back(Item::Disconnect(connection));
        self.wake_node(node);
    }

    /// Sends a request on its way, and perhaps a second time, or never.
    pub(crate) fn send(&mut self, connection: usize, call: u64, request: &[u8]) {
        let bytes: Arc<[u8]> = request.into();
        let faults = self.faults;
        if self.links[connection].may_lose && self.random.happens(faults.drop) {
            self.note(TraceKind::Lost, connection, call, 0);
            return;
        }
        if self.random.happens(faults.duplicate) {
            self.note(TraceKind::Doubled, connection, call, 0);
            let after = self.way() * self.random.between(1, 20);
            self.schedule(after, Event::Deliver { connection, call, bytes: Arc::clone(&bytes) });
        }
        let after = self.way();
        self.schedule(after, Event::Deliver { connection, call, bytes });
    }

    pub(crate) fn deliver(&mut self, connection: usize, call: u64, bytes: &Arc<[u8]>) {
        if self.links[connection].closed || !self.reaches(connection) {
            return;
        }
        self.note(TraceKind::Delivered, connection, call, bytes.len() as u64);
        let bytes = Arc::clone(bytes);
        let link = &mut self.links[connection];
        if link.in_hand.is_some() {
            link.held.push_back((call, bytes));
            return;
        }
        let node = link.node;
        self.nodes[node].inbox.push_back(Item::Request { connection, call, bytes });
        self.wake_node(node);
    }

    pub(crate) fn send_reply(&mut self, reply: Reply) {
        let Reply { connection, call, bytes } = reply;
        if self.links[connection].may_lose && self.random.happens(self.faults.drop) {
            self.note(TraceKind::Lost, connection, call, 1);
            return;
        }
        let after = self.way();
        self.schedule(after, Event::Reply { connection, call, bytes });
    }

    pub(crate) fn replied(&mut self, connection: usize, call: u64, bytes: Vec<u8>) {
        self.note(TraceKind::Replied, connection, call, bytes.len() as u64);
        let link = &mut self.links[connection];
        // A late reply, or the second to a request that came twice, is dropped.
        if let Some(calling) = link.calling.as_mut().filter(|calling| calling.call == call)
            && calling.reply.is_none()
        {
            calling.reply = Some(bytes);
            if let Some(waiter) = calling.waiter.take() {
                self.wake(waiter, Outcome::Done);
            }
        }
    }
}
