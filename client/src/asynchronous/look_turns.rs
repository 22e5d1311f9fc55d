//! Turns of calls to look for a range on a thread, with what the one before has found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::table_view::OpenError;
use fpcache_fabric::{ErrorKind as FabricErrorKind, FabricError};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::{ClientError, ErrorKind};
use crate::pool::{Pool, is_much_longer};

/// The turns to look for a range. There are few threads for that: of all who want keys of a memory
/// node that is gone or says nothing, one has a turn.
pub(super) struct LookTurns(Arc<Mutex<Option<TurnResult>>>);

/// A turn that a call has, until it is dropped.
pub(super) struct LookTurn(OwnedMutexGuard<Option<TurnResult>>);

/// The result of a turn, as far as it is true of the range and not of one call alone.
struct TurnResult {
    begun: Instant,
    /// How much time there was.
    time_limit: Duration,
    what: Result<(), ClientError>,
}

impl LookTurns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// Waits for the turn.
    pub(super) async fn take(&self) -> LookTurn {
        LookTurn(Arc::clone(&self.0).lock_owned().await)
    }
}

impl LookTurn {
    /// What the turn before this one has found, if it was begun no earlier than that: who has
    /// waited since then need not look once more. But one who can wait much longer for memory nodes
    /// than the look did may find what it has not.
    pub(super) fn found_since(&self, since: Instant, until: Instant) -> Option<Result<(), ClientError>> {
        let TurnResult { time_limit, what, .. } = self.0.as_ref().filter(|found| found.begun >= since)?;
        let has = until.saturating_duration_since(Instant::now());
        let was_hasty = what.is_err() && is_much_longer(has, *time_limit);
        (!was_hasty).then(|| what.clone())
    }

    /// Ends a turn, with what was found by a look that began at one time and could last until
    /// another: whether the range is where the map has it.
    pub(super) fn end<K: BuildKeys>(
        mut self,
        (begun, until): (Instant, Instant),
        looked: &Result<bool, ClientError>,
    ) {
        let what = match looked {
            Ok(true) => Some(Ok(())),
            // Where the time was over no newer map was looked for.
            Err(error) if Instant::now() < until && is_of_range::<K>(error) => Some(Err(error.clone())),
            Ok(false) | Err(_) => None,
        };
        let time_limit = until.saturating_duration_since(begun);
        *self.0 = what.map(|what| TurnResult { begun, time_limit, what });
    }
}

/// Whether an error is true of the range for all: it or its memory node is gone, or something is
/// wrong with the setup. What this process lacked may be there for the next call.
fn is_of_range<K: BuildKeys>(error: &ClientError) -> bool {
    let of_fabric = match error {
        ClientError::Open(OpenError::Memory(_)) => return false,
        ClientError::Open(OpenError::Fabric(error))
        | ClientError::Fabric(error)
        | ClientError::NodeAway { error, .. } => Some(error),
        _ => None,
    };
    match of_fabric {
        Some(error) if is_of_request(error) => false,
        Some(error) if error.kind() == FabricErrorKind::Reconnect => true,
        _ if matches!(error, ClientError::TableNotWhole { .. }) => true,
        _ => error.kind() == ErrorKind::Setup || Pool::<K>::is_gone(error),
    }
}

/// Whether an error of the fabric is that of one request, of its reply, or of what this process
/// lacked for it.
fn is_of_request(error: &FabricError) -> bool {
    let is_of_its_bytes = matches!(
        error,
        FabricError::TooLong { .. }
            | FabricError::RequestTooLong { .. }
            | FabricError::ReplyTooLong { .. }
            | FabricError::OutOfBounds { .. }
            | FabricError::DamagedReply { .. }
    );
    is_of_its_bytes || error.kind() == FabricErrorKind::Resources
}

#[cfg(test)]
mod tests {
    use std::io;

    use fpcache::key_space::U64Keys;
    use fpcache_fabric::REGION;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What those are told who have waited since before a look, and wait for another so long.
    async fn told(lasts: Duration, looked: Result<bool, ClientError>, has: Duration) -> Option<bool> {
        let (turns, since) = (LookTurns::new(), Instant::now());
        turns.take().await.end::<U64Keys>((since, since + lasts), &looked);
        let found = turns.take().await.found_since(since, Instant::now() + has);
        found.map(|found| found.is_ok())
    }

    #[tokio::test]
    async fn errors_are_told_to_those_who_have_not_much_more_time() {
        let gone = || Err(ClientError::NoSuchTable { why: String::new() });
        assert_eq!(told(SECOND, gone(), SECOND).await, Some(false));
        assert_eq!(told(SECOND, gone(), 5 * SECOND).await, None);
        assert_eq!(told(SECOND, Ok(true), 5 * SECOND).await, Some(true));
        // No call has looked for a newer map.
        assert_eq!(told(Duration::ZERO, gone(), Duration::ZERO).await, None);
    }

    /// Each of them looked for it by itself, one after the other.
    #[tokio::test]
    async fn that_a_memory_node_is_down_is_told() {
        let down = || FabricError::NoMemoryNode { address: "tcp://x".into(), path: String::new() };
        for error in [
            ClientError::Fabric(down()),
            ClientError::NodeAway { node: String::new(), error: down() },
            ClientError::Open(OpenError::Fabric(FabricError::Disconnected { peer: "tcp://x".into() })),
        ] {
            assert_eq!(told(SECOND, Err(error.clone()), SECOND).await, Some(false));
            assert_eq!(told(SECOND, Err(error), 5 * SECOND).await, None);
        }
    }

    #[tokio::test]
    async fn what_one_call_lacked_is_not_told_to_others() {
        let lacking = || FabricError::os("opening a socket", io::Error::from_raw_os_error(24));
        for error in [
            ClientError::Fabric(lacking()),
            ClientError::NodeAway { node: String::new(), error: lacking() },
            ClientError::Open(OpenError::Fabric(lacking())),
            ClientError::Fabric(FabricError::DeadlinePassed { waiting_for: "a turn" }),
        ] {
            assert_eq!(told(SECOND, Err(error), SECOND).await, None);
        }
        let (len, max) = (1 << 30, 1 << 20);
        let bounds = FabricError::OutOfBounds { area: REGION, offset: 0, len, area_len: max };
        for of_its_bytes in [
            FabricError::TooLong { len, max },
            FabricError::RequestTooLong { len, max },
            FabricError::ReplyTooLong { len, max },
            bounds,
            FabricError::DamagedReply { peer: "tcp://x".into() },
        ] {
            assert_eq!(told(SECOND, Err(of_its_bytes.into()), SECOND).await, None);
        }
        let denied = FabricError::UserRefused { user: 1, address: String::new(), remedy: "" };
        assert_eq!(told(SECOND, Err(denied.into()), SECOND).await, Some(false));
    }
}
