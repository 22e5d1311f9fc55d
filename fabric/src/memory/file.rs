//! Memory in a file with a name, which outlives the process that writes it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use super::mapping::{os, round_up};
use super::{Access, HUGE_PAGE, HUGETLBFS_MAGIC, HugePages, MemoryError, SharedMemory};
use crate::process::{Wait, lock_holder};

/// Where a file lies: its path, or a folder that is open and the file's name within it. Symbolic
/// links that have the name are never followed.
#[derive(Clone, Copy, Debug)]
pub struct FileAt<'p> {
    folder: BorrowedFd<'p>,
    name: &'p Path,
    /// For messages.
    path: &'p Path,
}

impl<'p> FileAt<'p> {
    /// The file in this folder that has the last name of the path, which else is for messages.
    #[must_use]
    pub fn within(folder: BorrowedFd<'p>, path: &'p Path) -> Self {
        Self { folder, name: path.file_name().map_or(path, Path::new), path }
    }
}

/// The file at this path, whose folders may be symbolic links.
impl<'p, P: AsRef<Path> + ?Sized> From<&'p P> for FileAt<'p> {
    fn from(path: &'p P) -> Self {
        Self { folder: CWD, name: path.as_ref(), path: path.as_ref() }
    }
}

impl SharedMemory {
    /// Zeroed memory in a new file, of mode 0600, and the file's descriptor.
    ///
    /// The length is rounded up to whole pages of the file system, and [`len`](Self::len) is the
    /// rounded one. The file system is asked to set all of it aside now, because a disk that fills
    /// up later would kill the process that stores (SIGBUS); where it cannot do that, the file is
    /// sparse. What is stored is in the file at once as far as other processes and a successor of
    /// this one are concerned, in program order; on the medium it is after [`sync`](Self::sync).
    ///
    /// The file is locked (flock(2), exclusive) until the memory, the descriptor and all duplicates
    /// are gone, so that it has one memory node at a time. Huge pages come with the file system:
    /// reserved ones from a hugetlbfs, merged ones from a tmpfs if the kernel's settings allow.
    ///
    /// # Errors
    /// [`FileExists`](MemoryError::FileExists), [`NoSpace`](MemoryError::NoSpace),
    /// [`NoHugePages`](MemoryError::NoHugePages) and
    /// [`NotHugeFileSystem`](MemoryError::NotHugeFileSystem),
    /// [`BadLength`](MemoryError::BadLength), or what the operating system says; the file is
    /// removed again.
    pub fn create_file<'p>(
        at: impl Into<FileAt<'p>>,
        len: usize,
        huge: HugePages,
    ) -> Result<(Self, OwnedFd), MemoryError> {
        Self::create_file_with(at.into(), len, huge, Space::Now)
    }

    /// As [`create_file`](Self::create_file), without setting space aside:
    /// [`reserve`](Self::reserve) does that for a stretch, which must come before the first store
    /// to it. A file in reserved huge pages is set aside whole, as mapping it does.
    ///
    /// # Errors
    /// As for [`create_file`](Self::create_file).
    pub fn create_sparse_file<'p>(
        at: impl Into<FileAt<'p>>,
        len: usize,
        huge: HugePages,
    ) -> Result<(Self, OwnedFd), MemoryError> {
        Self::create_file_with(at.into(), len, huge, Space::Later)
    }

    fn create_file_with(
        FileAt { folder, name, path }: FileAt<'_>,
        len: usize,
        huge: HugePages,
        space: Space,
    ) -> Result<(Self, OwnedFd), MemoryError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd =
            retry_on_intr(|| rustix::fs::openat(folder, name, flags, mode)).map_err(|errno| match errno {
                Errno::EXIST => MemoryError::FileExists { path: text(path) },
                errno => file(path, "creating")(errno),
            })?;
        let outcome = Self::fill_new_file(path, fd, len, huge, space);
        if outcome.is_err() {
            // Made by this call, and of no use.
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
        outcome
    }

    /// Has the file system set space aside for `len` bytes at `offset` of a file; nothing happens
    /// for memory without a named file, and where the file system cannot do that.
    ///
    /// # Errors
    /// [`NoSpace`](MemoryError::NoSpace), or what the operating system says.
    pub fn reserve(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        let Some(file) = self.file.as_ref() else { return Ok(()) };
        let len = len.min((self.mapped as u64).saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOMEM)) => {
                let (path, len) =
                    ("the file of a region".to_owned(), usize::try_from(len).unwrap_or(usize::MAX));
                Err(MemoryError::NoSpace { path, len, source: errno.into() })
            }
            Err(errno) => Err(os("setting space aside in a memory file", self.len)(errno)),
        }
    }

    fn fill_new_file(
        path: &Path,
        fd: OwnedFd,
        len: usize,
        huge: HugePages,
        space: Space,
    ) -> Result<(Self, OwnedFd), MemoryError> {
        lock(path, &fd)?;
        let file_system = rustix::fs::fstatfs(&fd).map_err(file(path, "examining"))?;
        let is_huge = file_system.f_type as i64 == HUGETLBFS_MAGIC;
        if huge == HugePages::Required && !is_huge {
            return Err(MemoryError::NotHugeFileSystem { path: text(path) });
        }
        let page = if is_huge { file_system.f_bsize as usize } else { rustix::param::page_size() };
        let len = round_up(len, page)?;
        let refused = |errno: Errno| match errno {
            Errno::NOSPC | Errno::NOMEM if is_huge => {
                MemoryError::NoHugePages { len, pages: len.div_ceil(HUGE_PAGE), source: errno.into() }
            }
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                MemoryError::NoSpace { path: text(path), len, source: errno.into() }
            }
            errno => file(path, "setting space aside in")(errno),
        };
        let set_aside = match space {
            Space::Later if !is_huge => Err(Errno::NOSYS),
            _ => retry_on_intr(|| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64)),
        };
        match set_aside {
            Ok(()) => {}
            // The file system cannot set space aside, or need not yet.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                if space == Space::Later {
                    // But for the first page: a store to one that a full disk lacks would end the
                    // process.
                    let first =
                        retry_on_intr(|| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, page as u64));
                    first
                        .or_else(|errno| match errno {
                            Errno::OPNOTSUPP | Errno::NOSYS => Ok(()),
                            errno => Err(errno),
                        })
                        .map_err(refused)?;
                }
                retry_on_intr(|| rustix::fs::ftruncate(&fd, len as u64)).map_err(refused)?;
            }
            Err(errno) => return Err(refused(errno)),
        }
        let mut memory = Self::map_file(path, &fd, len, Access::ReadWrite)?;
        if huge == HugePages::IfAvailable {
            memory.advise_huge();
        }
        Ok((memory, fd))
    }

    /// Maps all of a file, and returns its descriptor too. For writing, the file is
    /// locked as by [`create_file`](Self::create_file); for reading it is not, and may be written
    /// meanwhile.
    ///
    /// The file must not shrink while it is mapped: touching bytes past its end raises SIGBUS.
    ///
    /// # Errors
    /// [`FileInUse`](MemoryError::FileInUse) with the process that has it,
    /// [`NotMemory`](MemoryError::NotMemory) if it is empty or no plain file, or what the operating
    /// system says.
    pub fn open_file<'p>(at: impl Into<FileAt<'p>>, access: Access) -> Result<(Self, OwnedFd), MemoryError> {
        let FileAt { folder, name, path } = at.into();
        let rights = match access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        // Opening a pipe that another user has put there must not wait for its other end.
        let flags = rights | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = retry_on_intr(|| rustix::fs::openat(folder, name, flags, Mode::empty()));
        let fd = opened.map_err(file(path, "opening"))?;
        let stat = rustix::fs::fstat(&fd).map_err(file(path, "examining"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotMemory { path: text(path), what: "is not a plain file" });
        }
        if access == Access::ReadWrite {
            lock(path, &fd)?;
        }
        // After the lock: a process that is creating the file sizes it under its own lock.
        let stat = rustix::fs::fstat(&fd).map_err(file(path, "examining"))?;
        if stat.st_size <= 0 {
            let what = "is empty: whoever created it was interrupted";
            return Err(MemoryError::NotMemory { path: text(path), what });
        }
        let len = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
        let memory = Self::map_file(path, &fd, len, access)?;
        Ok((memory, fd))
    }

    fn map_file(path: &Path, fd: &OwnedFd, len: usize, access: Access) -> Result<Self, MemoryError> {
        let mut memory = Self::map(fd, len, access)?;
        memory.file = Some(
            rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(file(path, "duplicating the descriptor of"))?,
        );
        Ok(memory)
    }

    /// Which file the memory lies in; `None` for memory without a named file.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn file_identity(&self) -> Result<Option<FileIdentity>, MemoryError> {
        let Some(file) = &self.file else { return Ok(None) };
        let stat = rustix::fs::fstat(file).map_err(os("examining a memory file", self.len))?;
        // File systems and kernels that do not know when a file was made leave it open.
        let born = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
            .ok()
            .filter(|found| found.stx_mask & StatxFlags::BTIME.bits() != 0)
            .map_or(0, |found| {
                found.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(found.stx_btime.tv_nsec)
            });
        Ok(Some(FileIdentity { device: stat.st_dev, inode: stat.st_ino, born }))
    }

    /// Waits until everything stored so far is on the medium of the file. Memory without a named
    /// file, and files on tmpfs or hugetlbfs, have no medium: nothing happens. Costs a write of
    /// everything changed since the last time.
    ///
    /// # Errors
    /// What the operating system says; what is on the medium is then unknown.
    pub fn sync(&self) -> Result<(), MemoryError> {
        // Pages dirtied through a shared mapping are the file's dirty pages: no msync(2) is needed.
        match self.file.as_ref().map(|file| retry_on_intr(|| rustix::fs::fdatasync(file))) {
            // hugetlbfs does not know the call.
            None | Some(Ok(()) | Err(Errno::INVAL)) => Ok(()),
            Some(Err(errno)) => Err(os("syncing a memory file", self.len)(errno)),
        }
    }
}

/// Which file it is: a copy of a file is another, whatever its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device of its file system.
    pub device: u64,
    /// Its number there, which another file may get when it is gone.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 where the file system does not tell.
    pub born: u64,
}

/// When the file system sets the space of a new file aside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Now,
    Later,
}

/// Locks a file for its one writer. A process that is ending has the lock a moment longer.
fn lock(path: &Path, fd: &OwnedFd) -> Result<(), MemoryError> {
    let mut wait = Wait::begin();
    loop {
        match retry_on_intr(|| rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {
                let holder = lock_holder(fd);
                if !wait.goes_on(holder) {
                    return Err(MemoryError::FileInUse { path: text(path), holder });
                }
            }
            Err(errno) => return Err(file(path, "locking")(errno)),
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn file(path: &Path, doing: &'static str) -> impl Fn(Errno) -> MemoryError {
    move |errno| MemoryError::File { doing, path: text(path), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<MemoryError>() <= 56, "{}", size_of::<MemoryError>());
    }
}
