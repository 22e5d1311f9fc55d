//! The client's side: connecting, and the connection.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use zerocopy::IntoBytes;

use super::ShmAddress;
use super::handshake::{
    ADMITTED, Hello, MAGIC, NO_SUCH_REGION, OTHER_VERSION, PROTOCOL_VERSION, TOO_MANY_CLIENTS, USER_REFUSED,
    Welcome, receive_welcome,
};
use crate::bell::{Bell, timespec};
use crate::clock::Deadline;
use crate::credentials::peer_of;
use crate::error::FabricError;
use crate::mapped::{Anchor, Area, Link, MappedConnection, Parts};
use crate::memory::{Access, SharedMemory, cannot_shrink};
use crate::node_end::Watch;
use crate::region::RegionName;
use crate::ring::RingLayout;
use crate::target::{self, Target};

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The region to read. Default: the one with the empty name.
    pub region: RegionName,
    /// By when the memory node must have answered. Default: five seconds after the options were
    /// made.
    pub deadline: Deadline,
    /// The protocol version to announce; another than [`PROTOCOL_VERSION`] only to test the
    /// refusal.
    #[doc(hidden)]
    pub announce_version: u32,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            region: RegionName::default(),
            deadline: Deadline::after(Duration::from_secs(5)),
            announce_version: PROTOCOL_VERSION,
        }
    }
}

/// Connects to the memory node at `address`.
///
/// # Errors
/// [`NoMemoryNode`](FabricError::NoMemoryNode) if nothing listens there,
/// [`VersionMismatch`](FabricError::VersionMismatch), [`UserRefused`](FabricError::UserRefused),
/// [`NoSuchRegion`](FabricError::NoSuchRegion), [`TooManyClients`](FabricError::TooManyClients),
/// [`DeadlinePassed`](FabricError::DeadlinePassed) or [`NoWelcome`](FabricError::NoWelcome) if it
/// does not answer in time, [`Memory`](FabricError::Memory) if its memory cannot be mapped.
pub fn connect(address: &ShmAddress, options: ConnectOptions) -> Result<ShmConnection, FabricError> {
    connect_to(address, &options).map_err(|error| error.connecting(address))
}

fn connect_to(address: &ShmAddress, options: &ConnectOptions) -> Result<ShmConnection, FabricError> {
    let socket = reach(address, options)?;
    let user = peer_of(&socket).map_err(FabricError::io("asking who the memory node is"))?.user;
    if !address.believes(user, rustix::process::geteuid().as_raw()) {
        // Another user has put a socket where that user's memory node would be.
        let remedy = match address.owner() {
            Some(_) => {
                "a name means a memory node of your own user; write shm://NAME@UID, or shm:///path.sock, for another's"
            }
            None => {
                "the path is of a table's map, not the client's own: give the client that URL, too, to believe it"
            }
        };
        return Err(FabricError::UserRefused { user, address: address.to_string(), remedy });
    }
    let hello = Hello::new(options.announce_version, &options.region);
    let greeting = [hello.as_bytes(), options.region.as_bytes()].concat();
    match rustix::net::send(&socket, &greeting, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // One that lets this user not in says why before it hangs up, without listening.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(errno) => return Err(FabricError::io("greeting the memory node")(errno)),
    }
    let (welcome, fds) = await_welcome(&socket, address, options.deadline)?;
    check(&welcome, address, options)?;
    // Those of memory that may be changed come last, if there is any.
    let wanted = if welcome.scratch_len == 0 { 2 } else { 3 };
    if fds.len() != wanted {
        return Err(protocol(address, "it sent other descriptors than it said"));
    }
    establish(address, socket, &welcome, &fds)
}

/// A socket connected to the listener.
fn reach(address: &ShmAddress, options: &ConnectOptions) -> Result<OwnedFd, FabricError> {
    let mut places = address.places()?.into_iter();
    // There is always one.
    let first = reach_at(address, places.next().unwrap_or_default(), options.deadline);
    places.fold(first, |reached, path| match reached {
        Err(nobody @ FabricError::NoMemoryNode { .. }) => match reach_at(address, path, options.deadline) {
            // If no place has a listener, the first is the likelier one.
            Err(FabricError::NoMemoryNode { .. }) => Err(nobody),
            reached => reached,
        },
        reached => reached,
    })
}

fn reach_at(address: &ShmAddress, path: PathBuf, deadline: Deadline) -> Result<OwnedFd, FabricError> {
    let place = Target::Unix(path);
    target::connect(&place, deadline).map_err(|errno| match errno {
        Errno::TIME => FabricError::DeadlinePassed { waiting_for: "the memory node to accept clients" },
        errno => target::not_reached(address, &place, errno),
    })
}

fn await_welcome(
    socket: &OwnedFd,
    address: &ShmAddress,
    deadline: Deadline,
) -> Result<(Welcome, Vec<OwnedFd>), FabricError> {
    loop {
        let timeout = deadline.remaining(Instant::now()).map(timespec);
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => {
                return Err(FabricError::NoWelcome { address: address.to_string() });
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(FabricError::io("waiting for the memory node")(errno)),
        }
        return match receive_welcome(socket) {
            Ok((0, ..)) => Err(FabricError::Disconnected { peer: address.to_string().into() }),
            // The first 16 bytes tell versions apart whatever the rest looks like.
            Ok((len, welcome, fds)) if len == size_of::<Welcome>() || len >= 16 && fds.is_empty() => {
                Ok((welcome, fds))
            }
            Ok(_) => Err(protocol(address, "its welcome is too short")),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(errno) => Err(gone_or(errno, "receiving the memory node's welcome", address)),
        };
    }
}

