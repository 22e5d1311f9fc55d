//! The steps of an operation on one key: reads and writes.

use super::History;
use super::operation::{Call, NEVER, Operation, Outcome, UNSEEN};

/// What must be so for a step to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing.
    Any,
    /// No record.
    Absent,
    /// Some record.
    Present,
    /// The record with this value.
    Exactly(u64),
    /// A record, but not the one with this value.
    Unlike(u64),
}

/// What a step leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Everything as it was.
    Nothing,
    /// The record with this value.
    Write(u64),
    /// No record.
    Remove,
}

/// One operation, as far as it concerns one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The operation's number in the history.
    pub operation: u32,
    pub invoked: u64,
    pub returned: u64,
    pub condition: Condition,
    pub effect: Effect,
    /// It may also not have happened at all.
    pub optional: bool,
    /// Who called; none of a write that has neither an answer nor an end, which no order binds.
    pub process: Option<u32>,
    /// What the same process asked for later comes after it: it is of a call that writes.
    pub leads: bool,
}

impl Step {
    /// What an operation saw that has an answer.
    pub fn read(operation: &Operation, number: u32, condition: Condition) -> Self {
        Self {
            operation: number,
            invoked: operation.invoked,
            returned: operation.returned,
            condition,
            effect: Effect::Nothing,
            optional: false,
            process: Some(operation.process),
            leads: false,
        }
    }

    pub fn is_read(&self) -> bool {
        self.effect == Effect::Nothing
    }

    /// What an operation that is no scan does to its key, `None` if it says nothing about it.
    ///
    /// A write that failed on what it found is a read of that. One whose outcome is unknown either
    /// took effect or, as far as can be told, did not happen.
    pub fn of(operation: &Operation, number: u32) -> Option<Self> {
        let unknown = operation.outcome == Outcome::Unknown;
        let (condition, effect) = match (operation.call, operation.outcome) {
            (_, Outcome::Refused) => return None,
            (Call::Get, Outcome::Found(value)) => (Condition::Exactly(value), Effect::Nothing),
            (
                Call::Get | Call::Contains | Call::Update(_) | Call::Delete | Call::CompareAndSet { .. },
                Outcome::Absent,
            ) => (Condition::Absent, Effect::Nothing),
            (Call::Contains | Call::Insert(_), Outcome::Exists) => (Condition::Present, Effect::Nothing),
            (Call::CompareAndSet { expected, .. }, Outcome::Differs) => {
                (Condition::Unlike(expected), Effect::Nothing)
            }
            (Call::Get | Call::Contains | Call::Floor | Call::Ceiling, _) => return None,
            (Call::Scan { .. } | Call::ScanBack { .. } | Call::ScanRange { .. }, _) => return None,
            (Call::Count { .. }, _) => return None,
            (Call::Insert(value), _) => (Condition::Absent, Effect::Write(value)),
            (Call::Put(value), _) => (Condition::Any, Effect::Write(value)),
            (Call::Update(value), _) => (Condition::Present, Effect::Write(value)),
            (Call::Delete, _) => (Condition::Present, Effect::Remove),
            (Call::Clear, _) => (Condition::Any, Effect::Remove),
            (Call::CompareAndSet { expected, value }, _) => {
                (Condition::Exactly(expected), Effect::Write(value))
            }
        };
        Some(Self {
            operation: number,
            invoked: operation.invoked,
            returned: operation.returned,
            condition,
            effect,
            optional: unknown,
            process: (operation.returned != NEVER).then_some(operation.process),
            leads: operation.call.writes(),
        })
    }
}

/// A [`Step`] in eight bytes: scans make many of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    operation: u32,
    /// Whose word it is: [`Self::OWN`], [`Self::MISSED`], or the place among the scan's records.
    place: u32,
}

impl Entry {
    /// The operation is no scan.
    const OWN: u32 = u32::MAX;
    /// A scan covered the key and did not return it.
    const MISSED: u32 = u32::MAX - 1;

    pub fn own(operation: u32) -> Self {
        Self { operation, place: Self::OWN }
    }

    pub fn scanned(operation: u32, place: Option<u32>) -> Self {
        Self { operation, place: place.unwrap_or(Self::MISSED) }
    }

    /// The step it stands for, `None` if it says nothing.
    pub fn step(self, history: &History) -> Option<Step> {
        let operation = history.operations.get(self.operation as usize)?;
        if self.place == Self::OWN {
            return Step::of(operation, self.operation);
        }
        let Outcome::Scanned(scanned) = operation.outcome else { return None };
        let condition = match self.place {
            Self::MISSED => Condition::Absent,
            place => match history.records(scanned).get(place as usize)?.1 {
                UNSEEN => Condition::Present,
                value => Condition::Exactly(value),
            },
        };
        Some(Step::read(operation, self.operation, condition))
    }
}
