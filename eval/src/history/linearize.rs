//! The search for an order of the steps on one key.
//!
//! Wing and Gong search for an order by trying every pending operation next ("Testing and verifying
//! concurrent objects", JPDC 17, 1993); Lowe remembers configurations, the set of operations done
//! so far and the state they leave, so that none is explored twice, and executes operations just in
//! time, when the first of them must have happened ("Testing for linearizability", Concurrency and
//! Computation 29(4), 2017, §4 and §5). Here all configurations that explain the history so far
//! advance through it together, from instant to instant. Where nothing is pending they collapse to
//! the states the key may have, so the work is near linear in the length of a history, and
//! exponential only in the number of concurrent *writes of one key*. These rules keep that small:
//!
//! - every configuration executes a read as soon as its state allows, which excludes nothing;
//! - a step comes after the answered writes that its process had begun before and that are pending
//!   still: changes of one request, and writes of one pipeline, are in order;
//! - values that no get or scan returned and no compare-and-set expected count as one;
//! - a write of unknown outcome whose value was read must have happened by then, and counts as one
//!   that returned at that instant. Those whose values nothing returned or expected differ only in
//!   their effect: a configuration counts how many of each sort it used, and one that used fewer of
//!   each makes others with the same state superfluous.

use std::fmt;

use hashbrown::HashMap;

use super::operation::NEVER;
use super::steps::{Condition, Effect, Step};

mod configurations;

use configurations::{Configuration, Configurations, State, Used};

/// Steps that may be pending at once on one key: bits of a word.
const MOST_PENDING: usize = 64;
/// Configurations kept side by side before the search gives up: some 100 MB.
const MOST_CONFIGURATIONS: usize = 1 << 20;

/// Why a key's history was not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// More operations were under way on the key at once than can be told apart.
    Pending,
    /// More explanations are possible at once than can be kept.
    Configurations,
    /// A value was written twice, so that it does not name a write.
    ValueTwice(u64),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => write!(
                f,
                "more than {MOST_PENDING} operations were under way at once: use more keys or fewer processes"
            ),
            Self::Configurations => write!(
                f,
                "more than {MOST_CONFIGURATIONS} explanations are possible at once: use more keys or fewer processes"
            ),
            Self::ValueTwice(value) => {
                write!(f, "value {value} was written twice: give every write of a key a value of its own")
            }
        }
    }
}

/// The result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is an order. `widest` is the greatest number of configurations side by side.
    Ordered { widest: usize },
    /// There is no order: `failing`, the number of an operation, cannot have happened by the time
    /// it returned.
    Disordered { failing: u32 },
    /// It is not known.
    Unknown(Doubt),
}

/// Looks for an order of `steps`, which come in the order of invocation, on a key that held
/// `initial`. Goes through the steps twice.
pub(super) fn linearize<I>(initial: Option<u64>, steps: I) -> Verdict
where
    I: Iterator<Item = Step> + Clone,
{
    linearize_until(NEVER, initial, steps)
}

/// The same of steps that begin before an instant: what returns later need not have happened.
pub(super) fn linearize_until<I>(end: u64, initial: Option<u64>, steps: I) -> Verdict
where
    I: Iterator<Item = Step> + Clone,
{
    let named = match Named::of(initial, steps.clone()) {
        Ok(named) => named,
        Err(doubt) => return Verdict::Unknown(doubt),
    };
    let mut search = Search::new(named.state_of(initial));
    let admitted = steps.map(|step| named.tighten(step)).try_for_each(|step| {
        search.settle_before(step.invoked)?;
        search.admit(step, &named)
    });
    match admitted.and_then(|()| search.settle_before(end)) {
        Ok(()) => Verdict::Ordered { widest: search.widest },
        Err(verdict) => verdict,
    }
}

/// The values that matter, and by when they are known to have been written.
struct Named(HashMap<u64, Value>);

#[derive(Clone, Copy)]
struct Value {
    written: bool,
    /// The invocation of the write, 0 for the value at first.
    written_from: u64,
    named: bool,
    /// The first response of a call that saw it.
    seen_by: u64,
}

impl Named {
    fn of(initial: Option<u64>, steps: impl Iterator<Item = Step>) -> Result<Self, Doubt> {
        let mut values: HashMap<u64, Value> = HashMap::new();
        const NEW: Value = Value { written: false, written_from: 0, named: false, seen_by: NEVER };
        if let Some(value) = initial {
            values.insert(value, Value { written: true, ..NEW });
        }
        for step in steps {
            match step.condition {
                Condition::Exactly(value) => {
                    let known = values.entry(value).or_insert(NEW);
                    known.named = true;
                    if !step.optional {
                        known.seen_by = known.seen_by.min(step.returned);
                    }
                }
                Condition::Unlike(value) => values.entry(value).or_insert(NEW).named = true,
                Condition::Any | Condition::Absent | Condition::Present => {}
            }
            if let Effect::Write(value) = step.effect {
                let known = values.entry(value).or_insert(NEW);
                if known.written {
                    return Err(Doubt::ValueTwice(value));
                }
                known.written = true;
                known.written_from = step.invoked;
            }
        }
        Ok(Self(values))
    }

