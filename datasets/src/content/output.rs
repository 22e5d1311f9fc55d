//! Output files that get their name only when they are complete.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::encoding::Encoding;
use crate::error::DatasetError;

/// A file in the making: a temporary one beside the final name, which it takes in
/// [`finish`](Self::finish). An error, a panic or a dropped value leaves nothing behind.
pub(crate) struct Output {
    path: PathBuf,
    replace: bool,
    file: NamedTempFile,
}

impl Output {
    /// Begins a file. `replace` allows an existing file to be replaced.
    ///
    /// # Errors
    /// [`DatasetError::Exists`], [`DatasetError::CompressedOutput`] for a name ending in `.zst` or
    /// `.gz`, or `Io`.
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, DatasetError> {
        let program = match Encoding::of_name(path) {
            Encoding::Plain => None,
            Encoding::Gzip => Some("gzip"),
            Encoding::Zstd => Some("zstd"),
        };
        if let Some(program) = program {
            return Err(DatasetError::CompressedOutput { path: path.to_owned(), program });
        }
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
        let file = builder.tempfile_in(folder).map_err(|source| DatasetError::Io {
            path: path.to_owned(),
            action: "creating a file beside it",
            source,
        })?;
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
        last: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), DatasetError> {
        let file = self.file.as_file_mut();
        last(file).and_then(|()| file.sync_all()).map_err(|source| self.failed(source))?;
        let Self { path, replace, file } = self;
        let named = if replace { file.persist(&path) } else { file.persist_noclobber(&path) };
        match named {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(DatasetError::Exists { path })
            }
            Err(error) => Err(DatasetError::Io { path, action: "renaming", source: error.error }),
        }
    }

    fn failed(&self, source: io::Error) -> DatasetError {
        DatasetError::Io { path: self.path.clone(), action: "writing", source }
    }
}
