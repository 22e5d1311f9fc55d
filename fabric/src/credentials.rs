//! The process at the other end of a unix socket.

use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;

/// The process that listened at a unix socket, or connected to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerProcess {
    pub(crate) user: u32,
    /// Unknown where the process is in another PID namespace than this one's or those within it, as
    /// those of containers are. It serves messages, and waits for processes that are ending; that a
    /// peer has ended is seen by its socket.
    pub(crate) process: Option<u32>,
}

/// What the kernel says of the peer. Not by rustix, which takes the number of a process for one
/// that is not zero, as it is for one of another namespace.
pub(crate) fn peer_of(socket: &impl AsFd) -> Result<PeerProcess, Errno> {
    let said = getsockopt(socket, sockopt::PeerCredentials)
        .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    Ok(PeerProcess { user: said.uid(), process: known(said.pid()) })
}

fn known(process: i32) -> Option<u32> {
    u32::try_from(process).ok().filter(|process| *process > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_peer_of_this_process_is_this_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(peer_of(&ours), Ok(PeerProcess { user, process: Some(std::process::id()) }));
        assert_eq!(peer_of(&std::fs::File::open("/").unwrap()), Err(Errno::NOTSOCK));
    }

    #[test]
    fn a_process_without_a_number_here_is_unknown() {
        assert_eq!((known(0), known(-1), known(7)), (None, None, Some(7)));
    }
}
