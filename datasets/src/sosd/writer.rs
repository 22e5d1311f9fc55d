//! Writing SOSD files so that a file of the final name is always whole.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{HEADER_BYTES, Width, is_compressed};
use crate::error::DatasetError;

/// Keys encoded per write.
const STEP: usize = 1 << 15;

/// Writes a SOSD file: into a temporary file beside it, which takes the final name in [`finish`](Self::finish). An
/// error, a panic or a dropped writer leaves nothing behind.
pub struct SosdWriter {
    path: PathBuf,
    width: Width,
    replace: bool,
    file: NamedTempFile,
    count: u64,
    previous: u64,
    encoded: Vec<u8>,
}

impl SosdWriter {
    /// Begins a file, of the width that its name gives. `replace` allows an existing file to be replaced.
    ///
    /// # Errors
    /// [`DatasetError::Exists`], [`DatasetError::UnknownWidth`], [`DatasetError::CompressedOutput`] for a name
    /// ending in `.zst`, or `Io`.
    pub fn create(path: &Path, replace: bool) -> Result<Self, DatasetError> {
        if is_compressed(path) {
            return Err(DatasetError::CompressedOutput { path: path.to_owned() });
        }
        let width = Width::of_file(path)?;
        if !replace && path.exists() {
            return Err(DatasetError::Exists { path: path.to_owned() });
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".fpcache-datasets-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file's, cut down by the umask; temporary files are private otherwise.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let io =
            |source| DatasetError::Io { path: path.to_owned(), action: "creating a file beside it", source };
        let mut file = builder.tempfile_in(folder).map_err(io)?;
        file.write_all(&[0; HEADER_BYTES as usize]).map_err(io)?;
        let path = path.to_owned();
        Ok(Self { path, width, replace, file, count: 0, previous: 0, encoded: Vec::new() })
    }

    /// Appends keys.
    ///
    /// # Errors
    /// [`DatasetError::TooWide`] for a key beyond 32 bits in a `_uint32` file, [`DatasetError::Unsorted`], or `Io`.
    pub fn push(&mut self, keys: &[u64]) -> Result<(), DatasetError> {
        for chunk in keys.chunks(STEP) {
            self.encoded.clear();
            for &key in chunk {
                let offset = HEADER_BYTES + self.count * self.width.bytes() as u64;
                if key < self.previous {
                    let (path, previous) = (self.path.clone(), self.previous);
                    return Err(DatasetError::Unsorted { path, offset, previous, next: key });
                }
                match self.width {
                    Width::U64 => self.encoded.extend_from_slice(&key.to_le_bytes()),
                    Width::U32 => match u32::try_from(key) {
                        Ok(narrow) => self.encoded.extend_from_slice(&narrow.to_le_bytes()),
                        Err(_) => return Err(DatasetError::TooWide { path: self.path.clone(), key, offset }),
                    },
                }
                self.previous = key;
                self.count += 1;
            }
            self.file.write_all(&self.encoded).map_err(|source| self.failed("writing", source))?;
        }
        Ok(())
    }

    /// Writes the count, syncs, and gives the file its name. Returns the number of keys.
    ///
    /// # Errors
    /// [`DatasetError::Empty`] without keys, [`DatasetError::Exists`] if the name was taken meanwhile, or `Io`.
    pub fn finish(mut self) -> Result<u64, DatasetError> {
        if self.count == 0 {
            return Err(DatasetError::Empty { path: self.path });
        }
        let header = self.count.to_le_bytes();
        let file = self.file.as_file_mut();
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&header))
            .and_then(|()| file.sync_all())
            .map_err(|source| DatasetError::Io { path: self.path.clone(), action: "writing", source })?;
        let named = match self.replace {
            true => self.file.persist(&self.path),
            false => self.file.persist_noclobber(&self.path),
        };
        match named {
            Ok(_) => Ok(self.count),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(DatasetError::Exists { path: self.path })
            }
            Err(error) => Err(DatasetError::Io { path: self.path, action: "renaming", source: error.error }),
        }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> DatasetError {
        DatasetError::Io { path: self.path.clone(), action, source }
    }
}
