//! Mapping memory: of this process, of a memory file, of any file; and unmapping it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{Access, HUGE_PAGE, HUGETLBFS_MAGIC, HugePages, MemoryError, Pages, SharedMemory, huge};

impl SharedMemory {
    /// Zeroed memory of this process, of ordinary pages.
    ///
    /// # Errors
    /// If `len` is zero or the operating system has no such memory.
    pub fn anonymous(len: usize) -> Result<Self, MemoryError> {
        Self::anonymous_with(len, HugePages::No)
    }

    /// Zeroed memory of this process.
    ///
    /// # Errors
    /// If `len` is zero, the operating system has no such memory, or huge pages are required and
    /// none are free.
    pub fn anonymous_with(len: usize, huge: HugePages) -> Result<Self, MemoryError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        if huge.wants_reserved() {
            let mapped = round_up(len, HUGE_PAGE)?;
            // Without NORESERVE: a missing page must fail here, not kill the process at first
            // touch.
            let reserved = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
            match map_anonymous(mapped, reserved) {
                Ok(base) => {
                    let mut memory = Self::mapping(base, len, mapped, Access::ReadWrite, Pages::Huge);
                    memory.is_anonymous = true;
                    return Ok(memory);
                }
                Err(errno) if huge == HugePages::Required => return Err(no_huge_pages(len, errno)),
                Err(_) => {}
            }
        }
        let mapped = round_up(len, rustix::param::page_size())?;
        let base = map_anonymous(mapped, flags).map_err(os("mapping", len))?;
        let mut memory = Self::mapping(base, len, mapped, Access::ReadWrite, Pages::Ordinary);
        memory.is_anonymous = true;
        if huge == HugePages::IfAvailable {
            memory.advise_huge();
        }
        Ok(memory)
    }

    /// Zeroed memory that can be handed to other processes by its descriptor: a memfd, which needs
    /// no `/dev/shm`. It is sealed against shrinking, so that no other process can make an access
    /// fault.
    ///
    /// # Errors
    /// If `len` is zero, the operating system has no such memory, or huge pages are required and
    /// none are free.
    pub fn create_memfd(name: &str, len: usize, huge: HugePages) -> Result<(Self, OwnedFd), MemoryError> {
        if huge.wants_reserved() {
            let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
            match Self::sealed_memfd(name, len, round_up(len, HUGE_PAGE)?, flags) {
                Ok((mut memory, fd)) => {
                    memory.pages = Pages::Huge;
                    return Ok((memory, fd));
                }
                Err(MemoryError::Os { source, .. }) if huge == HugePages::Required => {
                    return Err(MemoryError::NoHugePages { len, pages: len.div_ceil(HUGE_PAGE), source });
                }
                Err(error @ MemoryError::BadLength { .. }) => return Err(error),
                Err(_) => {}
            }
        }
        let mapped = round_up(len, rustix::param::page_size())?;
        let (mut memory, fd) = Self::sealed_memfd(name, len, mapped, MemfdFlags::empty())?;
        match huge {
            HugePages::IfAvailable => memory.advise_huge(),
            HugePages::Merged => memory.pages = Pages::Advised,
            HugePages::No | HugePages::Required => {}
        }
        Ok((memory, fd))
    }

    fn sealed_memfd(
        name: &str,
        len: usize,
        mapped: usize,
        extra: MemfdFlags,
    ) -> Result<(Self, OwnedFd), MemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | extra;
        let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            // Kernels before 6.3 do not know the flag.
            .or_else(|_| rustix::fs::memfd_create(name, flags))
            .map_err(os("creating a memory file", len))?;
        rustix::fs::ftruncate(&fd, mapped as u64).map_err(os("sizing a memory file", len))?;
        // Nor may a process that shares it make it longer: to punch gigabytes out of it takes
        // seconds, for which all who touch it wait. Nor may it seal it against its owner's stores.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(os("sealing a memory file", len))?;
        let memory = Self::map(fd.as_fd(), len, Access::ReadWrite)?;
        Ok((memory, fd))
    }

    /// Maps the first `len` bytes of a file or memfd, shared with everyone else who maps it.
    ///
    /// The file must not shrink while it is mapped: touching bytes past a file's end raises SIGBUS.
    /// Descriptors from [`create_memfd`](Self::create_memfd) are sealed against that; for other
    /// files it is the owner's promise.
    ///
    /// # Errors
    /// If `len` is zero, the file holds fewer than `len` bytes, or the descriptor does not permit
    /// `access`.
    pub fn map(fd: impl AsFd, len: usize, access: Access) -> Result<Self, MemoryError> {
        let fd = fd.as_fd();
        let stat = rustix::fs::fstat(fd).map_err(os("examining a memory file", len))?;
        let file_len = u64::try_from(stat.st_size).unwrap_or(0);
        if file_len < len as u64 {
            return Err(MemoryError::FileTooShort { file_len, len });
        }
        let file_system = rustix::fs::fstatfs(fd).map_err(os("examining a memory file", len))?;
        let is_huge = file_system.f_type as i64 == HUGETLBFS_MAGIC;
        let page = if is_huge { file_system.f_bsize as usize } else { rustix::param::page_size() };
        let mapped = round_up(len, page)?;
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let pages = if is_huge { Pages::Huge } else { Pages::Ordinary };
        let base =
            huge::map_shared(fd, mapped, protection, pages).map_err(os("mapping a memory file", len))?;
        Ok(Self::mapping(base, len, mapped, access, pages))
    }

    fn mapping(base: NonNull<u8>, len: usize, mapped: usize, access: Access, pages: Pages) -> Self {
        let backed_end = Arc::new(AtomicU64::new(u64::MAX));
        let registrations = Arc::default();
        Self { base, len, mapped, access, pages, is_anonymous: false, file: None, backed_end, registrations }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly this range was mapped by the constructor, and every access borrows
        // `self`, so none is left. A forked child has inherited the mapping; where it may lack it,
        // because a network card's pages were kept from it, the memory is never dropped
        // (`rdma/memory_region.rs`). Failure would leave the mapping in place, which leaks and
        // harms nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

fn map_anonymous(mapped: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
    let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

pub(super) fn round_up(len: usize, page: usize) -> Result<usize, MemoryError> {
    let limit = isize::MAX as usize;
    match len.checked_next_multiple_of(page) {
        Some(mapped) if len > 0 && mapped <= limit => Ok(mapped),
        _ => Err(MemoryError::BadLength { len }),
    }
}

pub(super) fn os(doing: &'static str, len: usize) -> impl FnOnce(Errno) -> MemoryError {
    move |errno| MemoryError::Os { doing, len, source: errno.into() }
}

fn no_huge_pages(len: usize, errno: Errno) -> MemoryError {
    MemoryError::NoHugePages { len, pages: len.div_ceil(HUGE_PAGE), source: errno.into() }
}

/// Whether a memory file is sealed against shrinking, which would end any process that touches a
/// lost page. No seal is ever taken away.
pub(crate) fn cannot_shrink(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Another descriptor of a memory file that it can be mapped by for writing, for this process
/// alone; `None` if `fd` cannot be. It does not hold the lock of a file with a name.
pub(crate) fn reopen_writable(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    // A memory file without a name has no lock, and may have lost its permission to be opened for
    // writing.
    if cannot_shrink(fd) {
        let flags = rustix::fs::fcntl_getfl(fd).ok()?;
        let is_writable = flags & rustix::fs::OFlags::RWMODE == rustix::fs::OFlags::RDWR;
        return is_writable.then(|| rustix::io::fcntl_dupfd_cloexec(fd, 3).ok()).flatten();
    }
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).ok()
}

/// Opens a memory file again for reading only, and takes its write permission away, so that it
/// cannot be opened for writing by accident. Writing through the new descriptor, or mapping it
/// writable, fails. The file's owner can give itself the permission back: this protects against
/// mistakes, not against malice.
pub(crate) fn reopen_read_only(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let read_only = rustix::fs::open(path, flags, Mode::empty())?;
    // Only for files without a name: a data file's permissions are its operator's, and its next
    // memory node must be able to open it for writing.
    if cannot_shrink(fd) {
        rustix::fs::fchmod(fd, Mode::RUSR)?;
    }
    Ok(read_only)
}
