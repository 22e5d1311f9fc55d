//! Waiting for a memory node that is not listening yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fpcache_fabric::tcp::Token;
use fpcache_fabric::{ErrorKind, FabricError};

use crate::error::ClientError;
use crate::tables::Tables;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until a memory node answers at `url`, as scripts do that have just started one.
///
/// # Errors
/// What the last attempt failed in, if there is none `within` this time; and at once what waiting
/// does not change: a bad URL, no right to it, one of another release.
pub fn wait_for_node(url: &str, within: Duration) -> Result<(), ClientError> {
    wait_for_node_as(url, None, within)
}

/// As [`wait_for_node`], with a token to get in by over TCP; without one that of the environment,
/// as [`ClientConfig`](crate::ClientConfig::token) has it.
///
/// # Errors
/// As for [`wait_for_node`].
pub fn wait_for_node_as(url: &str, token: Option<Token>, within: Duration) -> Result<(), ClientError> {
    until_there(within, || Tables::connect_as(url, token, within.max(PAUSE)).map(drop))
}

/// Repeats an attempt to connect for as long as nobody listens, `within` this time.
pub(crate) fn until_there<R>(
    within: Duration,
    mut attempt: impl FnMut() -> Result<R, ClientError>,
) -> Result<R, ClientError> {
    let started = Instant::now();
    loop {
        let outcome = attempt();
        let is_away = matches!(&outcome, Err(ClientError::Fabric(error)) if is_of_no_node(error));
        let left = within.saturating_sub(started.elapsed());
        if !is_away || left.is_zero() {
            return outcome;
        }
        sleep(PAUSE.min(left));
    }
}

/// Whether nobody listens, or who did is going.
fn is_of_no_node(error: &FabricError) -> bool {
    matches!(error.kind(), ErrorKind::Reconnect | ErrorKind::Retry)
}
