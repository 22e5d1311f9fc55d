//! Huge pages of this process's own memory.

use std::ops::Range;

use super::HUGE_PAGE;

/// Bytes of a process's own memory: whole huge pages of it, and how much of that is in huge pages
/// now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnPages {
    /// Bytes that could be in huge pages.
    pub whole: u64,
    /// Bytes that are.
    pub huge: u64,
}

/// Merges the pages of this process's heap and anonymous mappings into huge ones (`MADV_COLLAPSE`),
/// whatever the kernel's settings: the same as [`merge_pages`](super::SharedMemory::merge_pages)
/// does for regions, for structures compared with them. It takes about a millisecond for each huge
/// page, in which every access to it waits. Untouched memory stays as it is; kernels before 6.1
/// cannot do it.
#[must_use]
pub fn merge_own_memory() -> OwnPages {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return OwnPages::default() };
    let mut pages = OwnPages::default();
    for page in maps.lines().filter_map(own_range).flat_map(whole_pages) {
        pages.whole += HUGE_PAGE as u64;
        // SAFETY: the advice leaves the contents of memory alone, whatever lies there by now; where
        // nothing does, it fails.
        let merged =
            unsafe { libc::madvise(std::ptr::without_provenance_mut(page), HUGE_PAGE, libc::MADV_COLLAPSE) };
        pages.huge += if merged == 0 { HUGE_PAGE as u64 } else { 0 };
    }
    pages
}

/// The addresses in a line of `/proc/PID/maps`, if it is of private memory without a file that can
/// be written to.
fn own_range(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (rights, _offset, _device, inode) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_own = matches!(fields.next(), None | Some("[heap]")) && rights == "rw-p" && inode == "0";
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?).filter(|_| is_own)
}

/// Where the huge pages begin that lie in a range wholly.
fn whole_pages(range: Range<usize>) -> impl Iterator<Item = usize> {
    let first = range.start.next_multiple_of(HUGE_PAGE);
    (first..range.end).step_by(HUGE_PAGE).take_while(move |page| range.end - page >= HUGE_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_without_a_file_is_ones_own() {
        let own = |line| own_range(line).map(|range| (range.start, range.end));
        assert_eq!(own("7f00-7f40 rw-p 00000000 00:00 0 "), Some((0x7f00, 0x7f40)));
        assert_eq!(own("55a0-55b0 rw-p 00000000 00:00 0                  [heap]"), Some((0x55a0, 0x55b0)));
        for other in [
            "7f00-7f40 r--p 00000000 00:00 0 ",
            "7f00-7f40 rw-s 00000000 00:01 17 /dev/zero (deleted)",
            "7f00-7f40 rw-p 00000000 08:01 42 /usr/lib/libc.so.6",
            "7ffc-7ffe rw-p 00000000 00:00 0                  [stack]",
            "7f00",
            "",
        ] {
            assert_eq!(own(other), None, "{other}");
        }
    }

    #[test]
    fn only_whole_pages_are_merged() {
        let page = HUGE_PAGE;
        let whole = |range| whole_pages(range).collect::<Vec<_>>();
        assert_eq!(whole(0..page), [0]);
        assert_eq!(whole(1..3 * page), [page, 2 * page]);
        assert_eq!(whole(1..2 * page - 1), [0; 0]);
        assert_eq!(whole(page..page), [0; 0]);
    }

    #[test]
    fn what_is_merged_holds_what_it_did() {
        let held: Vec<u64> = (0..4 << 18).collect();
        let pages = merge_own_memory();
        assert!(pages.huge <= pages.whole && pages.whole >= 3 * HUGE_PAGE as u64, "{pages:?}");
        assert!(held.iter().copied().eq(0..4 << 18));
    }
}
