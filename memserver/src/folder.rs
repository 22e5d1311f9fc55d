//! Open folders, and the files in them.
//!
//! If others can write to a folder on its way, a path can lead elsewhere from one call to the next.
//! So each folder that a memory node is told to use is opened once, and its owner and mode are
//! checked. From there everything is reached through descriptors, by plain names, without following
//! symbolic links.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, StatVfs};
use rustix::io::{Errno, retry_on_intr};

/// Symbolic links on the way to a folder; more are treated as a loop, as the kernel does.
const MOST_LINKS: usize = 40;
/// Folders that a memory node creates are private to its user.
const PRIVATE: Mode = Mode::RWXU;
/// Bits of a mode: writing by the group and by others; and that names in a folder are only their
/// owners' to remove.
const WRITTEN_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// What helps against a failed call.
fn remedy_of(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on its file system, or use one that has some"
        }
        _ => "use one that this user can write to, on a file system that is mounted read-write",
    }
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A system call failed.
    #[error(
        "the folder {folder} cannot be used: {doing} failed ({source}); {remedy}",
        folder = .folder.display(), remedy = remedy_of(source)
    )]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Other users could replace it, or write to it.
    #[error(
        "the folder {folder} is not safe to use: {place} {what} (owner {owner}, mode {mode:o}, this is user {user}); {remedy}",
        folder = .folder.display(), place = .place.display(), user = rustix::process::geteuid().as_raw()
    )]
    Unsafe {
        /// The folder.
        folder: PathBuf,
        /// The unsafe part: the folder, or one on the path to it.
        place: PathBuf,
        /// What is wrong with it.
        what: &'static str,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// What helps.
        remedy: &'static str,
    },
}

impl FolderError {
    pub(crate) fn new(folder: impl Into<PathBuf>, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let folder = folder.into();
        move |source| Self::Io { folder, doing, source }
    }
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { source, .. } => source,
            error @ FolderError::Unsafe { .. } => Self::new(io::ErrorKind::PermissionDenied, error),
        }
    }
}

/// A folder that is open. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

