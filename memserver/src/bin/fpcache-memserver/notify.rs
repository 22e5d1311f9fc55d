//! What a service manager is told of the daemon, by the protocol of sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fpcache_memserver::daemon::StopHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, warn};

/// The variable in which a service manager says where it is told.
const SOCKET: &str = "NOTIFY_SOCKET";

/// How long a service manager that does not read may hold up the daemon.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time until it is told again that the daemon serves, at first: each time twice as long, up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Tells the service manager that the daemon stops, as soon as its stop handle is used; dropped, it
/// uses the handle and waits until that is told.
pub(crate) struct Stopping {
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

/// Tells the service manager, if there is one, that these tables are served and others are closed,
/// and has it told when the daemon stops.
pub(crate) fn ready(tables: usize, closed: usize, stop: StopHandle) -> Stopping {
    let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else {
        return Stopping { stop, thread: None };
    };
    let ready = format!("READY=1\nSTATUS={tables} tables, {closed} closed");
    // Without that, it ends the daemon after a while, or never starts what comes after it.
    let first = tell(&socket, &ready)
        .inspect_err(|error| warn!("the service manager does not hear yet that tables are served: {error}"));
    let (seen, mut is_told) = (stop.clone(), first.is_ok());
    let wait = move || {
        let mut pause = FIRST_PAUSE;
        while !seen.is_stopped() {
            let limit = Timespec::try_from(pause).ok().filter(|_| !is_told);
            let mut fds = [PollFd::new(&seen, PollFlags::IN)];
            // A signal may interrupt it.
            let _ = poll(&mut fds, limit.as_ref());
            if !is_told && !seen.is_stopped() {
                is_told = tell(&socket, &ready).is_ok();
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
        let _ = tell(&socket, "STOPPING=1");
    };
    let spawned = thread::Builder::new().name("fpcache-notify".into()).spawn(wait);
    let thread = spawned.inspect_err(|error| debug!("the service manager will not hear of the end: {error}"));
    Stopping { stop, thread: thread.ok() }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            let _ = thread.join();
        }
    }
}

/// That it is not told does not keep the daemon from serving.
fn tell(socket: &OsStr, message: &str) -> io::Result<()> {
    let place = socket.display();
    send(socket, message)
        .inspect_err(|error| debug!("the service manager at {place} is not told {message:?}: {error}"))
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    from.set_write_timeout(Some(PATIENCE))?;
    from.send_to_addr(message.as_bytes(), &address).map(drop)
}
