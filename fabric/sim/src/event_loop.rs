//! The execution of events, one after the other: the thread whose turn it is executes them until a
//! process can go on.

use crate::event::{Event, Scheduled};
use crate::process_state::{Outcome, Status, Stop};
use crate::state::State;
use crate::trace::TraceKind;

impl State {
    /// Executes events until a process can go on, and says which. `None`: the world has stopped.
    pub(crate) fn advance(&mut self) -> Option<usize> {
        loop {
            if self.stop.is_some() {
                self.remember_stop();
                return None;
            }
            if !self.ready.is_empty() {
                let index = self.random.below(self.ready.len() as u64) as usize;
                let slot = self.ready.swap_remove(index);
                self.slots[slot].status = Status::Running;
                self.switches += u64::from(self.running != slot);
                self.running = slot;
                self.note(TraceKind::Resumed, slot, self.slots[slot].steps, 0);
                return Some(slot);
            }
            if !self.happen() {
                self.stop = Some(Stop::Deadlock);
            }
        }
    }

    /// Executes the next event; false if no event is left.
    pub(crate) fn happen(&mut self) -> bool {
        while let Some(Scheduled { at, event, .. }) = self.heap.pop() {
            // An event that has become void must not move time: most deadlines never pass.
            if let Event::Timeout(waiter) | Event::Wake(waiter) = event
                && !self.is_waiting(waiter)
            {
                continue;
            }
            self.time.reach(at);
            self.events += 1;
            if self.events >= self.max_events {
                self.stop = Some(Stop::Circles);
            }
            self.execute(event);
            return true;
        }
        false
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Timeout(waiter) => {
                self.note(TraceKind::TimedOut, waiter.slot, 0, 0);
                self.wake(waiter, Outcome::TimedOut);
            }
            Event::Wake(waiter) => self.wake(waiter, Outcome::Done),
            Event::Fetch { endpoint, ticket } => self.fetch(endpoint, ticket),
            Event::Land { endpoint, ticket } => self.land(endpoint, ticket),
            Event::Drain { node, life } => self.drain(node, life),
            Event::Turn { node, life } => self.turn(node, life),
            Event::Work { node, life } => self.work_is_due(node, life),
            Event::Restart { node } => self.start_node(node),
            Event::Notice { node, life } => self.notice(node, life),
            Event::Open { connection } => self.open(connection),
            Event::Opened { connection } => self.opened(connection),
            Event::Deliver { connection, call, bytes } => self.deliver(connection, call, &bytes),
            Event::Reply { connection, call, bytes } => self.replied(connection, call, bytes),
            Event::Close { connection } => self.close(connection),
        }
    }
}
