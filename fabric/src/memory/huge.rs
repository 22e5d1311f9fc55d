//! Huge pages of ordinary shared memory: mappings that can have them, merging, and what there is of
//! them.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{Access, HUGE_PAGE, Pages, SharedMemory};

/// Maps a file, shared. Mappings of a huge page or more begin at a multiple of one, without which
/// the kernel can map none: it sees to that itself only where its settings ask for huge pages.
///
/// For files of ordinary pages; the kernel aligns those of reserved huge pages, of whatever length.
pub(super) fn map_shared(
    fd: BorrowedFd<'_>,
    mapped: usize,
    protection: ProtFlags,
    pages: Pages,
) -> Result<NonNull<u8>, Errno> {
    let aligns = mapped >= HUGE_PAGE && pages != Pages::Huge;
    let Some(reserved) = mapped.checked_add(HUGE_PAGE).filter(|_| aligns) else {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing, and `mapped`
        // is not zero. Others may change the file's bytes; `SharedMemory` only ever accesses them
        // as atomics.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, protection, MapFlags::SHARED, fd, 0) }?;
        return NonNull::new(base.cast()).ok_or(Errno::NOMEM);
    };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing. It cannot be
    // accessed.
    let room =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), flags) }?;
    let before = room.align_offset(HUGE_PAGE).min(HUGE_PAGE);
    // SAFETY: `before` is at most a huge page, which the room has beyond `mapped`.
    let place = unsafe { room.cast::<u8>().add(before) };
    // SAFETY: replaces `mapped` bytes of the room, which was mapped just now and is not used yet.
    // As for the file's bytes, as above.
    let base = unsafe {
        rustix::mm::mmap(place.cast(), mapped, protection, MapFlags::SHARED | MapFlags::FIXED, fd, 0)
    };
    // What is left of the room. Where the file was not mapped, its place stays: the kernel may have
    // given it to another mapping.
    for (from, len) in [(0, before), (before + mapped, HUGE_PAGE - before)] {
        if len > 0 {
            // SAFETY: within the room, of which this part is not used. If it fails, address space
            // is lost and nothing else.
            let _ = unsafe { rustix::mm::munmap(room.cast::<u8>().add(from).cast(), len) };
        }
    }
    NonNull::new(base?.cast()).ok_or(Errno::NOMEM)
}

/// Asks the kernel for huge pages, as its settings allow, where these items take whole ones
/// (`MADV_HUGEPAGE`): a read of random ones then seldom has to look for its page as well. A hint;
/// what they are does not change.
pub fn advise_huge_pages<T>(items: &[T]) {
    let start: *const u8 = items.as_ptr().cast();
    let skipped = start.align_offset(HUGE_PAGE);
    let Some(len) = size_of_val(items).checked_sub(skipped).map(|len| len / HUGE_PAGE * HUGE_PAGE) else {
        return;
    };
    if len > 0 {
        // SAFETY: whole pages of memory that is borrowed, whose contents the advice leaves alone.
        let _ = unsafe {
            rustix::mm::madvise(
                start.cast_mut().wrapping_add(skipped).cast(),
                len,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

impl SharedMemory {
    /// Bytes of a huge page.
    pub const HUGE_PAGE_BYTES: u64 = HUGE_PAGE as u64;

    /// Merges the pages of the huge page at `offset`, a multiple of its length, into one for
    /// everyone who maps it (`MADV_COLLAPSE`), and says whether that is done. Holes in it take
    /// memory; where all is a hole nothing is merged. It takes about a millisecond, in which every
    /// access to it waits; nothing if they are merged already. For memory without a named file,
    /// whatever the kernel's settings say but `deny`; kernels before 6.1 cannot do it.
    pub fn merge_pages(&self, offset: u64) -> bool {
        let start = usize::try_from(offset).ok().filter(|start| start.is_multiple_of(HUGE_PAGE));
        let Some(start) = start.filter(|start| self.mapped.saturating_sub(*start) >= HUGE_PAGE) else {
            return false;
        };
        if self.pages == Pages::Huge || self.access == Access::ReadOnly || self.file.is_some() {
            return false;
        }
        // SAFETY: the range lies in this mapping, and the advice leaves its contents alone.
        let merged =
            unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), HUGE_PAGE, libc::MADV_COLLAPSE) };
        merged == 0
    }

    /// Bytes of this mapping that lie in huge pages as this process has mapped them; `None` if the
    /// operating system does not tell. It goes through all of the process's mappings: milliseconds
    /// for each GiB.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        if self.pages == Pages::Huge {
            return Some(self.mapped as u64);
        }
        let start = self.base.as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(huge_bytes_in(&maps, start..start + self.mapped))
    }
}

/// Bytes in huge pages of the mappings within a range, as `/proc/PID/smaps` has them.
fn huge_bytes_in(maps: &str, within: std::ops::Range<usize>) -> u64 {
    let (mut is_within, mut bytes) = (false, 0);
    for line in maps.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        match name.strip_suffix(':') {
            Some("AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped") if is_within => {
                let kib = value.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
                bytes += kib.unwrap_or(0) << 10;
            }
            Some(_) => {}
            None => {
                let start = name.split_once('-').and_then(|(start, _)| usize::from_str_radix(start, 16).ok());
                is_within = start.is_some_and(|start| within.contains(&start));
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HugePages;

    #[test]
    fn huge_pages_of_the_mapping_alone_are_counted() {
        let maps = "\
7f00-7f10 rw-s 00000000 00:01 1 /memfd:other (deleted)
ShmemPmdMapped:     2048 kB
VmFlags: rd wr sh
7f10-7f20 r--s 00000000 00:01 1 /memfd:fpcache-region (deleted)
AnonHugePages:         0 kB
ShmemPmdMapped:     4096 kB
FilePmdMapped:         0 kB
7f20-7f30 r--s 00010000 00:01 1 /memfd:fpcache-region (deleted)
ShmemPmdMapped:     2048 kB
7f30-7f40 rw-p 00000000 00:00 0
AnonHugePages:      2048 kB
";
        assert_eq!(huge_bytes_in(maps, 0x7f10..0x7f30), 6 << 20);
        assert_eq!(huge_bytes_in(maps, 0x8000..0x9000), 0);
    }

    #[test]
    fn merging_leaves_contents_alone_and_is_seen_where_the_kernel_can() {
        let (memory, fd) = SharedMemory::create_memfd("test", 5 << 20, HugePages::Merged).expect("memory");
        let reader = SharedMemory::map(&fd, 5 << 20, Access::ReadOnly).expect("a second mapping");
        for mapping in [&memory, &reader] {
            assert!(mapping.base.as_ptr().addr().is_multiple_of(HUGE_PAGE));
        }
        let words: Vec<u64> = (0..(5 << 17)).collect();
        memory.write_words(0, &words).expect("in bounds");
        let merged = [0, 2 << 20].map(|offset| memory.merge_pages(offset));
        let mut read = vec![0; words.len()];
        reader.read_words(0, &mut read).expect("in bounds");
        assert!(read == words);
        if merged == [true; 2] {
            assert_eq!(memory.huge_bytes(), Some(4 << 20));
        }
        assert!(!memory.merge_pages(4 << 20) && !memory.merge_pages(4096), "no whole huge page");
        assert!(!reader.merge_pages(0), "it is its owner's to merge");
    }
}
