//! Failures of a stress run.

use crate::history::checker::MalformedHistory;

/// Why a stress run could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StressError {
    /// No process, no key, or weights that are no weights.
    #[error("{0}: give at least one process, one key and one call a positive weight")]
    Options(String),
    /// The state between two batches could not be read.
    #[error(
        "key {key} could not be read between two batches in {attempts} attempts: {last}; see that the store is up, or allow more attempts"
    )]
    Unreadable {
        /// The key.
        key: u64,
        /// How often it was tried.
        attempts: usize,
        /// The last failure.
        last: String,
    },
    /// A history that cannot be.
    #[error(transparent)]
    Malformed(#[from] MalformedHistory),
}
