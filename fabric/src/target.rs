//! The places of sockets: where they are bound, and what they are connected to.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::bell::timespec;
use crate::clock::Deadline;
use crate::error::FabricError;

/// Of sockets that never block.
pub(crate) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Where a socket is connected to or bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Internet(SocketAddr),
    Unix(PathBuf),
}

impl Target {
    /// Whether a socket at one of them keeps sockets from the other: all addresses of a family
    /// include each, and those of IPv6 the ones of IPv4.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let includes = |all: &SocketAddr, one: &SocketAddr| {
            all.ip() == one.ip() || all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
        };
        match (self, other) {
            (Self::Internet(one), Self::Internet(other)) => {
                one.port() == other.port() && (includes(one, other) || includes(other, one))
            }
            (one, other) => one == other,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A socket for a target.
pub(crate) fn open(target: &Target) -> Result<OwnedFd, Errno> {
    let family = match target {
        Target::Internet(address) if address.is_ipv4() => AddressFamily::INET,
        Target::Internet(_) => AddressFamily::INET6,
        Target::Unix(_) => AddressFamily::UNIX,
    };
    rustix::net::socket_with(family, SocketType::STREAM, FLAGS, None)
}

/// Binds a socket, or begins to connect it.
pub(crate) fn bind(socket: impl AsFd, target: &Target) -> Result<(), Errno> {
    match target {
        Target::Internet(address) => rustix::net::bind(socket, address),
        Target::Unix(path) => rustix::net::bind(socket, &SocketAddrUnix::new(path)?),
    }
}

/// A connected socket; `TIME` if the deadline passed.
pub(crate) fn connect(target: &Target, deadline: Deadline) -> Result<OwnedFd, Errno> {
    connect_by(open(target)?, target, deadline)
}

fn connect_by(socket: OwnedFd, target: &Target, deadline: Deadline) -> Result<OwnedFd, Errno> {
    let begun = || match target {
        Target::Internet(address) => rustix::net::connect(&socket, address),
        Target::Unix(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path)?),
    };
    loop {
        match begun() {
            Ok(()) | Err(Errno::ISCONN) => return refuse_itself(&socket).map(|()| socket),
            Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {}
            // The queue of a unix socket is full, which nothing announces.
            Err(Errno::AGAIN) => {
                if deadline.has_passed(Instant::now()) {
                    return Err(Errno::TIME);
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(errno) => return Err(errno),
        }
        let mut ready = [PollFd::new(&socket, PollFlags::OUT)];
        let timeout = deadline.remaining(Instant::now()).map(timespec);
        match poll(&mut ready, timeout.as_ref()) {
            Ok(0) => return Err(Errno::TIME),
            Ok(_) => sockopt::socket_error(&socket)??,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Refuses a socket that is connected to itself. Where nothing listens at a port of the range that
/// clients' ports are taken from, the kernel may choose the very same one for the client.
fn refuse_itself(socket: &OwnedFd) -> Result<(), Errno> {
    let own = rustix::net::getsockname(socket)?;
    if rustix::net::getpeername(socket).is_ok_and(|peer| peer.is_some_and(|peer| peer == own)) {
        // Ends it by a reset: closed in order it would keep the port from listeners for a minute.
        sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
        return Err(Errno::CONNREFUSED);
    }
    Ok(())
}

/// Why a target was not reached.
pub(crate) fn not_reached(address: &dyn fmt::Display, target: &Target, errno: Errno) -> FabricError {
    match errno {
        Errno::ACCESS | Errno::PERM if matches!(target, Target::Unix(_)) => {
            let user = rustix::process::geteuid().as_raw();
            let remedy = "the permissions of its socket file or directory forbid it; its owner can let others in with \
                          --allow-user";
            FabricError::UserRefused { user, address: address.to_string(), remedy }
        }
        Errno::CONNREFUSED
        // It ended before it accepted this connection.
        | Errno::CONNRESET
        | Errno::NOENT
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::TIMEDOUT
        | Errno::TIME
        | Errno::NOTDIR
        | Errno::PROTOTYPE => {
            FabricError::NoMemoryNode { address: address.to_string(), path: target.to_string() }
        }
        Errno::ADDRNOTAVAIL => FabricError::NoLocalPort { address: address.to_string() },
        errno => FabricError::io("connecting to the memory node")(errno),
    }
}

/// Whether a target is only for this machine.
pub(crate) fn is_local(target: &Target) -> bool {
    match target {
        Target::Internet(address) => address.ip().is_loopback(),
        Target::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_at_all_addresses_keep_others_of_their_port_away() {
        let at = |text: &str| Target::Internet(text.parse().unwrap());
        let overlap = |one, other| at(one).overlaps(&at(other)) && at(other).overlaps(&at(one));
        assert!(overlap("127.0.0.1:1", "127.0.0.1:1") && overlap("0.0.0.0:1", "127.0.0.1:1"));
        assert!(overlap("[::]:1", "[::1]:1") && overlap("[::]:1", "127.0.0.1:1"));
        assert!(!overlap("127.0.0.1:1", "127.0.0.1:2") && !overlap("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!overlap("0.0.0.0:1", "[::1]:1"));
    }

    /// What the client had said came back as the welcome, and a memory node could not have its own
    /// port again.
    #[test]
    fn a_socket_that_is_connected_to_itself_counts_as_refused_and_gives_its_port_back() {
        let target = Target::Internet("127.0.0.1:0".parse().unwrap());
        let socket = open(&target).unwrap();
        bind(&socket, &target).unwrap();
        let port: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let soon = Deadline::after(Duration::from_secs(10));
        let connected = connect_by(socket, &Target::Internet(port), soon);
        assert_eq!(connected.map(drop), Err(Errno::CONNREFUSED));
        std::net::TcpListener::bind(port).unwrap();
    }

    /// A firewall forbids connections, too.
    #[test]
    fn permissions_of_socket_files_are_spoken_of_where_there_is_a_file() {
        let name = "tcp://127.0.0.1:1";
        let by_address = not_reached(&name, &Target::Internet("127.0.0.1:1".parse().unwrap()), Errno::PERM);
        assert!(!by_address.to_string().contains("socket file"), "{by_address}");
        let by_path = not_reached(&name, &Target::Unix("/here".into()), Errno::PERM);
        assert!(matches!(by_path, FabricError::UserRefused { .. }), "{by_path}");
        assert!(by_path.to_string().contains("--allow-user"), "{by_path}");
    }

    /// It counted as a memory node that has gone, and ended connections that were well.
    #[test]
    fn a_lack_of_local_ports_does_not_say_that_nobody_listens() {
        let name = "tcp://127.0.0.1:1";
        let target = Target::Internet("127.0.0.1:1".parse().unwrap());
        let error = not_reached(&name, &target, Errno::ADDRNOTAVAIL);
        assert!(matches!(error, FabricError::NoLocalPort { .. }), "{error}");
        assert_eq!(error.kind(), crate::ErrorKind::Retry);
    }
}