    fn state_of(&self, value: Option<u64>) -> State {
        match value {
            None => State::Absent,
            Some(value) if self.0.get(&value).is_some_and(|known| known.named) => State::Value(value),
            Some(_) => State::Unnamed,
        }
    }

    /// An optional write whose value was seen is none, and happened by then.
    fn tighten(&self, step: Step) -> Step {
        let Effect::Write(value) = step.effect else { return step };
        match self.0.get(&value) {
            Some(known) if step.optional && known.seen_by != NEVER => {
                Step { optional: false, returned: step.returned.min(known.seen_by).max(step.invoked), ..step }
            }
            _ => step,
        }
    }
}

/// A step under way.
#[derive(Clone, Copy)]
struct Pending {
    operation: u32,
    returned: u64,
    condition: Condition,
    /// The state it leaves, `None` if it only reads.
    leaves: Option<State>,
    optional: bool,
    /// Of those that lead alone.
    process: Option<u32>,
    /// The steps under way that it comes after, one bit each.
    after: u64,
}

const IDLE: Pending = Pending {
    operation: 0,
    returned: NEVER,
    condition: Condition::Any,
    leaves: None,
    optional: false,
    process: None,
    after: 0,
};

impl Pending {
    /// Whether it may be the next step of a configuration.
    fn may_follow(&self, configuration: &Configuration) -> bool {
        self.after & !configuration.done == 0 && self.condition.holds(configuration.state)
    }
}

/// Writes of unknown outcome and unnamed value, or none: what they need and what they leave.
const SORTS: [(Condition, State); 4] = [
    (Condition::Any, State::Unnamed),
    (Condition::Absent, State::Unnamed),
    (Condition::Present, State::Unnamed),
    (Condition::Present, State::Absent),
];

const PUT: usize = 0;
const INSERT: usize = 1;
const UPDATE: usize = 2;

/// All configurations that explain what has returned so far.
struct Search {
    pending: [Pending; MOST_PENDING],
    /// Which of `pending` are in use.
    occupied: u64,
    /// Which of them only read.
    reads: u64,
    /// Which of them need never happen.
    forever: u64,
    /// The first response to come.
    next_return: u64,
    /// How many of each of [`SORTS`] may still happen or have happened.
    available: Used,
    now: Configurations,
    next: Configurations,
    visited: Configurations,
    widest: usize,
}

impl Search {
    fn new(state: State) -> Self {
        let mut now = Configurations::default();
        now.insert(Configuration { state, done: 0, spent: 0, used: Used::default() });
        Self {
            pending: [IDLE; MOST_PENDING],
            occupied: 0,
            reads: 0,
            forever: 0,
            next_return: NEVER,
            available: Used::default(),
            now,
            next: Configurations::default(),
            visited: Configurations::default(),
            widest: 1,
        }
    }

    /// Takes a step in whose predecessors have been settled.
    fn admit(&mut self, step: Step, named: &Named) -> Result<(), Verdict> {
        let leaves = match step.effect {
            Effect::Nothing => None,
            Effect::Write(value) => Some(named.state_of(Some(value))),
            Effect::Remove => Some(State::Absent),
        };
        if step.optional && step.returned == NEVER {
            let sort = SORTS.iter().position(|sort| leaves == Some(sort.1) && sort.0 == step.condition);
            if let Some(sort) = sort {
                self.available.add(sort);
                return Ok(());
            }
        }
        if self.occupied.count_ones() > MOST_PENDING as u32 / 2 && self.forever != 0 {
            self.drop_the_impossible(step.invoked, named);
        }
        let slot = (!self.occupied).trailing_zeros() as usize;
        let leads = |other: &usize| step.process.is_some() && self.pending[*other].process == step.process;
        let pending = Pending {
            operation: step.operation,
            returned: step.returned,
            condition: step.condition,
            leaves,
            optional: step.optional,
            process: step.process.filter(|_| step.leads && !step.optional),
            after: bits(self.occupied).filter(leads).fold(0, |after, other| after | 1 << other),
        };
        let Some(place) = self.pending.get_mut(slot) else { return Err(Verdict::Unknown(Doubt::Pending)) };
        *place = pending;
        let bit = 1 << slot;
        self.occupied |= bit;
        self.next_return = self.next_return.min(step.returned);
        if step.returned == NEVER {
            self.forever |= bit;
        }
        if leaves.is_none() {
            self.reads |= bit;
            self.now.for_each(|configuration| {
                if pending.may_follow(configuration) {
                    configuration.done |= bit;
                }
            });
        }
        Ok(())
    }

