//! A memory node's loop, and how its lives begin.

use std::sync::Arc;

use fpcache_fabric::{ClientId, Handled, Service, Work};

use crate::event::Event;
use crate::memory::{Entry, Reply, SimMemory, lock};
use crate::node::{Item, Life, StartedLife};
use crate::panics::guarded;
use crate::process_state::Stop;
use crate::queue_pair::SimArea;
use crate::state::State;
use crate::trace::TraceKind;

/// Stores of a memory node that may be waiting to become visible while it goes on.
const RUN_AHEAD: usize = 256;

impl State {
    /// Begins a life of a memory node.
    pub(crate) fn start_node(&mut self, node: usize) {
        match self.try_start(node) {
            Ok(()) => {}
            Err(message) => self.stop = Some(Stop::NodePanicked(node, message)),
        }
    }

    fn try_start(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        if node.is_up() {
            return Ok(());
        }
        let count = node.options.memories.len();
        let memories: Result<Vec<_>, _> = (0..count)
            // `add_node` takes no more than 256.
            .map(|memory| SimMemory::inherit(&node.stores, memory as u8).map(Arc::new))
            .collect();
        let memories = memories.map_err(|error| error.to_string())?;
        {
            let stores = lock(&node.stores);
            let areas = node.options.memories.iter().zip(&memories).zip(&stores.visible);
            node.areas = areas
                .map(|((options, memory), visible)| SimArea {
                    visible: Arc::clone(visible),
                    private: Arc::clone(memory.private()),
                    access: options.offered,
                })
                .collect();
        }
        let life = node.life();
        let mut make = node.start.take().ok_or("its start is under way already")?;
        let begins = Life { memories, number: life + 1, connection: self.add_local_link(index) };
        let begun = guarded(&self.time, || make(begins));
        let node = &mut self.nodes[index];
        node.start = Some(make);
        let StartedLife { service, answers } = begun??;
        (node.service, node.answers, node.thread_memories) = (Some(service), answers, Vec::new());
        (node.draining, node.turning, node.held_up, node.work_due) = (false, false, false, true);
        self.note(TraceKind::Started, index, life + 1, 0);
        self.begin_draining(index);
        self.wake_node(index);
        Ok(())
    }

    /// Has the memory node's loop come round soon.
    pub(crate) fn wake_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.is_up() && !node.turning {
            node.turning = true;
            let life = node.life();
            let after = self.random.between(50, 400);
            self.schedule(after, Event::Turn { node: index, life });
        }
    }

    /// One step of the memory node's loop: a request, or work and the replies that came of it.
    pub(crate) fn turn(&mut self, index: usize, life: u64) {
        let node = &mut self.nodes[index];
        let queued = lock(&node.stores).len();
        if node.life() != life || !node.is_up() {
            return;
        }
        node.turning = false;
        let run_ahead = self.faults.run_ahead && queued < RUN_AHEAD && self.random.below(4) == 0;
        // A client that is let in must see a memory node that is ready: that is a system call,
        // after which all stores are visible.
        let connects = matches!(node.inbox.front(), Some(Item::Connect(_)));
        if queued > 0 && (connects || !run_ahead) {
            node.held_up = true;
            return;
        }
        if self.random.happens(self.faults.crash_node) {
            self.kill_node(index);
            return;
        }
        let asked = !node.inbox.is_empty();
        let outcome = if asked && !(node.work_due && self.random.below(2) == 0) {
            self.take_item(index)
        } else {
            self.do_work(index)
        };
        if let Err(message) = outcome {
            self.stop = Some(Stop::NodePanicked(index, message));
            return;
        }
        self.begin_draining(index);
        let node = &self.nodes[index];
        if !node.inbox.is_empty() || node.work_due {
            self.wake_node(index);
        }
    }

    fn take_item(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let (Some(item), Some(mut service)) = (node.inbox.pop_front(), node.service.take()) else {
            return Ok(());
        };
        node.work_due = true;
        let outcome = match item {
            Item::Connect(connection) => {
                let client = self.links[connection].client;
                let after = self.way();
                self.schedule(after, Event::Opened { connection });
                guarded(&self.time, || service.connected(client, &[]))
            }
            Item::Disconnect(connection) => {
                let client = self.links[connection].client;
                self.note(TraceKind::Closed, connection, index as u64, 0);
                self.leave_room(index, connection);
                guarded(&self.time, || service.disconnected(client))
            }
            Item::Request { connection, call, bytes } if self.links[connection].in_hand.is_some() => {
                self.links[connection].held.push_back((call, bytes));
                Ok(())
            }
            Item::Request { connection, call, bytes }
                if !self.admit(index, &mut *service, connection, call, &bytes) =>
            {
                Ok(())
            }
            Item::Request { connection, call, bytes } => {
                self.handle(index, &mut *service, connection, call, &bytes)
            }
        };
        self.nodes[index].service = Some(service);
        outcome
    }

    pub(crate) fn handle(
        &mut self,
        index: usize,
        service: &mut dyn Service,
        connection: usize,
        call: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        let client = self.links[connection].client;
        let mut reply = Vec::new();
        let handled = guarded(&self.time, || service.handle(client, bytes, &mut reply))?;
        self.note(TraceKind::Handled, index, connection as u64, call);
        match handled {
            Handled::Now => self.queue_reply(index, connection, call, reply),
            Handled::Later => self.links[connection].in_hand = Some(call),
        }
        Ok(())
    }

    fn do_work(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let Some(mut service) = node.service.take() else { return Ok(()) };
        let outcome = self.do_work_of(index, &mut *service);
        self.nodes[index].service = Some(service);
        outcome
    }

    fn do_work_of(&mut self, index: usize, service: &mut dyn Service) -> Result<(), String> {
        self.admit_waiting(index, service)?;
        let work = guarded(&self.time, || service.work())?;
        self.nodes[index].work_due = work == Work::More || self.nodes[index].room.is_awaited();
        if let Work::At(instant) = work {
            let (at, life) = (self.time.nanos(instant), self.nodes[index].life());
            self.schedule_at(at, Event::Work { node: index, life });
        }
        let queued = lock(&self.nodes[index].stores).len() as u64;
        self.note(TraceKind::Worked, index, queued, 0);
        loop {
            let mut reply = Vec::new();
            let Some(client) = guarded(&self.time, || service.next_reply(&mut reply))? else { return Ok(()) };
            self.late_reply(index, client, reply);
        }
    }

    /// A reply to a request that was to be answered later.
    fn late_reply(&mut self, index: usize, client: ClientId, reply: Vec<u8>) {
        // A client that has gone, or has asked nothing, gets no reply.
        let Some(connection) = self.links.iter().position(|link| link.client == client) else { return };
        let Some(call) = self.links[connection].in_hand.take() else { return };
        self.queue_reply(index, connection, call, reply);
        self.take_held(index, connection);
    }

    /// Has a client's next request come, if it has one and nothing is in hand.
    pub(crate) fn take_held(&mut self, index: usize, connection: usize) {
        let link = &mut self.links[connection];
        if link.in_hand.is_none()
            && let Some((call, bytes)) = link.held.pop_front()
        {
            self.nodes[index].inbox.push_back(Item::Request { connection, call, bytes });
        }
    }

    fn queue_reply(&mut self, index: usize, connection: usize, call: u64, bytes: Vec<u8>) {
        lock(&self.nodes[index].stores).push(Entry::Reply(Reply { connection, call, bytes }));
    }

    pub(crate) fn work_is_due(&mut self, index: usize, life: u64) {
        if self.nodes[index].life() == life {
            self.nodes[index].work_due = true;
            self.wake_node(index);
        }
    }
}
