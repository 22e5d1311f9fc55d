//! Calls that end without an answer: their time is over, the runtime has ended, or it is unknown
//! how a change ended.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use fpcache_fabric::FabricError;
use tokio::time::{Timeout, timeout_at};

use crate::error::ClientError;

/// How long after its deadline a call is given up whose worker has not said how it ended.
const GRACE: Duration = Duration::from_millis(20);

/// The same for a part of a scan, of which what was found by then is handed over: what serves it
/// answers, but may have to copy much, or wait for a processor.
pub(super) const HAND_OVER: Duration = Duration::from_secs(1);

/// What a call waits for that is not under way.
pub(super) const OTHERS: &str =
    "the call's turn: other calls of the client are served first, if there are any";
/// What one waits for that is.
pub(super) const REPLY: &str = "a reply";
/// What one waits for of which nothing is known.
pub(super) const EITHER: &str =
    "a reply, or the call's turn: other calls of the client are served first, if there are any";
/// What one waits for that has no time to wait.
pub(super) const NO_TIME: &str = "the call to begin, for which a deadline of zero leaves no time";

/// Waits for a call until its deadline and [`GRACE`] more, in which its worker can report the
/// outcome.
///
/// The call stays pinned where it is: a future passed by value is copied at every step.
pub(super) fn within<F: Future>(until: Instant, call: Pin<&mut F>) -> Timeout<Pin<&mut F>> {
    timeout_at((until + GRACE).into(), call)
}

/// What served the call ended with its runtime.
pub(super) fn runtime_has_ended() -> ClientError {
    FabricError::Disconnected { peer: "as seen by a runtime that has ended".into() }.into()
}

/// The error of a change of which it is unknown how it ended.
pub(super) fn unknown(why: &str) -> ClientError {
    ClientError::OutcomeUnknown { why: why.to_owned() }
}
