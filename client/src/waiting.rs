//! Waiting for a memory node that is not listening yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fpcache_fabric::{ErrorKind, FabricError};

use crate::error::ClientError;

/// The pause between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Repeats an attempt to connect for as long as no memory node listens, `within` this time.
pub(crate) fn retry_while_away<R>(
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

/// Whether no memory node listens, or the one that did is ending.
fn is_of_no_node(error: &FabricError) -> bool {
    matches!(error.kind(), ErrorKind::Reconnect | ErrorKind::Retry)
}

#[cfg(test)]
mod tests {
    use fpcache_fabric::tcp::TcpAddressError;

    use super::*;

    /// It was taken for a mistake of the user's, and ended the wait at once.
    #[test]
    fn a_name_that_is_not_known_yet_is_waited_for() {
        let mut attempts = 0;
        let found = retry_while_away(Duration::from_secs(60), || {
            attempts += 1;
            let unknown = TcpAddressError::UnknownHost { address: String::new(), why: String::new() };
            match attempts {
                1..3 => Err(FabricError::TcpAddress(Box::new(unknown)).into()),
                _ => Ok(attempts),
            }
        });
        assert_eq!(found.expect("found in time"), 3);
    }
}
