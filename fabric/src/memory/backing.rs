//! The pages behind the memory: huge ones, none where nothing is stored, and giving them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::Advice;

use super::{Access, AccessError, HUGE_PAGE, Pages, Registrations, SharedMemory};

impl SharedMemory {
    /// Asks the kernel to merge this mapping's pages into huge ones (`MADV_HUGEPAGE`), as its
    /// settings allow.
    pub fn advise_huge(&mut self) {
        if self.pages == Pages::Ordinary && self.advise(0, self.mapped, Advice::LinuxHugepage) {
            self.pages = Pages::Advised;
        }
    }

    /// Maps the pages of `len` bytes at `offset` now, so that first reads do not fault: about a
    /// tenth of a microsecond per 4 KiB page against half a microsecond per fault. A hint: failure
    /// and bounds are ignored.
    pub fn populate(&self, offset: u64, len: usize) {
        let Ok(start) = usize::try_from(offset) else { return };
        let page = rustix::param::page_size();
        let start = start.min(self.mapped) / page * page;
        let end = (offset as usize).saturating_add(len).min(self.mapped);
        if start < end {
            self.advise(start, end - start, Advice::LinuxPopulateRead);
        }
    }

    /// Says that the bytes from `end` on hold nothing, and need have no memory. Code that copies
    /// out of an [`Export`](crate::Export) of this memory for clients takes them for zeros and does
    /// not touch them: touching a hole of a file takes memory for it, also by reading, and kills
    /// the process where no memory is left. To be raised before anything is stored there, and
    /// lowered before the memory goes back. All bytes, unless said.
    pub fn set_backed_end(&self, end: u64) {
        self.backed_end.store(end, Ordering::Release);
    }

    /// The value of [`set_backed_end`](Self::set_backed_end).
    #[must_use]
    pub fn backed_end(&self) -> u64 {
        self.backed_end.load(Ordering::Acquire)
    }

    /// Where it says it.
    pub(crate) fn share_backed_end(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.backed_end)
    }

    /// The devices that it is registered with.
    pub(crate) fn registrations(&self) -> &Arc<Registrations> {
        &self.registrations
    }

    /// The same, sharing these with another mapping of the memory.
    pub(crate) fn with_registrations(mut self, registrations: &Arc<Registrations>) -> Self {
        self.registrations = Arc::clone(registrations);
        self
    }

    /// Its first byte, for a device that is told where it lies.
    #[cfg(feature = "rdma")]
    pub(crate) fn base_address(&self) -> std::ptr::NonNull<u8> {
        self.base
    }

    /// Gives the memory from `offset` on, rounded up to whole pages, back to the operating system,
    /// for everyone who maps it: it reads as zeros from then on, and takes memory again when it is
    /// stored to. Where that cannot be, nothing changes and the answer is `false`: some file
    /// systems make no holes, and a network card that fails may not give up the pages that it was
    /// told of. Costs about a tenth of a microsecond per page in use.
    ///
    /// # Errors
    /// [`ReadOnly`](AccessError::ReadOnly).
    pub fn discard_from(&self, offset: u64) -> Result<bool, AccessError> {
        self.discard_between(offset, self.mapped as u64)
    }

    /// As [`discard_from`](Self::discard_from), up to `end`, which is rounded up to whole pages as
    /// well: what lies between it and the end of its page goes, too.
    ///
    /// # Errors
    /// As for [`discard_from`](Self::discard_from).
    pub fn discard_between(&self, offset: u64, end: u64) -> Result<bool, AccessError> {
        if self.access == Access::ReadOnly {
            return Err(AccessError::ReadOnly);
        }
        // A device goes on with the pages that it was told of, which would not be those of the
        // memory any more.
        if !self.registrations.withdraw(offset) {
            return Ok(false);
        }
        let page = if self.pages == Pages::Huge { HUGE_PAGE } else { rustix::param::page_size() };
        let page_of = |offset: u64| usize::try_from(offset).ok()?.checked_next_multiple_of(page);
        let end = page_of(end).map_or(self.mapped, |end| end.min(self.mapped));
        Ok(match page_of(offset).filter(|start| *start < end) {
            Some(start) => self.advise(start, end - start, Advice::LinuxRemove),
            None => true,
        })
    }

    /// Unmaps the pages from `offset` on, rounded up to whole pages, which stay in their file: they
    /// are mapped again when they are accessed, and count as this process's memory only then.
    /// Nothing happens to memory that lies in no file. A hint: failure and bounds are ignored.
    /// Costs about a twentieth of a microsecond per mapped page, and a fault per sixteen
    /// afterwards.
    pub fn unmap_pages(&self, offset: u64) {
        let start = usize::try_from(offset).ok();
        let start = start.and_then(|offset| offset.checked_next_multiple_of(rustix::param::page_size()));
        if let Some(start) = start.filter(|start| *start < self.mapped && !self.is_anonymous) {
            self.advise(start, self.mapped - start, Advice::LinuxDontNeed);
        }
    }

    /// Makes zeros of the words from `offset` to `end` that are none: what others could read there
    /// is gone, though it takes the memory it took. Words that are zeros are not stored to, so that
    /// holes of a file stay holes.
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
        // SAFETY: the range lies in this mapping (all callers clamp to `mapped`), and the advices
        // used either leave its contents alone (`LinuxDontNeed` is used for files only) or make
        // zeros of them, as any other process that maps the file might: all accesses are atomic
        // words.
        unsafe { rustix::mm::madvise(self.base.as_ptr().add(start).cast(), len, advice) }.is_ok()
    }
}
