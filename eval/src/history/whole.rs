//! The check of a whole history, for calls that observe several keys at one instant.
//!
//! A floor says that one key existed while others did not. That is not a statement about single
//! keys, so locality does not apply: the check searches for one order of all calls on all keys. As
//! in `linearize`, all configurations that explain the history so far go through it side by side
//! (Lowe, "Testing for linearizability", Concurrency and Computation 29(4), 2017, §5): which of the
//! pending calls have taken effect, and the values of all keys. A write takes effect just in time,
//! when a returning call needs it; a read as soon as possible, which excludes nothing. The cost is
//! exponential in the number of concurrent writes on any keys, and a write of unknown outcome stays
//! pending for ever. So this is for a few processes and some hundred calls.
//!
//! Scans and counts are left out, since they are not snapshots.

use hashbrown::HashSet;

use super::History;
use super::operation::{Call, Operation, Outcome};
use super::steps::{Condition, Effect, Step};

/// Calls that may be under way at once: bits of a word.
const MOST_PENDING: usize = 64;
/// Configurations kept side by side before the search gives up.
const MOST_CONFIGURATIONS: usize = 1 << 11;

/// The result of the check of a history as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// There is an order. `widest` is the greatest number of configurations side by side.
    Ordered {
        /// Configurations.
        widest: usize,
    },
    /// There is no order: this call, by its number, cannot have happened by the time it returned.
    Disordered {
        /// The number of the call in the history.
        operation: usize,
    },
    /// Too much was under way at once.
    Undecided,
}

/// Which of the calls under way have taken effect, and what the keys hold.
type Configuration = (u64, Vec<Option<u64>>);

/// What a call does.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Something to the key of this number.
    Own(usize, Condition, Effect),
    /// It finds this record nearest, below or above.
    Nearest { key: u64, below: bool, found: Option<(u64, u64)> },
}

struct Search {
    keys: Vec<u64>,
    pending: [Option<Deed>; MOST_PENDING],
    configurations: HashSet<Configuration>,
    widest: usize,
}

/// Looks for an order of all calls but scans and counts. Values must name the writes they come
/// from, as for [`check`](super::check).
pub fn check_whole(history: &History) -> Whole {
    let keys = keys(history);
    let initial = keys.iter().map(|key| history.initial().get(key).copied()).collect();
    let mut search = Search {
        keys,
        pending: [None; MOST_PENDING],
        configurations: HashSet::from_iter([(0, initial)]),
        widest: 1,
    };
    let mut instants: Vec<(u64, bool, usize)> = Vec::new();
    for (number, operation) in history.operations().iter().enumerate() {
        if search.deed(history, number, operation).is_some() {
            instants.push((operation.invoked, false, number));
            // What has no answer need not have happened, whether or not it still can.
            if operation.outcome != Outcome::Unknown {
                instants.push((operation.returned, true, number));
            }
        }
    }
    instants.sort_unstable();
    let mut places = vec![0; history.operations().len()];
    for (_, returns, number) in instants {
        let decided = match returns {
            false => search.begin(history, number).map(|place| places[number] = place),
            true => match search.end(places[number]) {
                true => Some(()),
                false => return Whole::Disordered { operation: number },
            },
        };
        search.widest = search.widest.max(search.configurations.len());
        if decided.is_none() || search.widest > MOST_CONFIGURATIONS {
            return Whole::Undecided;
        }
    }
    Whole::Ordered { widest: search.widest }
}

/// All keys that calls or records name, in order.
fn keys(history: &History) -> Vec<u64> {
    let mut keys: Vec<u64> = history.initial().keys().copied().collect();
    for operation in history.operations() {
        match operation.outcome {
            Outcome::Scanned(scanned) => keys.extend(history.records(scanned).iter().map(|(key, _)| key)),
            _ if operation.call.is_by_order() => {}
            _ => keys.push(operation.key),
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Search {
    /// What a call does, `None` if it says nothing.
    fn deed(&self, history: &History, number: usize, operation: &Operation) -> Option<Deed> {
        match (operation.call, operation.outcome) {
            (Call::Floor | Call::Ceiling, Outcome::Scanned(scanned)) => Some(Deed::Nearest {
                key: operation.key,
                below: operation.call == Call::Floor,
                found: history.records(scanned).first().copied(),
            }),
            _ => {
                let step = Step::of(operation, number as u32)?;
                let key = self.keys.binary_search(&operation.key).ok()?;
                Some(Deed::Own(key, step.condition, step.effect))
            }
        }
    }

    /// A call begins: its place among those under way, `None` if there is none.
    fn begin(&mut self, history: &History, number: usize) -> Option<usize> {
        let place = self.pending.iter().position(Option::is_none)?;
        self.pending[place] = self.deed(history, number, history.operations().get(number)?);
        let configurations = std::mem::take(&mut self.configurations);
        self.configurations =
            configurations.into_iter().map(|configuration| self.settled(configuration)).collect();
        Some(place)
    }

    /// A call ends, and must have taken effect. Whether it can have.
    fn end(&mut self, place: usize) -> bool {
        let bit = 1 << place;
        let mut stack: Vec<Configuration> = self.configurations.drain().collect();
        let mut seen: HashSet<Configuration> = HashSet::new();
        while let Some((done, state)) = stack.pop() {
            if done & bit != 0 {
                self.configurations.insert((done & !bit, state));
                continue;
            }
            for (at, deed) in self.pending.iter().enumerate() {
                let Some(Deed::Own(key, condition, effect)) = *deed else { continue };
                if done & 1 << at != 0 || effect == Effect::Nothing || !holds(condition, state[key]) {
                    continue;
                }
                let mut after = state.clone();
                after[key] = match effect {
                    Effect::Write(value) => Some(value),
                    _ => None,
                };
                let next = self.settled((done | 1 << at, after));
                if seen.len() <= MOST_CONFIGURATIONS && seen.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
        self.pending[place] = None;
        if seen.len() > MOST_CONFIGURATIONS {
            // What was not looked into may have been the explanation.
            self.widest = MOST_CONFIGURATIONS + 1;
            return true;
        }
        !self.configurations.is_empty()
    }

    /// The same with all reads that can have taken effect.
    fn settled(&self, (mut done, state): Configuration) -> Configuration {
        for (at, deed) in self.pending.iter().enumerate() {
            let is_so = match *deed {
                Some(Deed::Own(key, condition, Effect::Nothing)) => holds(condition, state[key]),
                Some(Deed::Nearest { key, below, found }) => self.nearest(&state, key, below) == found,
                _ => false,
            };
            done |= u64::from(is_so) << at;
        }
        (done, state)
    }

    fn nearest(&self, state: &[Option<u64>], key: u64, below: bool) -> Option<(u64, u64)> {
        let record = |at: usize| Some((self.keys[at], state[at]?));
        match below {
            true => (0..self.keys.partition_point(|other| *other <= key)).rev().find_map(record),
            false => (self.keys.partition_point(|other| *other < key)..self.keys.len()).find_map(record),
        }
    }
}

fn holds(condition: Condition, held: Option<u64>) -> bool {
    match condition {
        Condition::Any => true,
        Condition::Absent => held.is_none(),
        Condition::Present => held.is_some(),
        Condition::Exactly(value) => held == Some(value),
        Condition::Unlike(value) => held.is_some_and(|held| held != value),
    }
}
