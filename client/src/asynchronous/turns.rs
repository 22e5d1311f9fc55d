//! Whose turn it is to look for a range on a thread, and what the one before has found.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::{ClientError, ErrorKind};
use crate::pool::Pool;

/// The turns to look for a range. There are few threads for that: of all who want keys of a memory
/// node that is gone or says nothing, one has a turn.
pub(super) struct Turns(Arc<Mutex<Option<Found>>>);

/// A turn that somebody has, until it is dropped.
pub(super) struct Turn(OwnedMutexGuard<Option<Found>>);

/// What came of a turn, as far as it is true of the range and not of one call alone.
struct Found {
    begun: Instant,
    what: Result<(), ClientError>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// Waits for the turn.
    pub(super) async fn take(&self) -> Turn {
        Turn(Arc::clone(&self.0).lock_owned().await)
    }
}

impl Turn {
    /// What the turn before this one has found, if it was begun no earlier than that: who has waited
    /// since then need not look once more.
    pub(super) fn found_since(&self, since: Instant) -> Option<Result<(), ClientError>> {
        self.0.as_ref().filter(|found| found.begun >= since).map(|found| found.what.clone())
    }

    /// Ends a turn, with what was found by a look that began at that time: whether the range is where
    /// the map has it.
    pub(super) fn end<K: BuildKeys>(mut self, begun: Instant, looked: &Result<bool, ClientError>) {
        let what = match looked {
            Ok(true) => Some(Ok(())),
            // A range that is gone for one is so for all, and what is wrong with the setup too. Time
            // that is over is one call's.
            Err(error) if error.kind() == ErrorKind::Setup || Pool::<K>::is_gone(error) => {
                Some(Err(error.clone()))
            }
            Ok(false) | Err(_) => None,
        };
        *self.0 = what.map(|what| Found { begun, what });
    }
}
