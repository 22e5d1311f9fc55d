//! Replies: from a node that has served a request to the client that posted it.

use std::cmp::Reverse;

use super::Picos;
use super::held::Reply;
use super::world::{REPLIES, RETURNS, Request, Target, Verb, World};

impl World {
    /// A request has been served, or will be by the time of its reply, which the node's port then
    /// has.
    ///
    /// A memory node's card serves in the order of arrival, out of which only the replies of cores
    /// come. They are held until their time, or until another reply is known to come after them:
    /// what arrives from then on is served later still. A compute node's port sends its clients'
    /// requests, too, which may come at any time.
    #[inline]
    pub(super) fn reply(&mut self, to: Target, reply: Reply) {
        let node = self.place_of(to);
        if reply.is_message || matches!(to, Target::Compute(_)) {
            return self.hold(to, reply);
        }
        if !self.held[node].is_empty() {
            self.send_held(node, reply.ready);
        }
        self.send(reply);
    }

    /// Keeps a reply until its time.
    fn hold(&mut self, at: Target, reply: Reply) {
        let node = self.place_of(at);
        self.held[node].push(Reverse(reply));
        self.events.push(self.lane_of_replies(at), reply.ready, (node as u32, REPLIES));
    }

    /// Sends what a node holds that may leave until then. What its processor sends, its card issues
    /// before, one after another.
    pub(super) fn send_held(&mut self, node: usize, until: Picos) {
        while let Some(Reverse(reply)) = self.held[node].peek().copied() {
            if reply.ready > until {
                break;
            }
            self.held[node].pop();
            if reply.is_message {
                let to = self.flights[reply.client as usize].requests[reply.request as usize].to;
                let (issue, ready) = (self.periods.issue, reply.ready);
                let ready = self.card(to).issue.take(ready, issue);
                // Replies of the card itself may take the port meanwhile.
                self.hold(to, Reply { ready, is_message: false, ..reply });
            } else {
                self.send(reply);
            }
        }
    }

    /// A reply takes its node's port and crosses the network. Of those of several ports, one that
    /// is sent later may arrive sooner: each takes the client's port when it is there. Those of one
    /// port arrive in order.
    #[inline]
    fn send(&mut self, Reply { ready, client, request: number, .. }: Reply) {
        let request = self.flights[client as usize].requests[number as usize];
        let bytes = self.reply_time(&request);
        let arrives = self.card(request.to).transmit.take(ready, bytes) + self.hosts.nic.one_way;
        if self.one_source {
            self.take_back(client, arrives, bytes);
        } else {
            self.events.push(self.lane_of_returns(request.to), arrives, (client, RETURNS | number));
        }
    }

    /// The reply to a client's request is at its compute node.
    pub(super) fn return_to(&mut self, client: u32, number: u32) {
        let request = self.flights[client as usize].requests[number as usize];
        let bytes = self.reply_time(&request);
        self.take_back(client, self.now, bytes);
    }

    /// A client's port takes a reply, the last of which has the client go on.
    #[inline]
    fn take_back(&mut self, client: u32, at: Picos, bytes: Picos) {
        let home = self.hosts.node_of(client as usize);
        let back = self.compute[home].receive.take(at, bytes);
        let flight = &mut self.flights[client as usize];
        flight.back = flight.back.max(back);
        flight.left -= 1;
        if flight.left == 0 {
            let back = flight.back;
            self.ready(back, client);
        }
    }

    /// A reply's time at a port.
    #[inline]
    fn reply_time(&self, request: &Request) -> Picos {
        match request.verb {
            Verb::Read => self.hosts.nic.bytes(request.bytes),
            Verb::Call { reply, .. } => self.hosts.nic.bytes(reply),
            Verb::Write | Verb::Atomic | Verb::AtomicOnChip => self.periods.header,
        }
    }
}
