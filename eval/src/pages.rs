//! The pages of memory that systems are measured in.

use clap::ValueEnum;
use fpcache_datasets::count::human_bytes;
use fpcache_fabric::memory::merge_own_memory;

/// The pages of memory, the same for all systems of an experiment: a random read of much memory
/// takes about a third as long again in ordinary ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MemoryPages {
    /// 2 MiB, for the memory node's regions, which it merges by itself, and for maps and buffers of
    /// this process
    #[default]
    Huge,
    /// 4 KiB, unless the system's settings give huge ones to everybody
    Ordinary,
}

impl MemoryPages {
    /// Share of this process's memory in huge pages below which there is something to say, and
    /// bytes below which it makes no difference.
    const ENOUGH: (f64, u64) = (0.9, 64 << 20);

    /// The name of the option.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Huge => "huge",
            Self::Ordinary => "ordinary",
        }
    }

    /// Has what this process holds by now lie in such pages, as the memory node's regions do.
    pub fn apply(self) {
        if self == Self::Ordinary {
            return;
        }
        let pages = merge_own_memory();
        let (share, bytes) = Self::ENOUGH;
        if pages.whole >= bytes && (pages.huge as f64) < share * pages.whole as f64 {
            eprintln!(
                "note: {} of this process's {} are in huge pages, so that maps may be slower than they could be (the kernel \
                 merges pages from 6.1 on, if it finds free ones)",
                human_bytes(pages.huge),
                human_bytes(pages.whole)
            );
        }
    }
}
