//! Rights, page sizes and errors of mapped memory.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Access rights to a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Loads only; a store is refused with a typed error before it can fault.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// Whether huge pages are wanted. They spare address translation misses, which dominate random
/// reads of large regions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HugePages {
    /// Ordinary pages.
    #[default]
    No,
    /// Ordinary pages, which their owner merges into huge ones as they fill, by
    /// [`merge_pages`](super::SharedMemory::merge_pages).
    Merged,
    /// Reserved 2 MiB pages if the machine has enough free ones, else ordinary pages that the
    /// kernel is asked to merge.
    IfAvailable,
    /// Reserved 2 MiB pages, or an error that says how to reserve them.
    Required,
}

impl HugePages {
    /// Whether reserved pages are to be had if there are any.
    pub(super) fn wants_reserved(self) -> bool {
        matches!(self, Self::IfAvailable | Self::Required)
    }
}

/// Which pages a mapping got.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pages {
    /// Ordinary pages.
    Ordinary,
    /// Ordinary pages that are merged into huge ones: by the kernel, as its settings allow, or by
    /// their owner.
    Advised,
    /// Reserved huge pages.
    Huge,
}

/// An access past the end of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("access of {len} bytes at offset {offset} leaves the memory of {memory_len} bytes")]
pub struct OutOfBounds {
    /// Offset of the access in bytes.
    pub offset: u64,
    /// Length of the access in bytes.
    pub len: u64,
    /// Length of the memory in bytes.
    pub memory_len: u64,
}

/// A store or an atomic access that is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// Past the end.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// Atomics need offsets that are multiples of eight.
    #[error("word access at offset {offset} is not 8-byte aligned")]
    Misaligned {
        /// Offset of the access in bytes.
        offset: u64,
    },
    /// The mapping is read-only.
    #[error("the memory is mapped read-only; map it with Access::ReadWrite to change it")]
    ReadOnly,
}

/// Memory that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A mapping of no bytes, or of more than the address space takes.
    #[error("cannot map {len} bytes; ask for at least one byte and less than half the address space")]
    BadLength {
        /// Bytes asked for.
        len: usize,
    },
    /// The file is shorter than the mapping; touching its end would kill the process.
    #[error("the memory file holds {file_len} bytes, {len} were to be mapped; the peer's sizes do not agree")]
    FileTooShort {
        /// Bytes in the file.
        file_len: u64,
        /// Bytes asked for.
        len: usize,
    },
    /// No huge pages.
    #[error(
        "no {len} bytes of huge pages are free ({source}); reserve them by \
         `sysctl vm.nr_hugepages={pages}` or ask for huge pages only if available"
    )]
    NoHugePages {
        /// Bytes asked for.
        len: usize,
        /// Pages of 2 MiB needed.
        pages: usize,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A region file that was to be created exists.
    #[error("{path} exists already; open it, or remove it if what it holds is not needed any more")]
    FileExists {
        /// The file.
        path: String,
    },
    /// Another process writes the file.
    #[error(
        "{path} is in use by {}; stop that memory node, or give this one a file of its own",
        holder.map_or_else(|| "another process".to_owned(), |holder| format!("process {holder}"))
    )]
    FileInUse {
        /// The file.
        path: String,
        /// The other's process id, if the kernel tells.
        holder: Option<u32>,
    },
    /// The file system has no room for the file.
    #[error("no room for {len} bytes at {path} ({source}); free some, or ask for a smaller region")]
    NoSpace {
        /// The file.
        path: String,
        /// Bytes asked for.
        len: usize,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Huge pages were required of a file system that has none.
    #[error(
        "{path} does not lie on a hugetlbfs; mount one and choose a path there, \
         or ask for huge pages only if available"
    )]
    NotHugeFileSystem {
        /// The file.
        path: String,
    },
    /// The file cannot be one that holds memory.
    #[error("{path} {what}; remove it, or name another file")]
    NotMemory {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The operating system refused something about a file.
    #[error("{doing} {path} failed: {source}; {}", FileRemedy(source))]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The operating system refused.
    #[error(
        "{doing} of {len} bytes failed: {source}; check free memory and the limits of this user or container"
    )]
    Os {
        /// What was being done.
        doing: &'static str,
        /// Bytes asked for.
        len: usize,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// The remedy for an error of a file.
struct FileRemedy<'e>(&'e io::Error);

impl fmt::Display for FileRemedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match Errno::from_io_error(self.0) {
            Some(Errno::ACCESS | Errno::PERM) => {
                "give this user the right to read and write it and its directory, or run as its owner"
            }
            Some(Errno::NOENT | Errno::NOTDIR) => "create it, its directory included, or correct the path",
            Some(Errno::ROFS) => "choose a directory on a file system that is mounted for writing",
            Some(Errno::LOOP) => "the path names a symbolic link: name the file itself",
            Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (ulimit -n)",
            _ => "check the file system it lies on",
        })
    }
}
