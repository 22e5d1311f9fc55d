//! The definition of linearizability, tried out: every order of every subset that the intervals
//! allow.

use std::collections::BTreeMap;

use fpcache_eval::history::{Call, History, NEVER, Operation, Outcome};

/// An operation, and whether it may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub operation: Operation,
    pub optional: bool,
}

/// What a history's operations are for one who knows no locality: scans are gets of all keys they
/// cover.
pub fn candidates(history: &History) -> Vec<Candidate> {
    let mut keys: Vec<u64> = history.initial().keys().copied().collect();
    keys.extend(history.operations().iter().map(|operation| operation.key));
    keys.sort_unstable();
    keys.dedup();
    let mut all = Vec::new();
    for &operation in history.operations() {
        match (operation.call, operation.outcome) {
            (_, Outcome::Refused) => {}
            (Call::Scan { limit }, Outcome::Scanned(scanned)) => {
                let records = history.records(scanned);
                let full = records.len() >= limit as usize;
                for &key in &keys {
                    let found = records.iter().find(|record| record.0 == key);
                    let beyond = full && records.last().is_none_or(|last| key > last.0);
                    if key < operation.key || found.is_none() && beyond {
                        continue;
                    }
                    let outcome = found.map_or(Outcome::Absent, |record| Outcome::Found(record.1));
                    let operation = Operation { key, call: Call::Get, outcome, ..operation };
                    all.push(Candidate { operation, optional: false });
                }
            }
            (call, _) if call.is_by_order() => {}
            (_, outcome) => all.push(Candidate { operation, optional: outcome == Outcome::Unknown }),
        }
    }
    all
}

/// Whether some order explains all that must have happened.
pub fn has_an_order(initial: &BTreeMap<u64, u64>, candidates: &[Candidate]) -> bool {
    extend(initial, candidates, &mut vec![false; candidates.len()])
}

fn extend(state: &BTreeMap<u64, u64>, candidates: &[Candidate], done: &mut Vec<bool>) -> bool {
    if candidates.iter().zip(&*done).all(|(candidate, done)| *done || candidate.optional) {
        return true;
    }
    for at in 0..candidates.len() {
        let next = candidates[at].operation;
        let late = candidates
            .iter()
            .zip(&*done)
            .any(|(other, done)| !done && !other.optional && other.operation.returned < next.invoked);
        // An optional one that happens must do so in its turn: nothing done may have begun after it
        // was over.
        let missed = candidates
            .iter()
            .zip(&*done)
            .any(|(other, done)| *done && next.returned != NEVER && next.returned < other.operation.invoked);
        // What one process did to a key, it did in the order in which it began, if it has an
        // answer.
        let precedes = |one: usize, other: usize| {
            let (one, other) = (&candidates[one].operation, &candidates[other].operation);
            let are_bound = one.call.writes() && one.returned != NEVER && other.returned != NEVER;
            are_bound && (one.process, one.key) == (other.process, other.key)
        };
        let before = (0..at).any(|one| !done[one] && !candidates[one].optional && precedes(one, at));
        let after = (at + 1..candidates.len()).any(|other| done[other] && precedes(at, other));
        if done[at] || late || missed || before || after {
            continue;
        }
        let Some(after) = step(state, next) else { continue };
        done[at] = true;
        if extend(&after, candidates, done) {
            return true;
        }
        done[at] = false;
    }
    false
}

/// The state after an operation with its very outcome, `None` if it cannot have that now.
fn step(state: &BTreeMap<u64, u64>, operation: Operation) -> Option<BTreeMap<u64, u64>> {
    let held = state.get(&operation.key).copied();
    let took_effect = match operation.call {
        Call::Insert(_) => held.is_none(),
        Call::Put(_) | Call::Clear => true,
        Call::Update(_) | Call::Delete => held.is_some(),
        Call::CompareAndSet { expected, .. } => held == Some(expected),
        _ => false,
    };
    let possible = match operation.outcome {
        Outcome::Unknown | Outcome::Done => took_effect,
        Outcome::Found(value) => held == Some(value),
        Outcome::Absent => held.is_none(),
        Outcome::Exists => held.is_some(),
        Outcome::Differs => held.is_some() && !took_effect,
        Outcome::Refused | Outcome::Scanned(_) | Outcome::Counted(_) => false,
    };
    possible.then(|| {
        let mut after = state.clone();
        if took_effect {
            match operation.call.written() {
                Some(value) => after.insert(operation.key, value),
                None => after.remove(&operation.key),
            };
        }
        after
    })
}