impl Folder {
    /// The folder that the operator names, made if it is not there, with those on the way to it.
    ///
    /// It must be this user's or root's, and nobody else may write to it unless only owners may
    /// remove what lies in it, as in `/tmp` and `/dev/shm`. On the way to it symbolic links are
    /// followed that are this user's or root's.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn named(path: &Path) -> Result<Self, FolderError> {
        let fd = Walk::begin(path, sync_names)?.end()?;
        let folder = Self { fd: Arc::new(fd), path: path.to_owned() };
        let stat = folder.stat()?;
        folder.check_owner(&stat, true)?;
        let mode = stat.st_mode & 0o7777;
        if mode & WRITTEN_BY_OTHERS != 0 && mode & STICKY == 0 {
            return Err(folder.is_unsafe(
                &stat,
                "can be written by other users",
                "take that right away from them (chmod go-w), or name a folder within it",
            ));
        }
        Ok(folder)
    }

    /// A folder within it, which must be this user's alone.
    ///
    /// # Errors
    /// It is not there, a symbolic link, or not safe.
    pub(crate) fn child(&self, name: &str) -> Result<Self, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()));
        let fd = match opened {
            Ok(fd) => fd,
            Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => return Err(self.not_a_folder(name, path, errno)),
            Err(errno) => return Err(FolderError::new(path, "opening it")(errno.into())),
        };
        let folder = Self { fd: Arc::new(fd), path };
        let stat = folder.stat()?;
        folder.check_owner(&stat, false)?;
        if stat.st_mode & WRITTEN_BY_OTHERS != 0 {
            let remedy = "take that right away from them (chmod go-w), once nothing in it is theirs";
            return Err(folder.is_unsafe(&stat, "can be written by other users", remedy));
        }
        Ok(folder)
    }

    /// As [`child`](Self::child), made durably if it is not there.
    ///
    /// # Errors
    /// As there, or it cannot be made.
    pub(crate) fn make_child(&self, name: &str) -> Result<Self, FolderError> {
        match rustix::fs::mkdirat(&self.fd, name, PRIVATE) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(FolderError::new(self.path.join(name), "making it")(errno.into())),
        }
        self.child(name)
    }

    /// Why something within it that should be a folder is none.
    fn not_a_folder(&self, name: &str, path: PathBuf, errno: Errno) -> FolderError {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_link(&stat) => {
                let what = "is a symbolic link";
                let remedy = "remove the link, or put the folder that it names in its place";
                unsafe_place(path.clone(), path, &stat, what, remedy)
            }
            _ => FolderError::new(path, "opening it")(errno.into()),
        }
    }

    /// Where it lies, as far as that is known: for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn stat(&self) -> Result<Stat, FolderError> {
        rustix::fs::fstat(&self.fd).map_err(|e| FolderError::new(&self.path, "examining it")(e.into()))
    }

    fn check_owner(&self, stat: &Stat, or_root: bool) -> Result<(), FolderError> {
        if is_ours(stat) || or_root && stat.st_uid == 0 {
            return Ok(());
        }
        let remedy = "give it to this user (chown), or name another one";
        Err(self.is_unsafe(stat, "belongs to another user", remedy))
    }

    fn is_unsafe(&self, stat: &Stat, what: &'static str, remedy: &'static str) -> FolderError {
        unsafe_place(self.path.clone(), self.path.clone(), stat, what, remedy)
    }

    /// Makes its names durable.
    pub(crate) fn sync(&self) -> Result<(), FolderError> {
        #[cfg(test)]
        tests::before_sync(&self.path);
        retry_on_intr(|| rustix::fs::fsync(&self.fd))
            .map_err(|e| FolderError::new(&self.path, "syncing it")(e.into()))
    }

    /// Whether there is something of this name.
    ///
    /// # Errors
    /// It cannot be told: what is not seen may be there.
    pub(crate) fn has(&self, name: &str) -> Result<bool, FolderError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(FolderError::new(self.path.join(name), "looking for it")(errno.into())),
        }
    }

    /// Bytes of the file of this name.
    pub(crate) fn len(&self, name: &str) -> io::Result<u64> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Bytes that this user may still write to its file system, if that tells.
    pub(crate) fn room(&self) -> io::Result<Option<u64>> {
        Ok(room_of(&rustix::fs::fstatvfs(&self.fd)?, rustix::process::geteuid().is_root()))
    }

    /// The names in it that are UTF-8, in no order; others are none of ours.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let names = entries(self.fd.as_fd())?.into_iter();
        Ok(names.filter_map(|name| name.into_string().ok()).collect())
    }

    /// Opens a file within it.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(File::from(retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, mode))?))
    }

    /// Gives something within it another name, in place of a file that had it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file.
    pub(crate) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes what has this name, and if it is a folder all that lies in it. Symbolic links go
    /// themselves, not what they name.
    pub(crate) fn remove_all(&self, name: &str) -> Result<(), FolderError> {
        let path = || self.path.join(name);
        let name = CString::new(name).map_err(|e| FolderError::new(path(), "removing it")(e.into()))?;
        remove_in(self.fd.as_fd(), &name).map_err(|e| FolderError::new(path(), "removing it")(e.into()))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Bytes that a user may still write to a file system. One that does not tell has zeros for
/// everything.
fn room_of(told: &StatVfs, is_root: bool) -> Option<u64> {
    // What a file system keeps for root is there for root.
    let blocks = if is_root { told.f_bfree } else { told.f_bavail };
    (told.f_blocks > 0).then(|| blocks.saturating_mul(told.f_frsize))
}

fn remove_in(folder: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // A folder; Linux says the one, others the other.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    for entry in entries(inner.as_fd())? {
        remove_in(inner.as_fd(), &entry)?;
    }
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// The names in a folder but for itself and its parent.
fn entries(folder: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Makes the names in a folder durable.
fn sync_names(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    match retry_on_intr(|| rustix::fs::fsync(folder)) {
        // A file system without a medium.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// On the way to a folder, name by name.
struct Walk<'p, S> {
    /// Where it leads.
    path: &'p Path,
    /// How far it has come.
    at: OwnedFd,
    /// The same, for messages.
    shown: PathBuf,
    left: VecDeque<OsString>,
    links: usize,
    /// Makes the names in a folder durable in which one was made.
    sync: S,
}

impl<'p, S: FnMut(BorrowedFd<'_>) -> Result<(), Errno>> Walk<'p, S> {
    fn begin(path: &'p Path, sync: S) -> Result<Self, FolderError> {
        let shown = PathBuf::from(if path.is_absolute() { "/" } else { "." });
        let at = pass(CWD, shown.as_os_str()).map_err(|e| FolderError::new(path, "opening it")(e.into()))?;
        Ok(Self { path, at, shown, left: names_of(path), links: 0, sync })
    }

    fn end(mut self) -> Result<OwnedFd, FolderError> {
        let path = self.path;
        let failed = |doing| move |errno: Errno| FolderError::new(path, doing)(errno.into());
        while let Some(name) = self.left.pop_front() {
            match pass(self.at.as_fd(), &name) {
                Ok(next) => {
                    self.at = next;
                    self.shown.push(name);
                }
                Err(Errno::NOENT) => {
                    self.make(&name).map_err(failed("making it"))?;
                    self.left.push_front(name);
                }
                Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => self.follow(&name, errno)?,
                Err(errno) => return Err(failed("opening it")(errno)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.at, ".", flags, Mode::empty()).map_err(failed("opening it"))
    }

    /// Makes a folder here that is not there, and makes its name durable.
    fn make(&mut self, name: &OsStr) -> Result<(), Errno> {
        match rustix::fs::mkdirat(&self.at, name, PRIVATE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.at, ".", flags, Mode::empty()) {
            Ok(parent) => (self.sync)(parent.as_fd()),
            // Writing a folder takes no right to read it. Its names reach the disk in the file
            // system's own time.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Follows a symbolic link, if it belongs to this user or root.
    fn follow(&mut self, name: &OsStr, errno: Errno) -> Result<(), FolderError> {
        let path = self.path;
        let failed = |errno: Errno| FolderError::new(path, "opening it")(errno.into());
        let stat = rustix::fs::statat(&self.at, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if !is_link(&stat) {
            return Err(failed(errno));
        }
        if !is_ours(&stat) && stat.st_uid != 0 {
            let what = "is another user's symbolic link";
            let remedy = "remove it, or name the folder that it leads to";
            return Err(unsafe_place(path.to_owned(), self.shown.join(name), &stat, what, remedy));
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(failed(Errno::LOOP));
        }
        let target = rustix::fs::readlinkat(&self.at, name, Vec::new()).map_err(failed)?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.at = pass(CWD, OsStr::new("/")).map_err(failed)?;
            self.shown = PathBuf::from("/");
        }
        for name in names_of(&target).into_iter().rev() {
            self.left.push_front(name);
        }
        Ok(())
    }
}

/// Opens a folder on the way to another.
fn pass(folder: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty()))
}

fn names_of(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

fn is_link(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

fn unsafe_place(
    folder: PathBuf,
    place: PathBuf,
    stat: &Stat,
    what: &'static str,
    remedy: &'static str,
) -> FolderError {
    let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    FolderError::Unsafe { folder, place, what, owner, mode, remedy }
}

#[cfg(test)]
pub(crate) mod tests;
