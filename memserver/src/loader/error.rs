//! Errors of loads.

use fpcache::key_space::OrderError;
use fpcache::layout::{Corrupt, ParameterError};
use fpcache::message::{ErrorCode, MAX_AHEAD_BYTES, Refusal};
use fpcache_fabric::AccessError;
use fpcache_index::OptionsError;

use crate::budget::round_up;
use crate::uploads::MOST_VALUES;

/// Why a load ended without a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// A record does not have the lengths that the load was begun with.
    #[error("record {number}, a key of {key} bytes and a value of {value}, does not fit the table: {fits}")]
    Misfit {
        /// Its number, from 0.
        number: u64,
        /// Bytes of its key.
        key: usize,
        /// Bytes of its value.
        value: usize,
        /// What would fit, in words.
        fits: String,
    },
    /// A chunk ends within a record.
    #[error("the chunk from record {first} on has fewer records than its count says")]
    Short {
        /// Index of the chunk's first record.
        first: u64,
    },
    /// A value was not sent ahead of its record.
    #[error("the value of record {number}, {bytes} bytes, was not sent ahead of it: start the load again")]
    NoValue {
        /// The record's number, from 0.
        number: u64,
        /// Bytes of the value.
        bytes: u32,
    },
    /// Too many values were sent ahead of their records.
    #[error(
        "more than {MOST_VALUES} values, or {MAX_AHEAD_BYTES} bytes of them, were sent ahead of their records: send the \
         records in between"
    )]
    TooMuchAhead,
    /// The encoders cannot be decoded.
    #[error("the encoders of the load cannot be read: {0}")]
    Encoders(String),
    /// A chunk is missing or was sent twice.
    #[error("records from {got} on arrived, but {expected} was next: start the load again")]
    Gap {
        /// Records so far.
        expected: u64,
        /// Index of the chunk's first record.
        got: u64,
    },
    /// The region is too small.
    #[error(
        "{what} does not hold these records{after}: about {needed} are needed; {remedy}, or use a higher fill, narrower \
         fingerprints or fewer keys",
        what = if *.is_disk_full { "the file system of the region is full and".into() } else { format!("the region of {}", bytesize::ByteSize(*.capacity).display().iec()) },
        after = .loaded.map(|n| format!(" (full after {n})")).unwrap_or_default(),
        needed = round_up(*.needed),
    )]
    Full {
        /// Bytes that the region can have.
        capacity: u64,
        /// Whether it has fewer because its file system is full.
        is_disk_full: bool,
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
