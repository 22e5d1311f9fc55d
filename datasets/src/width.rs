//! Names of SOSD files, and the width of the keys in them.

use std::fmt;
use std::path::Path;

/// Bytes of the count at the start of a file.
pub const HEADER_BYTES: u64 = 8;

/// Width of the keys in a file. In memory keys are always `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// `_uint32`
    U32,
    /// `_uint64`
    U64,
}

impl Width {
    /// Bytes of a key on disk: 4 or 8.
    pub fn bytes(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::U32 => Self::U64,
            Self::U64 => Self::U32,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U32 => "uint32",
            Self::U64 => "uint64",
        })
    }
}

/// The file's name without directories and without `.zst`: what the published checksums go by.
pub fn content_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".zst").unwrap_or(&name).to_owned()
}

/// Whether the name says that the content is compressed.
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}
