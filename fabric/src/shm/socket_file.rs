//! The socket file of a memory node: its place, its owner, and whether a process still listens at
//! it.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::AddressError;
use crate::clock::Deadline;
use crate::credentials::peer_of;
use crate::process::{Wait, lock_holder};
use crate::target::{self, Target};

/// Why a memory node cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address over TCP cannot be used.
    #[error(transparent)]
    Tcp(#[from] crate::tcp::TcpAddressError),
    /// The network card cannot be used.
    #[error(transparent)]
    Card(Box<crate::rdma::RdmaError>),
    /// There can be no TLS at the address.
    #[error(transparent)]
    Tls(#[from] crate::tcp::TlsError),
    /// It cannot be done as asked: why, and the remedy.
    #[error("{0}")]
    Unfit(String),
    /// Another memory node listens there.
    #[error(
        "{address} is served by {}; stop it or listen at another address",
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The address asked for.
        address: String,
        /// The other's process id, if known.
        pid: Option<u32>,
    },
    /// The operating system refused something else.
    #[error("{doing} {path} failed: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file concerned.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },
}

pub(crate) fn os(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> ListenError {
    let path = path.display().to_string();
    move |errno| ListenError::Io { doing, path, source: errno.into() }
}

fn no_directory(socket_path: &Path) -> ListenError {
    let (directory, path) = (socket_path.parent().unwrap_or(Path::new("/")).display(), socket_path.display());
    ListenError::Unfit(format!(
        "there is no directory {directory} for socket {path}; make it, or listen at a path in one that there is"
    ))
}

/// Refuses an address that is a name of another user's, `owner`.
pub(crate) fn refuse_others_name(address: &dyn fmt::Display, owner: Option<u32>) -> Result<(), ListenError> {
    let user = rustix::process::geteuid().as_raw();
    match owner.filter(|owner| *owner != user) {
        None => Ok(()),
        Some(owner) => Err(ListenError::Unfit(format!(
            "{address} names a memory node of user {owner}, and this is user {user}; leave `@{owner}` away"
        ))),
    }
}

/// Who may pass through a directory of named sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passage {
    /// Only its owner.
    Private,
    /// All users that know the name of a socket in it.
    Open,
}

impl Passage {
    fn mode(self) -> u32 {
        match self {
            Self::Private => 0o700,
            Self::Open => 0o711,
        }
    }
}

/// Makes the directory of named sockets, and makes sure that only this user can put sockets there.
pub(super) fn prepare_directory(directory: &Path, passage: Passage) -> Result<(), ListenError> {
    let path = || directory.display().to_string();
    let failed = |doing| move |source| ListenError::Io { doing, path: path(), source };
    match std::fs::DirBuilder::new().mode(passage.mode()).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(failed("creating directory")(source)),
    }
    let found = std::fs::symlink_metadata(directory).map_err(failed("examining directory"))?;
    let what = match found {
        _ if !found.is_dir() => "is not a directory",
        _ if found.uid() != rustix::process::geteuid().as_raw() => "belongs to another user",
        _ if found.mode() & 0o077 & !passage.mode() != 0 => "is open to other users",
        // The process's mask may have taken something from the mode.
        _ if found.mode() & 0o777 != passage.mode() => {
            let permissions = std::fs::Permissions::from_mode(passage.mode());
            return std::fs::set_permissions(directory, permissions)
                .map_err(failed("setting the permissions of"));
        }
        _ => return Ok(()),
    };
    Err(ListenError::Unfit(format!(
        "directory {} {what}; remove it, set XDG_RUNTIME_DIR to a directory of your own, or listen at \
         shm:///absolute/path.sock",
        path()
    )))
}

/// The mode of a socket file. Who may connect is decided by the peer's credentials; this only
/// spares others the attempt.
pub(crate) fn socket_mode(lets_others_in: bool) -> Mode {
    Mode::from_raw_mode(if lets_others_in { 0o666 } else { 0o600 })
}

/// Has a socket's file begin with this mode when it is bound: Linux gives it what the socket itself
/// has, but for what the process's mask takes away. So it is not open to other users for a moment.
pub(crate) fn prepare_mode(socket: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::fchmod(socket, mode)
}

/// Gives a socket file that was bound the mode, if the process's mask has taken something from it.
/// No link is followed that another user has put in its place meanwhile, where others may write to
/// the directory.
pub(crate) fn give_mode(path: &Path, mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if !is_socket || found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::NOTSOCK);
    }
    if Mode::from_raw_mode(found.st_mode & 0o777) == mode {
        return Ok(());
    }
    // What was looked at, and not what has its name by now.
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
}

