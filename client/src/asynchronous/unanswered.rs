//! Calls that end without an answer: their time is over, the runtime has ended, or nobody knows how a change ended.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use fpcache_fabric::FabricError;
use tokio::time::{Timeout, timeout_at};

use crate::error::ClientError;

/// How long after its deadline a call is given up whose worker has not said what became of it.
const GRACE: Duration = Duration::from_millis(20);

/// What a call waits for that is not under way.
pub(super) const OTHERS: &str =
    "the call's turn: other calls of the client are served first, if there are any";

/// Waits for a call until its deadline and [`GRACE`] more, in which its worker can report the outcome.
///
/// The call stays pinned where it is: a future passed by value is copied at every step.
pub(super) fn within<F: Future>(until: Instant, call: Pin<&mut F>) -> Timeout<Pin<&mut F>> {
    timeout_at((until + GRACE).into(), call)
}

/// The answer of a call, or an error if it does not come by its deadline.
pub(super) async fn in_time<R>(
    until: Instant,
    call: Pin<&mut impl Future<Output = Result<R, ClientError>>>,
) -> Result<R, ClientError> {
    let passed = FabricError::DeadlinePassed { waiting_for: OTHERS };
    within(until, call).await.unwrap_or_else(|_| Err(passed.into()))
}

/// What served the call ended with its runtime.
pub(super) fn runtime_has_ended() -> ClientError {
    FabricError::Disconnected { peer: "as seen by a runtime that has ended".into() }.into()
}

/// The error of a change of which nobody knows how it ended.
pub(super) fn unknown(why: &str) -> ClientError {
    ClientError::OutcomeUnknown { why: why.to_owned() }
}
