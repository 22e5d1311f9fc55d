//! The report of a run: how it went, and why it ended early.

use std::time::Duration;

use crate::memory::lock;
use crate::names::ProcessId;
use crate::process_state::{ProcessSlot, Status, Stop};
use crate::state::State;

/// The environment variable that names the one seed to run.
pub const SEED_VARIABLE: &str = "FPCACHE_SIM_SEED";

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The world's seed.
    pub seed: u64,
    /// Events since the world began.
    pub events: u64,
    /// Mixed from every event and every word that was read or became visible: equal runs have equal
    /// hashes.
    pub hash: u64,
    /// Virtual time since the world began.
    pub elapsed: Duration,
    /// How often another process went on than the one that ran before.
    pub switches: u64,
    /// Deaths of memory nodes.
    pub deaths: u64,
    /// Requests that waited for a memory node to have room.
    pub waits: u64,
    /// Looks at a leased word that its lease answered.
    pub leased: u64,
    /// Processes that died.
    pub killed: Vec<ProcessId>,
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No process can go on and nothing is under way.
    Deadlock,
    /// More events than [`SimOptions::max_events`](crate::SimOptions::max_events).
    Circles,
    /// A process blocks on something that is not simulated.
    Stuck,
    /// A process panicked.
    Panicked,
    /// A memory node panicked.
    NodePanicked,
}

/// A run that ended early, with what each process was waiting for.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}\nthe last events:\n{trace}run only this seed with {SEED_VARIABLE}={seed}")]
pub struct RunFailure {
    /// Why.
    pub kind: FailureKind,
    /// The world's seed.
    pub seed: u64,
    /// Why in words, and what every process was doing.
    pub text: String,
    /// The last events.
    pub trace: String,
}

impl State {
    /// How the run went so far.
    pub(crate) fn report(&self, seed: u64) -> RunReport {
        let killed = |(index, slot): (usize, &ProcessSlot)| slot.killed.then_some(ProcessId(index));
        RunReport {
            seed,
            events: self.events,
            hash: self.trace.hash,
            elapsed: Duration::from_nanos(self.now()),
            switches: self.switches,
            deaths: self.deaths,
            waits: self.waits,
            leased: self.leased,
            killed: self.slots.iter().enumerate().filter_map(killed).collect(),
        }
    }

    /// Keeps how things stand when the world stops.
    pub(crate) fn remember_stop(&mut self) {
        if self.last_words.is_none() {
            self.last_words = Some((self.describe_stop(), self.trace.to_string()));
        }
    }

    /// Why the world stopped and what each process was doing.
    pub(crate) fn describe_stop(&self) -> String {
        let name = |slot: usize| &self.slots[slot].name;
        let mut text = match &self.stop {
            None => "the world goes on".to_owned(),
            Some(Stop::Deadlock) => "deadlock: no process can go on and nothing is under way".to_owned(),
            Some(Stop::Circles) => format!("no end after {} events", self.events),
            Some(Stop::Stuck(slot)) => format!(
                "process {} ({}) does not come back: it computes without end, or waits for something that is not \
                 simulated, as a mutex another process holds",
                slot,
                name(*slot)
            ),
            Some(Stop::Panicked(slot, why)) => format!("process {slot} ({}) panicked: {why}", name(*slot)),
            Some(Stop::NodePanicked(node, why)) => {
                format!("memory node {node} ({}) panicked: {why}", self.nodes[*node].name)
            }
        };
        for (index, slot) in self.slots.iter().enumerate().skip(1) {
            let doing = match slot.status {
                Status::Ended if slot.killed => "died".to_owned(),
                Status::Ended => "ended".to_owned(),
                Status::Running => "runs".to_owned(),
                Status::Ready | Status::Waiting => format!("waits for {}", slot.wait),
            };
            text.push_str(&format!("\n  process {index} ({}), step {}: {doing}", slot.name, slot.steps));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let (up, queued) = (if node.is_up() { "up" } else { "down" }, lock(&node.stores).len());
            let waiting = node.inbox.len();
            text.push_str(&format!(
                "\n  memory node {index} ({}): {up}, {waiting} requests, {queued} stores queued",
                node.name
            ));
        }
        text
    }
}
