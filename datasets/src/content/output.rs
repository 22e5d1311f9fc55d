//! Output files that get their name only when they are complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::encoding::Encoding;
use super::output_file::OutputFile;
use crate::error::DatasetError;

/// A file in the making, which takes its name in [`finish`](Self::finish). An error, a panic or a
/// dropped value leaves nothing behind.
pub(crate) struct Output {
    path: PathBuf,
    replace: bool,
    file: OutputFile,
}

impl Output {
    /// Begins a file. `replace` allows an existing file to be replaced.
    ///
    /// # Errors
    /// [`DatasetError::Exists`], [`DatasetError::CompressedOutput`] for a name ending in `.zst` or
    /// `.gz`, [`DatasetError::NotRegular`] for one of a device or pipe, or `Io`.
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, DatasetError> {
        let program = match Encoding::of_name(path) {
            Encoding::Plain => None,
            Encoding::Gzip => Some("gzip"),
            Encoding::Zstd => Some("zstd"),
        };
        if let Some(program) = program {
            return Err(DatasetError::CompressedOutput { path: path.to_owned(), program });
        }
        match path.metadata() {
            Ok(_) if !replace => return Err(DatasetError::Exists { path: path.to_owned() }),
            Ok(there) if !there.is_file() => return Err(DatasetError::NotRegular { path: path.to_owned() }),
            _ => {}
        }
        let failed = |source| DatasetError::Io { path: path.to_owned(), action: "creating the file", source };
        let file = OutputFile::create(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), replace, file })
    }

    /// The final name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), DatasetError> {
        self.file.write_all(bytes).map_err(|source| self.failed(source))
    }

    /// Lets `last` have the file, syncs it and gives it its name.
    ///
    /// # Errors
    /// [`DatasetError::Exists`] if the name was taken meanwhile, or `Io`.
    pub(crate) fn finish(
        mut self,
        last: impl FnOnce(&mut OutputFile) -> io::Result<()>,
    ) -> Result<(), DatasetError> {
        last(&mut self.file).map_err(|source| self.failed(source))?;
        let Self { path, replace, file } = self;
        file.finish(replace).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => DatasetError::Exists { path },
            _ => DatasetError::Io { path, action: "completing the file", source },
        })
    }

    fn failed(&self, source: io::Error) -> DatasetError {
        DatasetError::Io { path: self.path.clone(), action: "writing", source }
    }
}
