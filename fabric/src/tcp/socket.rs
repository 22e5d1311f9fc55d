//! Sockets that never block.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::address::TcpAddress;
use crate::bell::timespec;
use crate::clock::Deadline;
use crate::credentials::peer_of;
use crate::error::FabricError;
use crate::target::{FLAGS, Target, connect, not_reached};

/// When a silent connection is first asked whether its peer is there, how often then, and how many
/// answers may be missing.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);
/// How long sent bytes may stay without an acknowledgement, in milliseconds.
const UNACKNOWLEDGED: u32 = 30_000;

/// The outcome of an attempt to move bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moved {
    /// The number of bytes moved, at least one.
    Bytes(usize),
    /// None now.
    Nothing,
    /// The peer has closed its end or is gone.
    Gone,
}

/// Sends what fits.
pub(super) fn send(socket: impl AsFd, bytes: &[u8]) -> Moved {
    loop {
        match rustix::net::send(&socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(0) | Err(Errno::AGAIN | Errno::NOBUFS) => return Moved::Nothing,
            Ok(sent) => return Moved::Bytes(sent),
            Err(Errno::INTR) => {}
            Err(_) => return Moved::Gone,
        }
    }
}

/// Receives what is there. The buffer must have room.
pub(super) fn receive(socket: impl AsFd, into: &mut [u8]) -> Moved {
    loop {
        match rustix::net::recv(&socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Moved::Gone,
            Ok((_, bytes)) => return Moved::Bytes(bytes),
            Err(Errno::AGAIN) => return Moved::Nothing,
            Err(Errno::INTR) => {}
            Err(_) => return Moved::Gone,
        }
    }
}

/// The outcome of a wait for a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ready {
    /// It may be read, or written if that was asked for, or has failed: try.
    Try,
    /// The deadline passed.
    TimedOut,
}

/// Sleeps until the socket can be read, or also written, or the deadline passes.
pub(super) fn wait(socket: impl AsFd, to_write: bool, deadline: Deadline) -> Ready {
    wait_for(socket, if to_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }, deadline)
}

/// Sleeps until the socket can be written, or the deadline passes.
pub(super) fn wait_to_send(socket: impl AsFd, deadline: Deadline) -> Ready {
    wait_for(socket, PollFlags::OUT, deadline)
}

fn wait_for(socket: impl AsFd, interest: PollFlags, deadline: Deadline) -> Ready {
    let timeout = deadline.remaining(Instant::now()).map(timespec);
    match poll(&mut [PollFd::new(&socket, interest)], timeout.as_ref()) {
        Ok(0) => Ready::TimedOut,
        // poll(2) of one valid descriptor fails for want of kernel memory or because of a signal.
        Ok(_) | Err(_) => Ready::Try,
    }
}

/// Sends small frames at once, and finds out about peers that are gone without a word.
pub(super) fn prepare(socket: impl AsFd, target: &Target) -> Result<(), FabricError> {
    let Target::Internet(_) = target else { return Ok(()) };
    let (idle, interval, count) = KEEPALIVE;
    sockopt::set_tcp_nodelay(&socket, true)
        .and_then(|()| sockopt::set_socket_keepalive(&socket, true))
        .and_then(|()| sockopt::set_tcp_keepidle(&socket, idle))
        .and_then(|()| sockopt::set_tcp_keepintvl(&socket, interval))
        .and_then(|()| sockopt::set_tcp_keepcnt(&socket, count))
        .and_then(|()| sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED))
        .map_err(FabricError::io("preparing a socket"))
}

/// A socket connected to a listener at one of an address's targets, and that target. One that is
/// silent leaves the others their share of the time. If all fail, the error is that of the first
/// one without a listener, else that of the first.
pub(super) fn reach(
    address: &TcpAddress,
    targets: &[Target],
    deadline: Deadline,
) -> Result<(OwnedFd, Target), FabricError> {
    let mut told: Option<FabricError> = None;
    for (at, target) in targets.iter().enumerate() {
        match connect(target, deadline.shared_by(targets.len() - at)) {
            Ok(socket) => {
                prepare(&socket, target)?;
                look_who_listens(&socket, address, target)?;
                return Ok((socket, target.clone()));
            }
            Err(Errno::TIME) if at + 1 == targets.len() => {
                return Err(FabricError::DeadlinePassed {
                    waiting_for: "the memory node to accept a connection",
                });
            }
            // No other one could do without.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                return Err(not_reached(address, target, errno));
            }
            Err(errno) => {
                let error = not_reached(address, target, errno);
                let is_nobody = |error: &FabricError| matches!(error, FabricError::NoMemoryNode { .. });
                if told.as_ref().is_none_or(|told| is_nobody(&error) && !is_nobody(told)) {
                    told = Some(error);
                }
            }
        }
    }
    // An address has a target.
    Err(told
        .unwrap_or_else(|| FabricError::NoMemoryNode { address: address.to_string(), path: String::new() }))
}

/// Refuses a listener at a unix socket that is neither this process's user nor root, nor the user
/// that the address names: others may have put a socket there.
fn look_who_listens(socket: &OwnedFd, address: &TcpAddress, target: &Target) -> Result<(), FabricError> {
    let Target::Unix(_) = target else { return Ok(()) };
    let user = peer_of(socket).map_err(FabricError::io("asking who the memory node is"))?.user;
    let own = rustix::process::geteuid().as_raw();
    if is_believed(address.owner(), own, user) {
        return Ok(());
    }
    let remedy = "tcp+unix:///PATH means a memory node of your own user or of root; write tcp+unix://UID@/PATH for another's";
    Err(FabricError::UserRefused { user, address: address.to_string(), remedy })
}

