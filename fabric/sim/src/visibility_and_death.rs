//! The way of a memory node's stores to be seen, its death, and which processes notice it.

use std::sync::Arc;

use crate::event::Event;
use crate::memory::{Applied, lock};
use crate::node::{NodeDeath, blank};
use crate::panics::guarded;
use crate::process_state::Stop;
use crate::room::RoomWaiters;
use crate::state::State;
use crate::time::nanos;
use crate::trace::{TraceKind, mix};

impl State {
    pub(crate) fn begin_draining(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let stores = lock(&node.stores);
        let is_needed = !stores.is_empty() || stores.flushed;
        drop(stores);
        if is_needed && !node.draining {
            node.draining = true;
            let life = node.life();
            let after = self.random.between(1, self.pace.gap);
            self.schedule(after, Event::Drain { node: index, life });
        }
    }

    /// Makes a few stores visible, up to and not beyond a point of the protocol.
    pub(crate) fn drain(&mut self, index: usize, life: u64) {
        if self.nodes[index].life() != life {
            return;
        }
        let stores = Arc::clone(&self.nodes[index].stores);
        let mut held = lock(&stores);
        // A long queue is bulk, of which few states in between are worth an event each.
        let most = self.pace.burst.max(held.len() as u64 / 32);
        let mut left = self.random.between(1, most);
        let before = held.applied;
        let dies_at = self.nodes[index].dies_at.filter(|&at| at >= before);
        let mut at_point = false;
        while left > 0 && dies_at != Some(held.applied) {
            left -= 1;
            let reorder = self.faults.reorder_stores.then_some(&mut self.random);
            match held.apply_one(reorder) {
                None => break,
                Some(Applied::Store) => at_point = false,
                Some(Applied::Point) => {
                    at_point = true;
                    if self.random.below(2) == 0 {
                        break;
                    }
                }
            }
        }
        held.flushed = false;
        let (applied, hash) = (held.applied - before, held.hash);
        let replies = std::mem::take(&mut held.replies);
        let (queued, dies) = (held.len(), dies_at == Some(held.applied));
        drop(held);
        self.trace.hash = mix(self.trace.hash, hash);
        self.note(TraceKind::Visible, index, applied, queued as u64);
        for reply in replies {
            self.send_reply(reply);
        }
        if dies || self.random.happens(self.faults.crash_node) {
            self.kill_node(index);
            return;
        }
        if queued > 0 {
            // Now and then the processor is taken away just after a point of the protocol.
            let stall = at_point && self.random.below(8) == 0;
            let gap = if stall { 20_000 } else { self.pace.gap };
            let after = self.random.between(1, gap);
            self.schedule(after, Event::Drain { node: index, life });
            return;
        }
        let node = &mut self.nodes[index];
        node.draining = false;
        if std::mem::take(&mut node.held_up) {
            self.wake_node(index);
        }
    }

    /// The memory node dies where it is.
    pub(crate) fn kill_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(service) = node.service.take() else { return };
        let life = node.life();
        let exact = node.dies_at.take().is_some();
        let mut stores = lock(&node.stores);
        let further =
            if exact || self.random.below(2) == 0 { 0 } else { self.random.below(stores.len() as u64 + 1) };
        stores.die(further);
        let death = NodeDeath { life: life + 1, stores: stores.applied };
        for (options, visible) in node.options.memories.iter().zip(&mut stores.visible) {
            // Those still connected keep the old memory. If there is no new one the next life's
            // start will say so.
            if !options.survives
                && let Ok(new) = blank(options.bytes)
            {
                *visible = new;
            }
        }
        drop(stores);
        node.inbox.clear();
        node.room = RoomWaiters::default();
        let answers = node.answers.take();
        node.thread_memories.clear();
        self.deaths += 1;
        self.note(TraceKind::Died, index, death.stores, life);
        let mut on_death = self.nodes[index].on_death.take();
        let outcome = guarded(&self.time, || {
            drop((service, answers));
            if let Some(on_death) = &mut on_death {
                on_death(death);
            }
        });
        self.nodes[index].on_death = on_death;
        if let Err(message) = outcome {
            self.stop = Some(Stop::NodePanicked(index, message));
            return;
        }
        self.end_local_links(index, life);
        if self.faults.linger {
            let after = self.random.below(30_000);
            self.schedule(after, Event::Notice { node: index, life });
        } else {
            self.notice(index, life);
        }
        let down = self.random.below(nanos(self.nodes[index].options.down_time).saturating_add(1));
        self.schedule(down, Event::Restart { node: index });
    }

    /// A memory node's own threads end with it, wherever they are.
    fn end_local_links(&mut self, node: usize, life: u64) {
        for connection in 0..self.links.len() {
            let link = &self.links[connection];
            if link.is_local && (link.node, link.life) == (node, life) {
                self.cut(connection);
            }
        }
    }

    /// Those connected to a life of a memory node that is over notice it.
    pub(crate) fn notice(&mut self, node: usize, life: u64) {
        for connection in 0..self.links.len() {
            if (self.links[connection].node, self.links[connection].life) == (node, life) {
                self.cut(connection);
            }
        }
    }
}
