//! Memory that another process, another thread or a network card may change at any time.
//!
//! This is the only module of the crate with `unsafe` code. Nothing here ever makes a `&[u8]` into the mapping: bytes
//! are loaded by relaxed atomic loads of aligned 8-byte words, or by vector loads that stand for these ([`Words`]), into
//! private memory or a register, and only then looked at. A racing
//! writer can therefore make a copy a mixture of old and new words (it *tears*), never undefined behaviour; checksums
//! and versions, the business of the layers above, detect that.
//!
//! **One access size.** Rust leaves racing atomic accesses of different sizes undefined, so every access is of whole,
//! aligned 8-byte words. A read of odd bytes loads the words they lie in; a write of odd bytes merges them into their
//! word by compare-and-swap, so that a neighbour's simultaneous write is not lost. Mappings end on page boundaries, so
//! the last bytes' word is always mapped.
//!
//! On x86-64 long copies go through 16-byte vector moves in inline assembly (atomics are not vectorised by the
//! compiler). Assembly is outside the language's memory model; processors do not tear an aligned 8-byte half of a
//! vector move, so it acts as the relaxed word loads it stands for.

mod copy;
mod file;
mod fork;
mod guarded;
mod huge;
mod kinds;
mod words;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use file::{FileAt, FileIdentity};
pub use fork::ForkFlag;
pub(crate) use fork::let_go;
pub use guarded::CHANGED;
pub use kinds::{Access, AccessError, HugePages, MemoryError, OutOfBounds, Pages};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
pub use words::Words;

const HUGE_PAGE: usize = 2 << 20;
/// `f_type` of hugetlbfs, from statfs(2).
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// A mapped region of memory, unmapped on drop.
///
/// All accesses are bounds-checked. Offsets and lengths are in bytes.
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    /// `len` rounded up to whole pages: what is mapped.
    mapped: usize,
    access: Access,
    pages: Pages,
    /// Whether it lies in no file, named or not: what is unmapped then is lost.
    is_anonymous: bool,
    /// The named file it lies in, if it was made from one: to sync it.
    file: Option<OwnedFd>,
    /// See [`set_backed_end`](Self::set_backed_end).
    backed_end: Arc<AtomicU64>,
}

