//! Why a load ended without a table.

use fpcache::key_space::OrderError;
use fpcache::layout::{Corrupt, ParameterError};
use fpcache::message::{ErrorCode, MAX_AHEAD_BYTES, Refusal};
use fpcache_fabric::AccessError;
use fpcache_index::OptionsError;

use crate::budget::round_up;
use crate::uploads::MOST_VALUES;

/// Why a load ended without a table.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A parameter is out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A parameter is out of range for the models.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Keys out of order, twice the same one, or of a length that no key has.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A record does not have the lengths the table was begun with.
    #[error("record {number}, a key of {key} bytes and a value of {value}, does not fit the table: {fits}")]
    Misfit {
        /// Its number, from 0.
        number: u64,
        /// Bytes of its key.
        key: usize,
        /// Bytes of its value.
        value: usize,
        /// What does, in words.
        fits: String,
    },
    /// A chunk ends within a record.
    #[error("the chunk from record {first} on holds fewer records than it counts")]
    Short {
        /// Index of the chunk's first record.
        first: u64,
    },
    /// A value was to come ahead of its record, and did not.
    #[error(
        "the value of record {number}, {bytes} bytes, was to come ahead of it and did not: start the load anew"
    )]
    NoValue {
        /// The record's number, from 0.
        number: u64,
        /// Bytes of the value.
        bytes: u32,
    },
    /// Too many values came ahead of their records.
    #[error(
        "more than {MOST_VALUES} values, or {MAX_AHEAD_BYTES} bytes of them, came ahead of their records: send the records in \
         between"
    )]
    TooMuchAhead,
    /// What the segments were to share cannot be read.
    #[error("the encoders of the load cannot be read: {0}")]
    Encoders(String),
    /// A chunk is missing or came twice.
    #[error("records from {got} on arrived where {expected} was next: start the load anew")]
    Gap {
        /// Records so far.
        expected: u64,
        /// Index of the chunk's first record.
        got: u64,
    },
    /// The region is too small.
    #[error(
        "the region of {capacity} does not hold these records{after}: about {needed} are needed; {remedy}, or use a \
         higher fill, narrower fingerprints or fewer keys",
        capacity = bytesize::ByteSize(*.capacity).display().iec(),
        after = .loaded.map(|n| format!(" (full after {n})")).unwrap_or_default(),
        needed = round_up(*.needed),
    )]
    Full {
        /// Bytes that the region can have.
        capacity: u64,
        /// Records it held when it was full, if any were written.
        loaded: Option<u64>,
        /// Estimate of the bytes that would do.
        needed: u64,
        /// What gives the table more, in words.
        remedy: String,
    },
    /// The region could not be written: a bug.
    #[error("writing the region failed: {0}")]
    Region(#[from] AccessError),
    /// The region's own bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl LoadError {
    /// The refusal a client gets.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            Self::Parameter(_) | Self::Options(_) | Self::Encoders(_) => ErrorCode::Invalid,
            Self::Order(_)
            | Self::Misfit { .. }
            | Self::Short { .. }
            | Self::Gap { .. }
            | Self::NoValue { .. }
            | Self::TooMuchAhead => ErrorCode::BadData,
            Self::Full { .. } => ErrorCode::Full,
            Self::Region(_) | Self::Corrupt(_) => ErrorCode::Internal,
        };
        Refusal::new(code, self.to_string())
    }
}
