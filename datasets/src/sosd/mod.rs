//! SOSD files: a little-endian `u64` count, then that many ascending little-endian keys of the
//! width that the file name's suffix gives, `_uint32` or `_uint64`. Duplicates are allowed by the
//! format. A further `.zst` means a zstd-compressed file, decompressed while reading.

mod reader;
mod writer;

use std::path::Path;

pub use reader::SosdReader;
pub use writer::SosdWriter;

use crate::error::DatasetError;
pub use crate::width::{HEADER_BYTES, Width, content_name, is_compressed};

impl Width {
    /// The width that a file's name gives, a `.zst` at its end left aside.
    ///
    /// # Errors
    /// [`DatasetError::UnknownWidth`] if the name ends in neither suffix.
    pub fn of_file(path: &Path) -> Result<Self, DatasetError> {
        let name = content_name(path);
        if name.ends_with("_uint32") {
            Ok(Self::U32)
        } else if name.ends_with("_uint64") {
            Ok(Self::U64)
        } else {
            Err(DatasetError::UnknownWidth { path: path.to_owned() })
        }
    }
}
