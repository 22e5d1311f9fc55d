//! Waiting for a memory node that does not answer yet.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fpcache_fabric::{ErrorKind, FabricError};

use crate::error::ClientError;

/// The pause between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Repeats an attempt to connect for as long as no memory node answers, `within` this time.
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

/// Whether no memory node listens, or it or its host is silent, or the one that did is ending.
fn is_of_no_node(error: &FabricError) -> bool {
    let is_silent = error.kind() == ErrorKind::Deadline
        && matches!(error, FabricError::Connecting { .. } | FabricError::NoWelcome { .. });
    is_silent || matches!(error.kind(), ErrorKind::Reconnect | ErrorKind::Retry)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use fpcache_fabric::tcp::TcpAddressError;
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, listen, socket};

    use super::*;
    use crate::{Client, ClientConfig, Tables};

    /// The URL of a listener whose queue is full, so that it answers no client, while these sockets
    /// are open.
    fn silent() -> (String, Vec<OwnedFd>) {
        let open = || socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let listener = open();
        bind(&listener, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        listen(&listener, 0).expect("it listens");
        let at = std::net::SocketAddr::try_from(getsockname(&listener).expect("bound")).expect("internet");
        let mut sockets = vec![listener];
        for _ in 0..4 {
            let client = open();
            rustix::io::ioctl_fionbio(&client, true).expect("it does not block");
            let _ = connect(&client, &at);
            sockets.push(client);
        }
        (format!("tcp://{at}"), sockets)
    }

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

    /// That nobody at this URL is given up before its time to wait is over.
    fn is_waited_for(url: &str) {
        let wait = Duration::from_millis(500);
        let config = ClientConfig::default().with_wait(wait).with_deadline(Duration::from_millis(100));
        let begun = Instant::now();
        Tables::connect_with(url, config.clone()).expect_err("silent");
        assert!(begun.elapsed() >= wait, "{:?}", begun.elapsed());
        let begun = Instant::now();
        Client::connect_with(url, config).expect_err("silent");
        assert!(begun.elapsed() >= wait, "{:?}", begun.elapsed());
    }

    /// The first attempt that was not answered ended the wait.
    #[test]
    fn a_host_that_is_silent_is_waited_for() {
        let (url, _sockets) = silent();
        is_waited_for(&url);
    }

    /// So did a memory node that listens and loads before it answers.
    #[test]
    fn a_listener_that_does_not_answer_yet_is_waited_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        is_waited_for(&format!("tcp://{}", listener.local_addr().expect("bound")));
    }

    /// Each took all of it.
    #[test]
    fn hosts_that_are_silent_share_the_deadline() {
        let ((one, _ones), (other, _others)) = (silent(), silent());
        let deadline = Duration::from_secs(4);
        let begun = Instant::now();
        let config = ClientConfig::default().with_deadline(deadline);
        Tables::connect_with(&format!("{one},{other}"), config).expect_err("silent");
        assert!(begun.elapsed() < deadline * 3 / 2, "{:?}", begun.elapsed());
    }
}