    /// Frees the slots of compare-and-sets without an answer that can no longer happen, because the
    /// record they expect has gone: a value is written only once.
    fn drop_the_impossible(&mut self, instant: u64, named: &Named) {
        for slot in bits(self.forever) {
            let Condition::Exactly(expected) = self.pending[slot].condition else { continue };
            let awaited = State::Value(expected);
            let to_come = bits(self.occupied).any(|other| self.pending[other].leaves == Some(awaited))
                || named.0.get(&expected).is_some_and(|value| value.written && value.written_from >= instant);
            if !to_come && self.now.all(|configuration| configuration.state != awaited) {
                self.occupied &= !(1 << slot);
                self.forever &= !(1 << slot);
                self.now.forget(1 << slot, &mut self.next);
            }
        }
    }

    /// Everything that returned before `instant` has happened.
    fn settle_before(&mut self, instant: u64) -> Result<(), Verdict> {
        while self.next_return < instant {
            let due = bits(self.occupied).find(|slot| self.pending[*slot].returned == self.next_return);
            if let Some(slot) = due {
                self.settle(slot)?;
                self.occupied &= !(1 << slot);
                self.reads &= !(1 << slot);
                self.pending.iter_mut().for_each(|pending| pending.after &= !(1 << slot));
            }
            let returns = bits(self.occupied).map(|slot| self.pending[slot].returned);
            self.next_return = returns.min().unwrap_or(NEVER);
        }
        Ok(())
    }

    /// The step has happened, or it need not have; what is left are the configurations for which
    /// that is so.
    fn settle(&mut self, slot: usize) -> Result<(), Verdict> {
        let bit = 1 << slot;
        if !self.now.all(|configuration| configuration.done & bit != 0) {
            self.make_happen(bit)?;
            if self.pending[slot].optional {
                // It did not happen, and will not.
                for i in 0..self.now.len() {
                    self.next.insert(self.now.get(i));
                }
            }
            if self.next.is_empty() {
                return Err(Verdict::Disordered { failing: self.pending[slot].operation });
            }
            std::mem::swap(&mut self.now, &mut self.next);
        }
        // Done for all of them or of no more interest: the slot's bit gets its next meaning.
        self.now.forget(bit, &mut self.next);
        self.widest = self.widest.max(self.now.len());
        Ok(())
    }

    /// Extends every configuration without `bit` by pending writes until it has it; the outcome is
    /// in `next`.
    fn make_happen(&mut self, bit: u64) -> Result<(), Verdict> {
        self.next.clear();
        self.visited.clear();
        for i in 0..self.now.len() {
            let configuration = self.now.get(i);
            match configuration.done & bit != 0 {
                true => self.next.insert(configuration),
                false => self.visited.insert(configuration),
            }
        }
        let mut at = 0;
        while at < self.visited.len() {
            let from = self.visited.get(at);
            at += 1;
            for slot in bits(self.occupied & !self.reads & !from.done & !from.spent) {
                let Some(leaves) = self.pending[slot].leaves else { continue };
                if self.pending[slot].may_follow(&from) {
                    let mut then = Configuration { state: leaves, ..from };
                    let happened =
                        if self.forever >> slot & 1 == 1 { &mut then.spent } else { &mut then.done };
                    *happened |= 1 << slot;
                    self.reach(then, bit);
                }
            }
            self.do_unnamed(from, bit);
            if self.visited.len().max(self.next.len()) > MOST_CONFIGURATIONS {
                return Err(Verdict::Unknown(Doubt::Configurations));
            }
        }
        Ok(())
    }

    /// Goes on with each sort of unnamed writes without an answer.
    fn do_unnamed(&mut self, from: Configuration, bit: u64) {
        if self.available == Used::default() {
            return;
        }
        let may: [bool; SORTS.len()] = std::array::from_fn(|sort| {
            let (condition, leaves) = SORTS[sort];
            condition.holds(from.state) && leaves != from.state && self.available.has_more(from.used, sort)
        });
        for sort in 0..SORTS.len() {
            // A put can do whatever an insert or an update can, so it is kept for later if one of
            // these will do.
            let spared = sort == PUT && (may[INSERT] || may[UPDATE]);
            if may[sort] && !spared {
                let mut used = from.used;
                used.add(sort);
                self.reach(Configuration { state: SORTS[sort].1, used, ..from }, bit);
            }
        }
    }

    /// Does the reads that a new configuration allows, and keeps it: for good if it has `bit`, else
    /// to go on from.
    fn reach(&mut self, mut configuration: Configuration, bit: u64) {
        // A failed write is a read that others may have to come after.
        let mut before = !configuration.done;
        while before != configuration.done {
            before = configuration.done;
            for slot in bits(self.occupied & self.reads & !configuration.done) {
                if self.pending[slot].may_follow(&configuration) {
                    configuration.done |= 1 << slot;
                }
            }
        }
        match configuration.done & bit != 0 {
            true => self.next.insert(configuration),
            false => self.visited.insert(configuration),
        }
    }
}

impl Condition {
    fn holds(self, state: State) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => state == State::Absent,
            Self::Present => state != State::Absent,
            Self::Exactly(value) => state == State::Value(value),
            Self::Unlike(value) => state != State::Absent && state != State::Value(value),
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}
