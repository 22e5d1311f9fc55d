//! Reads: the operations that carry plans out.
//!
//! A lookup is a state machine without I/O, clock or thread of its own (`engine`): what has come
//! decides what is asked for next. It runs over memory looked at in place, one key inline and many
//! in turns, or as an [`Operation`], each [`step`](Operation::step) of which takes the completions
//! of the last doorbell batch and fills the next one. [`drive`] runs an operation over an endpoint;
//! a fabric with real latency can interleave many. A batch costs one dependent round trip however
//! many requests it carries, which is how a group of keys is looked up at the price of one.

mod ask_backoff;
mod engine;
mod external;
mod in_flight;
mod lookup;
mod ordered;
mod outcome;
mod records;
mod scan;
mod scratch;
mod segment_search;
mod slot_window;
mod verify;

pub use external::fetch_value;
use fpcache_fabric::{Batch, Endpoint, FabricError};
pub use in_flight::InFlight;
pub use lookup::at_node::{Replied, answer};
pub use lookup::{Lookup, WordAnswer, contains, look_up, look_up_all, look_up_more, look_up_word};
pub use ordered::{
    Nearest, NearestScratch, Neighbour, Side, find_nearest, find_nearest_again, find_nearest_to,
};
pub use outcome::{Outcome, Outcomes};
pub use scan::{Scan, ScanScratch};
pub use scratch::LookupScratch;
pub use slot_window::cache_probe;

use crate::layout::Corrupt;
use crate::table_view::reuse_sequence;

/// The cost of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Dependent round trips: doorbell batches that had to be waited for one after another.
    pub round_trips: u32,
    /// READ requests.
    pub reads: u32,
    /// Bytes read.
    pub bytes: u64,
    /// Slots fetched because their fingerprint matched, which held another key.
    pub false_candidates: u32,
    /// Times the plan was given up for a range read: a record was being written, or too many
    /// fingerprints matched.
    pub fallbacks: u32,
    /// Entries of the hot cache that led to another key's slot.
    pub conflicts: u32,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.round_trips += other.round_trips;
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.false_candidates += other.false_candidates;
        self.fallbacks += other.fallbacks;
        self.conflicts += other.conflicts;
    }
}

/// The wanted part of a record that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Its value.
    Value,
    /// That it is there, without its value, which is not READ if it is external.
    Presence,
    /// Its value if that lies in its slot, else that it does not.
    InSlot,
}

/// Why an operation did not end in an answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The directory in use is out of date: fetch it anew and start over.
    #[error("the segment was replaced since its descriptor was fetched")]
    Stale,
    /// The record kept changing while it was read.
    #[error("the record was being written during all of {attempts} reads: try again")]
    Contended {
        /// Reads that were tried.
        attempts: u32,
    },
    /// It took longer than the caller would wait.
    #[error(
        "no end of it after {round_trips} round trips: the call has many keys, or many beside the wanted one were deleted"
    )]
    Unfinished {
        /// Doorbell batches that were waited for.
        round_trips: u32,
    },
    /// A page of the directory, fetched on demand, contradicts itself or the pages around it.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// An operation's state after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the batch, then step again.
    Post,
    /// Load the reuse sequence after the last READ, and step again unless it exceeds this: then
    /// what was read may be what other segments hold by now, and the operation is
    /// [`ReadError::Stale`]. No round trip; see [`Endpoint::load_after_reads`].
    Check(u64),
    /// Nothing: the result is there.
    Done,
}

/// A resumable operation.
pub trait Operation {
    /// Takes the completions of the batch posted before and prepares the next one.
    fn step(&mut self) -> Result<Step, ReadError>;

    /// The batch to run after [`Step::Post`].
    fn batch(&mut self) -> &mut Batch;
}

/// Runs an operation to its end over one endpoint.
#[inline]
pub fn drive<E: Endpoint, O: Operation>(endpoint: &mut E, operation: &mut O) -> Result<(), ReadError> {
    drive_while(endpoint, operation, |_| true)
}

/// Runs an operation over one endpoint while `goes_on`, asked before each further round trip, says
/// so of how many there were.
///
/// # Errors
/// [`ReadError`]; [`Unfinished`](ReadError::Unfinished) if it was not to go on.
#[inline]
pub fn drive_while<E: Endpoint, O: Operation>(
    endpoint: &mut E,
    operation: &mut O,
    mut goes_on: impl FnMut(u32) -> bool,
) -> Result<(), ReadError> {
    let mut round_trips = 0;
    while advance(endpoint, operation)? {
        if round_trips > 0 && !goes_on(round_trips) {
            return Err(ReadError::Unfinished { round_trips });
        }
        endpoint.run(operation.batch())?;
        round_trips = round_trips.saturating_add(1);
    }
    Ok(())
}

/// Steps an operation until it wants its batch run, for `true`, or its result is there. For a
/// caller that waits for batches in a way of its own: what is asked of the endpoint here costs no
/// round trip.
///
/// # Errors
/// [`ReadError`]: the operation has ended.
#[inline]
pub fn advance<E: Endpoint, O: Operation>(endpoint: &mut E, operation: &mut O) -> Result<bool, ReadError> {
    loop {
        match operation.step()? {
            Step::Post => return Ok(true),
            Step::Check(until) => check_reuse(endpoint, until)?,
            Step::Done => return Ok(false),
        }
    }
}

/// Whether everything read so far is of segments whose memory had no other use yet, as far as a
/// directory knows that is valid up to this reuse sequence.
#[inline(always)]
fn check_reuse<E: Endpoint>(endpoint: &mut E, until: u64) -> Result<(), ReadError> {
    if reuse_sequence(endpoint)? > until {
        return Err(ReadError::Stale);
    }
    Ok(())
}

/// Rounds of reads of one record that is being written before the operation gives up: some
/// microseconds, after which it is for the caller to wait.
const MAX_ATTEMPTS: u32 = 100;