// SAFETY: the mapping belongs to this value alone until drop, is not tied to a thread, and is only accessed through
// atomic words (or assembly that stands for them), which any number of threads may do at once.
unsafe impl Send for SharedMemory {}
// SAFETY: as above: `&SharedMemory` offers no non-atomic access and no reference into the mapping.
unsafe impl Sync for SharedMemory {}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, access, pages, .. } = self;
        f.debug_struct("SharedMemory")
            .field("len", len)
            .field("access", access)
            .field("pages", pages)
            .finish()
    }
}

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
    /// If `len` is zero, the operating system has no such memory, or huge pages are required and none are free.
    pub fn anonymous_with(len: usize, huge: HugePages) -> Result<Self, MemoryError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        if huge.wants_reserved() {
            let mapped = round_up(len, HUGE_PAGE)?;
            // Without NORESERVE: a missing page must fail here, not kill the process at first touch.
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

    /// Zeroed memory that can be handed to other processes by its descriptor: a memfd, which needs no `/dev/shm`.
    /// It is sealed against shrinking, so that nobody can make an access fault.
    ///
    /// # Errors
    /// If `len` is zero, the operating system has no such memory, or huge pages are required and none are free.
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
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).map_err(os("sealing a memory file", len))?;
        let memory = Self::map(fd.as_fd(), len, Access::ReadWrite)?;
        Ok((memory, fd))
    }

    /// Maps the first `len` bytes of a file or memfd, shared with everyone else who maps it.
    ///
    /// The file must not shrink while it is mapped: touching bytes past a file's end raises SIGBUS. Descriptors from
    /// [`create_memfd`](Self::create_memfd) are sealed against that; for other files it is the owner's promise.
    ///
    /// # Errors
    /// If `len` is zero, the file holds fewer than `len` bytes, or the descriptor does not permit `access`.
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
        Self { base, len, mapped, access, pages, is_anonymous: false, file: None, backed_end }
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "memory of no bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What may be done with it.
    #[inline]
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Which pages it got.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Asks the kernel to merge this mapping's pages into huge ones (`MADV_HUGEPAGE`), as its settings allow.
    pub fn advise_huge(&mut self) {
        if self.pages == Pages::Ordinary && self.advise(0, self.mapped, Advice::LinuxHugepage) {
            self.pages = Pages::Advised;
        }
    }

    /// Maps the pages of `len` bytes at `offset` now, so that first reads do not fault: about a tenth of a
    /// microsecond per 4 KiB page against half a microsecond per fault. A hint: failure and bounds are ignored.
    pub fn populate(&self, offset: u64, len: usize) {
        let Ok(start) = usize::try_from(offset) else { return };
        let page = rustix::param::page_size();
        let start = start.min(self.mapped) / page * page;
        let end = (offset as usize).saturating_add(len).min(self.mapped);
        if start < end {
            self.advise(start, end - start, Advice::LinuxPopulateRead);
        }
    }

    /// Says that the bytes from `end` on hold nothing, and need have no memory. Whoever copies out of an
    /// [`Export`](crate::Export) of this memory for clients takes them for zeros and does not touch them: what touches a hole of a
    /// file takes memory for it, also by reading, and dies where there is none. To be raised before anything
    /// is stored there, and lowered before the memory goes back. All bytes, unless said.
    pub fn set_backed_end(&self, end: u64) {
        self.backed_end.store(end, Ordering::Release);
    }

    /// What [`set_backed_end`](Self::set_backed_end) said.
    #[must_use]
    pub fn backed_end(&self) -> u64 {
        self.backed_end.load(Ordering::Acquire)
    }

    /// Where it says it.
    pub(crate) fn share_backed_end(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.backed_end)
    }

    /// Gives the memory from `offset` on, rounded up to whole pages, back to the operating system, for everyone who maps it:
    /// it reads as zeros from then on, and takes memory again when it is stored to. Where the operating system cannot do that,
    /// nothing changes and the answer is `false`: some file systems make no holes. Costs about a tenth of a microsecond per
    /// page in use.
    ///
    /// # Errors
    /// [`ReadOnly`](AccessError::ReadOnly).
    pub fn discard_from(&self, offset: u64) -> Result<bool, AccessError> {
        if self.access == Access::ReadOnly {
            return Err(AccessError::ReadOnly);
        }
        let page = if self.pages == Pages::Huge { HUGE_PAGE } else { rustix::param::page_size() };
        let start = usize::try_from(offset).ok().and_then(|offset| offset.checked_next_multiple_of(page));
        Ok(match start.filter(|start| *start < self.mapped) {
            Some(start) => self.advise(start, self.mapped - start, Advice::LinuxRemove),
            None => true,
        })
    }

    /// Unmaps the pages from `offset` on, rounded up to whole pages, which stay in their file: they are mapped again when they are
    /// accessed, and count as this process's memory only then. Nothing happens to memory that lies in no file. A hint: failure
    /// and bounds are ignored. Costs about a twentieth of a microsecond per mapped page, and a fault per sixteen afterwards.
    pub fn unmap_pages(&self, offset: u64) {
        let start = usize::try_from(offset).ok();
        let start = start.and_then(|offset| offset.checked_next_multiple_of(rustix::param::page_size()));
        if let Some(start) = start.filter(|start| *start < self.mapped && !self.is_anonymous) {
            self.advise(start, self.mapped - start, Advice::LinuxDontNeed);
        }
    }

    /// Makes zeros of the words from `offset` to `end` that are none: what others could read there is gone, though it takes the
    /// memory it took. Words that are zeros are not stored to, so that holes of a file stay holes.
    ///
    /// # Errors
    /// The end lies outside, `offset` is not a multiple of 8, or the mapping is read-only.
    pub fn erase(&self, offset: u64, end: u64) -> Result<(), AccessError> {
        let mut words = [0; 512];
        for from in (offset..end & !7).step_by(size_of_val(&words)) {
            // At most 512 words.
            let count = ((end - from) / 8).min(words.len() as u64) as usize;
            self.read_words(from, &mut words[..count])?;
            if words[..count].iter().any(|word| *word != 0) {
                self.fill_words(from, count, 0)?;
            }
        }
        Ok(())
    }

    fn advise(&self, start: usize, len: usize, advice: Advice) -> bool {
        debug_assert!(start <= self.mapped && len <= self.mapped - start);
        // SAFETY: the range lies in this mapping (all callers clamp to `mapped`), and the advices used either leave its
        // contents alone (`LinuxDontNeed` is used for files only) or make zeros of them, as any other process that maps the file
        // might: all accesses are atomic words.
        unsafe { rustix::mm::madvise(self.base.as_ptr().add(start).cast(), len, advice) }.is_ok()
    }

    /// The address of `len` accessible bytes at `offset`.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfBounds> {
        let memory_len = self.len as u64;
        if offset > memory_len || len as u64 > memory_len - offset {
            return Err(OutOfBounds { offset, len: len as u64, memory_len });
        }
        // SAFETY: `offset <= self.len`, so the result lies in the mapping or one past its end.
        Ok(unsafe { self.base.as_ptr().add(offset as usize) })
    }

    #[inline]
    fn at_mut(&self, offset: u64, len: usize) -> Result<*mut u8, AccessError> {
        if self.access == Access::ReadOnly {
            return Err(AccessError::ReadOnly);
        }
        Ok(self.at(offset, len)?)
    }

    /// The word at `offset`; for loads only unless the mapping is writable.
    #[inline]
    fn word(&self, offset: u64) -> Result<&AtomicU64, AccessError> {
        if !offset.is_multiple_of(8) {
            return Err(AccessError::Misaligned { offset });
        }
        let at = self.at(offset, 8)?;
        // SAFETY: `at` is 8-aligned (the base is page-aligned, the offset a multiple of 8), its 8 bytes lie in the
        // mapping, which outlives the borrow of `self`, and all accesses to it are atomic words.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    #[inline]
    fn word_mut(&self, offset: u64) -> Result<&AtomicU64, AccessError> {
        if self.access == Access::ReadOnly {
            return Err(AccessError::ReadOnly);
        }
        self.word(offset)
    }

    /// Copies words out, relaxed. Fastest at 8-aligned offsets; others are served all the same.
    ///
    /// # Errors
    /// If the words reach past the end.
    #[inline]
    pub fn read_words(&self, offset: u64, out: &mut [u64]) -> Result<(), OutOfBounds> {
        let bytes = size_of_val(out);
        let src = self.at(offset, bytes)?;
        if out.len() < copy::CHUNK_WORDS && offset.is_multiple_of(8) {
            // SAFETY: `src` has as many mapped words as `out`, and is aligned because mappings begin on pages.
            unsafe { copy::load_few_words(src.cast(), out) };
        } else {
            // SAFETY: `src` has `bytes` mapped bytes, and `out` as many exclusive ones.
            unsafe { copy::load_bytes(src, out.as_mut_ptr().cast(), bytes) };
        }
        Ok(())
    }

    /// Copies bytes out, relaxed, at any alignment.
    ///
    /// # Errors
    /// If the bytes reach past the end.
    #[inline]
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let src = self.at(offset, out.len())?;
        // SAFETY: `src` has `out.len()` mapped bytes, and `out` as many exclusive ones.
        unsafe { copy::load_bytes(src, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies words in, relaxed, at any alignment (8-aligned is fastest).
    ///
    /// # Errors
    /// If the words reach past the end or the mapping is read-only.
    #[inline]
    pub fn write_words(&self, offset: u64, words: &[u64]) -> Result<(), AccessError> {
        let bytes = size_of_val(words);
        let dst = self.at_mut(offset, bytes)?;
        // SAFETY: `dst` has `bytes` mapped and writable bytes, `words` as many readable ones.
        unsafe { copy::store_bytes(dst, words.as_ptr().cast(), bytes) };
        Ok(())
    }

    /// Copies bytes in, relaxed, at any alignment. Whole aligned words are stored as such; odd bytes at the ends are
    /// merged into their words by compare-and-swap (about 10 ns each).
    ///
    /// # Errors
    /// If the bytes reach past the end or the mapping is read-only.
    #[inline]
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let dst = self.at_mut(offset, bytes.len())?;
        // SAFETY: `dst` has `bytes.len()` mapped and writable bytes, `bytes` as many readable ones.
        unsafe { copy::store_bytes(dst, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Stores `value` in `count` words from the 8-aligned `offset` on, relaxed.
    ///
    /// # Errors
    /// If the words reach past the end, the offset is not aligned or the mapping is read-only.
    pub fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        if !offset.is_multiple_of(8) {
            return Err(AccessError::Misaligned { offset });
        }
        let len = count.saturating_mul(8);
        let dst = self.at_mut(offset, len)?.cast::<u64>();
        for index in 0..count {
            // SAFETY: `dst` is 8-aligned with `count` mapped, writable words (a saturated `len` is out of bounds).
            unsafe { AtomicU64::from_ptr(dst.add(index)) }.store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Loads a word, relaxed.
    ///
    /// # Errors
    /// If the word lies past the end or is not aligned.
    #[inline]
    pub fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        Ok(self.word(offset)?.load(Ordering::Relaxed))
    }

    /// Loads a word; what its writer stored before it is visible after.
    ///
    /// # Errors
    /// If the word lies past the end or is not aligned.
    #[inline]
    pub fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores a word, relaxed.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word_mut(offset)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Stores a word; everything stored before is visible to whoever loads it with acquire.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word_mut(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Stores `new` if the word holds `expected`, and returns the value before. Sequentially consistent.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn compare_exchange(&self, offset: u64, expected: u64, new: u64) -> Result<u64, AccessError> {
        let word = self.word_mut(offset)?;
        let (Ok(old) | Err(old)) = word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
        Ok(old)
    }

    /// Adds to the word, wrapping, and returns the value before. Sequentially consistent.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn fetch_add(&self, offset: u64, delta: u64) -> Result<u64, AccessError> {
        Ok(self.word_mut(offset)?.fetch_add(delta, Ordering::SeqCst))
    }

    /// Hints that `len` bytes at `offset` will be read soon, all their cache lines. Out of bounds is ignored.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        let Ok(start) = self.at(offset, len) else { return };
        if len == 0 {
            return;
        }
        let first = start as usize & !63;
        let last = (start as usize + len - 1) & !63;
        // Most stretches have a line or two, and which of it nobody can foretell: without a branch.
        copy::prefetch_line(first as *const u8);
        copy::prefetch_line(last as *const u8);
        let mut line = first + 64;
        while line < last {
            copy::prefetch_line(line as *const u8);
            line += 64;
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly this range was mapped by the constructor, and every access borrows `self`, so none is left.
        // Failure would leave the mapping in place, which leaks and harms nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

fn map_anonymous(mapped: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
    let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

fn round_up(len: usize, page: usize) -> Result<usize, MemoryError> {
    let limit = isize::MAX as usize;
    match len.checked_next_multiple_of(page) {
        Some(mapped) if len > 0 && mapped <= limit => Ok(mapped),
        _ => Err(MemoryError::BadLength { len }),
    }
}

fn os(doing: &'static str, len: usize) -> impl FnOnce(Errno) -> MemoryError {
    move |errno| MemoryError::Os { doing, len, source: errno.into() }
}

fn no_huge_pages(len: usize, errno: Errno) -> MemoryError {
    MemoryError::NoHugePages { len, pages: len.div_ceil(HUGE_PAGE), source: errno.into() }
}

/// Opens a memory file again for reading only, and takes its write permission away, so that it cannot be opened for
/// writing by accident. Writing through the new descriptor, or mapping it writable, fails. The file's owner can give
/// itself the permission back: this protects against mistakes, not against malice.
pub(crate) fn reopen_read_only(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let read_only = rustix::fs::open(path, flags, Mode::empty())?;
    // Only for files without a name: a data file's permissions are its operator's, and its next memory node must be able to
    // open it for writing.
    if rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        rustix::fs::fchmod(fd, Mode::RUSR)?;
    }
    Ok(read_only)
}
