//! Calls that end without an answer: their time is over, the runtime has ended, or it is unknown
//! how a change ended.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache_fabric::FabricError;
use tokio::time::{Timeout, timeout_at};

use super::client::AsyncTableClient;
use crate::error::ClientError;

/// How long after its deadline a call is given up whose worker has not said how it ended.
const GRACE: Duration = Duration::from_millis(20);

/// What a call waits for that is not under way.
pub(super) const OTHERS: &str =
    "the call's turn: other calls of the client are served first, if there are any";
/// What one waits for that is.
pub(super) const REPLY: &str = "a reply";
/// What one waits for of which nothing is known.
const EITHER: &str =
    "a reply, or the call's turn: other calls of the client are served first, if there are any";
/// What one waits for that has no time to wait.
const NO_TIME: &str = "the call to begin, for which a deadline of zero leaves no time";

/// Waits for a call until its deadline and [`GRACE`] more, in which its worker can report the
/// outcome.
///
/// The call stays pinned where it is: a future passed by value is copied at every step.
pub(super) fn within<F: Future>(until: Instant, call: Pin<&mut F>) -> Timeout<Pin<&mut F>> {
    timeout_at((until + GRACE).into(), call)
}

impl<K: BuildKeys> AsyncTableClient<K> {
    /// The answer of a call, or an error if it does not come by its deadline.
    pub(super) async fn in_time<R>(
        &self,
        until: Instant,
        call: Pin<&mut impl Future<Output = Result<R, ClientError>>>,
    ) -> Result<R, ClientError> {
        match within(until, call).await {
            Ok(answered) => answered.map_err(|error| self.or_no_time(error)),
            Err(_) => Err(self.or_no_time(FabricError::DeadlinePassed { waiting_for: EITHER }.into())),
        }
    }

    /// The error of a call, which has not waited for others if it had no time to.
    pub(super) fn or_no_time(&self, error: ClientError) -> ClientError {
        let source = match &error {
            ClientError::Fabric(source) | ClientError::NodeAway { source, .. } => source,
            _ => return error,
        };
        let is_of_turn = matches!(source, FabricError::DeadlinePassed { waiting_for: OTHERS | EITHER });
        match is_of_turn && self.deadline().is_zero() {
            true => FabricError::DeadlinePassed { waiting_for: NO_TIME }.into(),
            false => error,
        }
    }
}

/// What served the call ended with its runtime.
pub(super) fn runtime_has_ended() -> ClientError {
    FabricError::Disconnected { peer: "as seen by a runtime that has ended".into() }.into()
}

/// The error of a change of which it is unknown how it ended.
pub(super) fn unknown(why: &str) -> ClientError {
    ClientError::OutcomeUnknown { why: why.to_owned() }
}