fn check(welcome: &Welcome, address: &ShmAddress, options: &ConnectOptions) -> Result<(), FabricError> {
    if welcome.magic != MAGIC {
        return Err(protocol(address, "its welcome has another magic number"));
    }
    let (ours, theirs) = (options.announce_version, welcome.version);
    if theirs != ours || welcome.status == OTHER_VERSION {
        return Err(FabricError::VersionMismatch { peer: format!("memory node {address}"), ours, theirs });
    }
    let at = address.to_string();
    match welcome.status {
        ADMITTED => Ok(()),
        USER_REFUSED => Err(FabricError::UserRefused {
            user: u32::try_from(welcome.detail).unwrap_or(u32::MAX),
            address: at,
            remedy: "connect as its owner, or have it started with --allow-user for this user",
        }),
        NO_SUCH_REGION => Err(FabricError::NoSuchRegion { address: at, name: options.region.to_string() }),
        TOO_MANY_CLIENTS => Err(FabricError::TooManyClients { address: at, max: welcome.detail }),
        _ => Err(protocol(address, "its welcome has an unknown status")),
    }
}

fn protocol(address: &ShmAddress, what: &'static str) -> FabricError {
    FabricError::Protocol { peer: format!("the listener at {address}"), what }
}

fn gone_or(errno: Errno, doing: &'static str, address: &ShmAddress) -> FabricError {
    match errno {
        Errno::PIPE | Errno::CONNRESET => FabricError::Disconnected { peer: address.to_string().into() },
        other => FabricError::io(doing)(other),
    }
}

/// A connection to a memory node in another process.
///
/// A thread that sleeps until the socket closes makes [`is_alive`](crate::Connection::is_alive)
/// false when the memory node ends. The connection closes when it and all its endpoints have been
/// dropped.
pub type ShmConnection = MappedConnection;

/// Maps what the memory node handed over.
fn establish(
    address: &ShmAddress,
    socket: OwnedFd,
    welcome: &Welcome,
    fds: &[OwnedFd],
) -> Result<ShmConnection, FabricError> {
    let [region, ring, scratch @ ..] = fds else {
        return Err(protocol(address, "it sent no descriptors"));
    };
    // A region in a data folder is an ordinary file, of which this is its owner's promise.
    if [ring].into_iter().chain(scratch).any(|fd| !cannot_shrink(fd.as_fd())) {
        return Err(protocol(address, "its ring or scratch memory lies in a file that can be made shorter"));
    }
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let layout = RingLayout::new(size(welcome.request_capacity), size(welcome.reply_capacity))?;
    let region = SharedMemory::map(region, size(welcome.region_len), Access::ReadOnly)?;
    let ring = SharedMemory::map(ring, layout.len(), Access::ReadWrite)?;
    let mut areas =
        vec![Area::new(Arc::new(region), Access::ReadOnly), Area::new(Arc::new(ring), Access::ReadWrite)];
    for fd in scratch {
        let memory = SharedMemory::map(fd, size(welcome.scratch_len), Access::ReadWrite)?;
        areas.push(Area::new(Arc::new(memory), Access::ReadWrite));
    }
    let areas: Arc<[Area]> = areas.into();
    let node_process = peer_of(&socket).ok().and_then(|peer| peer.process);
    let link = Arc::new(Link::new(&address.to_string())?);
    let bell = Bell::new(socket);
    let watch: Arc<dyn Send + Sync + Anchor> = Arc::new(Watch::start(bell.clone(), Arc::clone(&link))?);
    Ok(MappedConnection::new(Parts {
        areas,
        link,
        layout,
        bell,
        incarnation: welcome.incarnation,
        creation: welcome.creation,
        node_process,
        anchor: Some(watch),
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::memory::HugePages;

    #[test]
    fn memory_that_its_node_can_make_shorter_is_not_mapped() {
        let layout = RingLayout::OURS;
        let sealed = || SharedMemory::create_memfd("sealed", layout.len(), HugePages::No).unwrap().1;
        let open = || {
            let fd = memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, layout.len() as u64).unwrap();
            fd
        };
        let mut welcome = Welcome::refusal(PROTOCOL_VERSION, ADMITTED, 0);
        for len in [&mut welcome.region_len, &mut welcome.scratch_len] {
            *len = layout.len() as u64;
        }
        welcome.request_capacity = layout.request_capacity() as u64;
        welcome.reply_capacity = layout.reply_capacity() as u64;
        let address = ShmAddress::at_path("/tmp/test.sock").unwrap();
        let connect = |fds: [OwnedFd; 3]| {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            establish(&address, ours.into(), &welcome, &fds)
        };
        // A region may lie in a data folder, where files are not sealed.
        connect([open(), sealed(), sealed()]).unwrap();
        for fds in [[sealed(), open(), sealed()], [sealed(), sealed(), open()]] {
            let error = connect(fds).unwrap_err();
            assert!(matches!(error, FabricError::Protocol { .. }), "{error}");
        }
    }
}
