//! Operations that clients ask of systems, and their answers.

/// What a client asks of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The value of a key.
    Read {
        /// The key, which stands for a longer one where keys have more than 8 bytes.
        key: u64,
    },
    /// A new value for a key that is there.
    Update {
        /// The key.
        key: u64,
        /// The value's first 8 bytes.
        value: u64,
        /// Whether its client reads the key before, and goes on to the update when it has the
        /// answer: a read-modify-write, which is one operation. Systems are asked for the two, one
        /// after the other.
        reads: bool,
    },
    /// A value for a key, whether it is there or not.
    Insert {
        /// The key.
        key: u64,
        /// The value's first 8 bytes.
        value: u64,
    },
    /// The records from a key on, in order.
    Scan {
        /// The least key that is wanted, which need not be there.
        key: u64,
        /// How many, if there are as many.
        count: u32,
    },
}

impl Operation {
    /// The key it is about, or begins with.
    pub fn key(self) -> u64 {
        match self {
            Self::Read { key }
            | Self::Update { key, .. }
            | Self::Insert { key, .. }
            | Self::Scan { key, .. } => key,
        }
    }

    /// What a system is asked for: first this, and then that, if there is more.
    pub(super) fn parts(self) -> (Self, Option<Self>) {
        match self {
            Self::Update { key, value, reads: true } => {
                (Self::Read { key }, Some(Self::Update { key, value, reads: false }))
            }
            one => (one, None),
        }
    }

    /// The value that it writes, if it does.
    pub fn written(self) -> Option<u64> {
        match self {
            Self::Read { .. } | Self::Scan { .. } => None,
            Self::Update { value, .. } | Self::Insert { value, .. } => Some(value),
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of a read: the value, if the key is there.
    Value(Option<u64>),
    /// Of an update or an insert.
    Written,
    /// Of an update: nothing was written, since the key is not there.
    Absent,
    /// Of a scan: keys and values.
    Records(Vec<(u64, u64)>),
    /// It did not end.
    Failed(String),
}
