//! Waiting for a memory node that is not listening yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fpcache_fabric::{ErrorKind, FabricError};

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::tables::Tables;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until a memory node answers at `url`, as scripts do that have just started one.
///
/// # Errors
/// That of the last attempt if no memory node answers `within` this time. Errors that waiting cannot mend
/// (an invalid URL, no permission, another release) are returned at once.
pub fn wait_for_node(url: &str, within: Duration) -> Result<(), ClientError> {
    wait_for_node_with(url, ClientConfig::default().with_wait(within).with_deadline(within))
}

/// As [`wait_for_node`], for as long as [`ClientConfig::wait`] says, with the token of these settings.
///
/// # Errors
/// As for [`wait_for_node`].
pub fn wait_for_node_with(url: &str, config: ClientConfig) -> Result<(), ClientError> {
    let deadline = config.deadline.max(PAUSE);
    Tables::connect_with(url, config.with_deadline(deadline)).map(drop)
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