pub(super) fn open_socket(path: &Path, mode: Mode) -> Result<OwnedFd, ListenError> {
    let place = Target::Unix(path.to_owned());
    let socket = target::open(&place).map_err(os("creating the socket", path))?;
    prepare_mode(&socket, mode).map_err(os("setting the permissions of", path))?;
    target::bind(&socket, &place).map_err(os("binding the socket", path))?;
    let listening = give_mode(path, mode)
        .map_err(os("setting the permissions of", path))
        .and_then(|()| rustix::net::listen(&socket, 128).map_err(os("listening at", path)));
    match listening {
        Ok(()) => Ok(socket),
        Err(error) => {
            let _ = std::fs::remove_file(path);
            Err(error)
        }
    }
}

/// Removes a socket file without a listener; we hold the lock, so none is about to come.
pub(crate) fn remove_stale(path: &Path, address: &dyn fmt::Display) -> Result<(), ListenError> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => {
            let path = path.display();
            return Err(ListenError::Unfit(format!(
                "{path} exists and is not a socket; remove it or listen at another address"
            )));
        }
        _ => {}
    }
    // A process that is being taken down may have given the lock up and the socket not yet.
    let mut wait = Wait::begin();
    while let Probe::Live(pid) = probe(path) {
        if !wait.goes_on(pid) {
            return Err(ListenError::InUse { address: address.to_string(), pid });
        }
    }
    std::fs::remove_file(path).map_err(|source| ListenError::Io {
        doing: "removing the stale socket",
        path: path.display().to_string(),
        source,
    })
}

enum Probe {
    Live(Option<u32>),
    Dead,
}

/// The process that listens at a socket file, if there is one that is known.
pub(super) fn listener(path: &Path) -> Option<u32> {
    match probe(path) {
        Probe::Live(pid) => pid,
        Probe::Dead => None,
    }
}

/// Whether a process listens at a socket file, and which.
fn probe(path: &Path) -> Probe {
    match target::connect(&Target::Unix(path.to_owned()), Deadline::at(Instant::now())) {
        Ok(socket) => Probe::Live(peer_of(&socket).ok().and_then(|peer| peer.process)),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Probe::Dead,
        // A full queue, or no permission: there is a listener.
        Err(_) => Probe::Live(None),
    }
}

/// Exclusive right to a socket path: an advisory lock on `PATH.lock`, which the kernel drops with
/// the process. Two memory nodes that start at the same time could otherwise each take the other's
/// fresh socket for a stale one.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    _file: OwnedFd,
}

impl PathLock {
    /// Takes the right to `socket_path`. Its holder listens at one of `places`.
    pub(crate) fn take(
        socket_path: &Path,
        address: &dyn fmt::Display,
        places: &[&Path],
    ) -> Result<Self, ListenError> {
        let mut path = socket_path.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let mut wait = Wait::begin();
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Err(no_directory(socket_path)),
                Err(errno) => return Err(os("opening lock file", &path)(errno)),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let pid = lock_holder(&file).or_else(|| places.iter().find_map(|place| listener(place)));
                    if wait.goes_on(pid) {
                        continue;
                    }
                    return Err(ListenError::InUse { address: address.to_string(), pid });
                }
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(os("locking", &path)(errno)),
            }
            // The previous holder removes the file: a lock on a removed file is worth nothing.
            let held = rustix::fs::fstat(&file).map_err(os("examining lock file", &path))?;
            if std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == held.st_ino) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Before the lock is dropped, so that no other process can hold it meanwhile.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").mode() & 0o777
    }

    #[test]
    fn a_link_in_place_of_a_socket_leads_to_no_other_file() {
        let place = tempfile::tempdir().expect("a directory");
        let [socket, precious] = ["a.sock", "precious"].map(|name| place.path().join(name));
        let _bound = UnixListener::bind(&socket).expect("bound");
        for mode in [0o600, 0o666] {
            give_mode(&socket, Mode::from_raw_mode(mode)).expect("a socket");
            assert_eq!(mode_of(&socket), mode);
        }
        fs::write(&precious, "somebody's").expect("written");
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).expect("its owner");
        fs::remove_file(&socket).expect("it is there");
        for is_symbolic in [true, false] {
            let put = if is_symbolic {
                std::os::unix::fs::symlink(&precious, &socket)
            } else {
                fs::hard_link(&precious, &socket)
            };
            put.expect("linked");
            give_mode(&socket, Mode::from_raw_mode(0o666)).expect_err("no socket");
            assert_eq!(mode_of(&precious), 0o600);
            fs::remove_file(&socket).expect("it is there");
        }
    }
}
