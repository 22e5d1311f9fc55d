//! Operations as their callers observed them.

use std::fmt;

use fpcache_client::Plan;

/// The instant of a response that never came.
pub const NEVER: u64 = u64::MAX;

/// The value of a record in a scan that returned keys alone: no process writes it.
pub const UNSEEN: u64 = u64::MAX - 1;

/// What was asked for. Values are unique among all values that are ever written to a key, those it
/// began with included, so that a value names the write it came from; that is also what a version
/// token does, so a token is recorded as the value of the record it stood with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The key's value.
    Get,
    /// Whether there is a record.
    Contains,
    /// A record where there is none.
    Insert(u64),
    /// A record, whatever was there.
    Put(u64),
    /// Another value where there is a record.
    Update(u64),
    /// No record any more.
    Delete,
    /// No record any more, whether there was one or not: the table was dropped.
    Clear,
    /// Another value where the record is still the one that was seen.
    CompareAndSet {
        /// The value of the record whose token was given.
        expected: u64,
        /// The new value.
        value: u64,
    },
    /// Records in key order, from the operation's key on.
    Scan {
        /// The most records it may return.
        limit: u32,
    },
    /// Records in descending order of their keys, from the operation's key on.
    ScanBack {
        /// The most records it may return.
        limit: u32,
    },
    /// Records with keys from the operation's up to another one.
    ScanRange {
        /// The first key that is not asked for.
        end: u64,
        /// The most records it may return.
        limit: u32,
        /// Whether they come in descending order, from the range's end.
        is_down: bool,
    },
    /// How many keys there are from the operation's up to another one.
    Count {
        /// The first key that does not count.
        end: u64,
    },
    /// The record with the greatest key not above the operation's.
    Floor,
    /// The record with the least key not below the operation's.
    Ceiling,
}

impl Call {
    /// The value the call writes if it takes effect.
    pub const fn written(self) -> Option<u64> {
        match self {
            Self::Insert(value) | Self::Put(value) | Self::Update(value) => Some(value),
            Self::CompareAndSet { value, .. } => Some(value),
            Self::Get | Self::Contains | Self::Delete | Self::Clear => None,
            Self::Scan { .. } | Self::ScanBack { .. } | Self::ScanRange { .. } => None,
            Self::Count { .. } | Self::Floor | Self::Ceiling => None,
        }
    }

    /// Whether the call may change a record.
    pub const fn writes(self) -> bool {
        !self.is_by_order() && !matches!(self, Self::Get | Self::Contains)
    }

    /// Whether the call reads what lies about its key, by the order of keys.
    pub const fn is_by_order(self) -> bool {
        use Call::*;
        matches!(self, Scan { .. } | ScanBack { .. } | ScanRange { .. } | Count { .. } | Floor | Ceiling)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer: the call may have taken effect, may still do so at any later time, or never.
    Unknown,
    /// An answer that says that nothing happened, and nothing of the key: a full memory node, for
    /// example.
    Refused,
    /// A get found this value.
    Found(u64),
    /// A get, contains, update, delete or compare-and-set found no record.
    Absent,
    /// An insert or a contains found a record.
    Exists,
    /// A compare-and-set found another record than the one expected.
    Differs,
    /// A write took effect.
    Done,
    /// A count found this many keys.
    Counted(u64),
    /// A scan returned these records, a floor or a ceiling the one it found, if any.
    Scanned(Scanned),
}

/// Where the records of a scan lie in the log or the history that has the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    pub(super) first: u64,
    pub(super) count: u32,
}

/// One call with its interval: whatever it did, it did between the two instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who called. What a process was told of a key, it was told in the order in which it asked:
    /// see [`Recorder::invoke`](super::Recorder::invoke).
    pub process: u32,
    /// The plan that gave the answer, where the caller knows it.
    pub plan: Option<Plan>,
    /// The key, of a scan the least one asked for.
    pub key: u64,
    /// What was asked for.
    pub call: Call,
    /// Its result.
    pub outcome: Outcome,
    /// The instant before the call.
    pub invoked: u64,
    /// The instant after it. If the outcome is unknown, the one from which on the call takes no
    /// effect any more: [`NEVER`] unless something promises one.
    pub returned: u64,
}

impl Operation {
    /// Whether the answer is one that such a call can have at all.
    pub const fn is_well_formed(&self) -> bool {
        use Outcome::*;
        let fits = match self.call {
            Call::Get => matches!(self.outcome, Unknown | Refused | Found(_) | Absent),
            Call::Contains => matches!(self.outcome, Unknown | Refused | Exists | Absent),
            Call::Insert(_) => matches!(self.outcome, Unknown | Refused | Done | Exists),
            Call::Put(_) | Call::Clear => matches!(self.outcome, Unknown | Refused | Done),
            Call::Update(_) | Call::Delete => matches!(self.outcome, Unknown | Refused | Done | Absent),
            Call::CompareAndSet { .. } => {
                matches!(self.outcome, Unknown | Refused | Done | Absent | Differs)
            }
            Call::Scan { .. } | Call::ScanBack { .. } | Call::ScanRange { .. } => {
                matches!(self.outcome, Unknown | Refused | Scanned(_))
            }
            Call::Count { .. } => matches!(self.outcome, Unknown | Refused | Counted(_)),
            Call::Floor | Call::Ceiling => match self.outcome {
                Scanned(scanned) => scanned.count <= 1,
                outcome => matches!(outcome, Unknown | Refused),
            },
        };
        let in_order = match self.outcome {
            Unknown => self.invoked <= self.returned,
            _ => self.invoked <= self.returned && self.returned != NEVER,
        };
        fits && in_order
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => write!(f, "get"),
            Self::Contains => write!(f, "contains"),
            Self::Insert(value) => write!(f, "insert {value}"),
            Self::Put(value) => write!(f, "put {value}"),
            Self::Update(value) => write!(f, "update to {value}"),
            Self::Delete => write!(f, "delete"),
            Self::Clear => write!(f, "drop of the table"),
            Self::CompareAndSet { expected, value } => write!(f, "compare {expected} and set {value}"),
            Self::Scan { limit } => write!(f, "scan of up to {limit}"),
            Self::ScanBack { limit } => write!(f, "scan down of up to {limit}"),
            Self::ScanRange { end, limit, is_down } => {
                let down = if *is_down { " down" } else { "" };
                write!(f, "scan{down} of up to {limit} below {end}")
            }
            Self::Count { end } => write!(f, "count up to {end}"),
            Self::Floor => write!(f, "floor"),
            Self::Ceiling => write!(f, "ceiling"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "unknown"),
            Self::Refused => write!(f, "refused"),
            Self::Found(value) => write!(f, "found {value}"),
            Self::Absent => write!(f, "absent"),
            Self::Exists => write!(f, "exists"),
            Self::Differs => write!(f, "differs"),
            Self::Done => write!(f, "done"),
            Self::Counted(count) => write!(f, "{count} keys"),
            Self::Scanned(scanned) => write!(f, "{} records", scanned.count),
        }
    }
}