/// Whether a memory node of this user is the one that an address means.
fn is_believed(named: Option<u32>, own: u32, user: u32) -> bool {
    match named {
        Some(named) => user == named,
        None => user == own || user == 0,
    }
}

/// Accepts a connection: the socket, and what its peer is called; `None` if none waits.
pub(super) fn accept(listening: impl AsFd, at: &Target) -> Result<Option<(OwnedFd, Origin)>, Errno> {
    loop {
        let (socket, peer) = match rustix::net::acceptfrom_with(&listening, FLAGS) {
            Ok(accepted) => accepted,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let origin = match at {
            Target::Internet(_) => {
                peer.and_then(|peer| peer.try_into().ok()).map_or(Origin::Unknown, Origin::Internet)
            }
            Target::Unix(_) => match peer_of(&socket) {
                Ok(peer) => Origin::User(peer.user),
                // A peer whose user is unknown is not let in.
                Err(_) => continue,
            },
        };
        return Ok(Some((socket, origin)));
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Internet(std::net::SocketAddr),
    User(u32),
    Unknown,
}

/// The party that a connection counts for where each may have some: a user, or what one party has
/// of addresses, of IPv6 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Party {
    Network(IpAddr),
    User(u32),
    Unknown,
}

impl Origin {
    pub(super) fn party(&self) -> Party {
        match self {
            // An IPv4 address may come in IPv6's clothes.
            Self::Internet(address) => Party::Network(match address.ip().to_canonical() {
                IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
                v4 => v4,
            }),
            Self::User(user) => Party::User(*user),
            Self::Unknown => Party::Unknown,
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Internet(address) => address.fmt(f),
            Self::User(user) => write!(f, "a process of user {user}"),
            Self::Unknown => f.write_str("somebody"),
        }
    }
}

/// Bounds what the kernel keeps for a socket and for those that are accepted from it, each way.
pub(super) fn bound_buffers(socket: impl AsFd, bytes: usize) -> Result<(), Errno> {
    sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    sockopt::set_socket_recv_buffer_size(&socket, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{bind, open};
    use crate::tcp::{ConnectOptions, connect as connect_by_url};

    /// All of the time was the first one's.
    #[test]
    fn a_target_that_is_silent_leaves_others_of_its_name_their_share_of_the_time() {
        let here = || Target::Internet("127.0.0.1:0".parse().unwrap());
        let listen = |backlog| {
            let socket = open(&here()).unwrap();
            bind(&socket, &here()).unwrap();
            rustix::net::listen(&socket, backlog).unwrap();
            let at = rustix::net::getsockname(&socket).unwrap();
            (socket, Target::Internet(at.try_into().unwrap()))
        };
        let ((_full, silent), (_listening, good)) = (listen(0), listen(8));
        // A client that comes when its queue is full is not answered.
        let Target::Internet(address) = &silent else { unreachable!() };
        let crowd: Vec<OwnedFd> = (0..4).map(|_| open(&silent).unwrap()).collect();
        for socket in &crowd {
            let _ = rustix::net::connect(socket, address);
        }
        let name = "tcp://two-addresses.example:1".parse().unwrap();
        let (begun, within) = (Instant::now(), Duration::from_secs(4));
        let targets = [silent.clone(), good.clone()];
        let (_, reached) = reach(&name, &targets, Deadline::after(within)).unwrap();
        assert_eq!(reached, good);
        assert!(begun.elapsed() < within * 7 / 8, "{:?}", begun.elapsed());
        let soon = Deadline::after(Duration::from_millis(100));
        let error = reach(&name, std::slice::from_ref(&silent), soon).unwrap_err();
        assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
        // Errors of connecting name the address.
        let url = format!("tcp://{silent}");
        let soon =
            ConnectOptions { deadline: Deadline::after(Duration::from_millis(100)), ..Default::default() };
        let error = connect_by_url(&url.parse().unwrap(), soon).unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(&url), "{error}");
    }

    /// A target of a kind that there is not here ended the search.
    #[test]
    fn targets_that_fail_in_whatever_way_leave_others_of_their_name_their_turn() {
        let name: TcpAddress = "tcp://two-addresses.example:1".parse().unwrap();
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let good = Target::Internet(listening.local_addr().unwrap());
        // A path that is too long for any socket does not say that there is no listener.
        let odd = Target::Unix(std::path::PathBuf::from("/".repeat(200)));
        let within = || Deadline::after(Duration::from_secs(4));
        let (_, reached) = reach(&name, &[odd.clone(), good.clone()], within()).unwrap();
        assert_eq!(reached, good);
        drop(listening);
        let error = reach(&name, &[odd.clone(), good], within()).unwrap_err();
        assert!(matches!(error, FabricError::NoMemoryNode { .. }), "{error}");
        assert!(matches!(reach(&name, &[odd], within()), Err(FabricError::Io { .. })));
    }

    #[test]
    fn whoever_listens_at_a_path_is_believed_only_of_the_user_that_is_meant() {
        assert!(is_believed(None, 1000, 1000) && is_believed(None, 1000, 0));
        assert!(!is_believed(None, 1000, 1001) && !is_believed(None, 0, 1001));
        assert!(is_believed(Some(1001), 1000, 1001));
        assert!(!is_believed(Some(1001), 1000, 1000) && !is_believed(Some(1001), 1000, 0));
    }
}
