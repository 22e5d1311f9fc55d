//! Files, as the log and the snapshots use them: a trait, and its implementation on the file
//! system.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::folder::Folder;

/// One folder of files, named by plain names.
///
/// What is appended is durable after [`sync`](Disk::sync); what is created, renamed or removed
/// after [`sync_dir`](Disk::sync_dir). A `sync` that failed says that bytes may be lost although
/// they can still be read, and a later `sync` that succeeds says nothing about those: see Rebello
/// et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020, sections 3 and 5.
pub trait Disk: Send {
    /// The names of the files, in no order.
    ///
    /// # Errors
    /// If the folder cannot be read.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// Length of a file in bytes.
    ///
    /// # Errors
    /// If there is no such file or it cannot be examined.
    fn len(&self, name: &str) -> Result<u64, DiskError>;

    /// Fills `out` from `offset` on and returns how many bytes there were: fewer than asked for
    /// only at the end.
    ///
    /// # Errors
    /// If there is no such file or it cannot be read.
    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<usize, DiskError>;

    /// Fills `out` from `offset` on, of a file that is known to have so much.
    ///
    /// # Errors
    /// As of [`read`](Self::read), or if it gives fewer bytes: that is no end of the file, but a
    /// disk that fails.
    fn read_all(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), DiskError> {
        let read = self.read(name, offset, out)?;
        if read == out.len() {
            return Ok(());
        }
        let why = format!("the disk gives {read} of {} bytes from offset {offset} on", out.len());
        Err(DiskError::new("reading", name, io::Error::new(io::ErrorKind::UnexpectedEof, why)))
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// If there is one of that name already or none can be made.
    fn create(&mut self, name: &str) -> Result<(), DiskError>;

    /// Writes at the end of a file. After an error part of the bytes may have been written.
    ///
    /// # Errors
    /// If there is no such file, the disk is full or the write fails.
    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError>;

    /// Waits until the file's bytes are durable.
    ///
    /// # Errors
    /// If some may not be: now or ever, whatever a later call says.
    fn sync(&mut self, name: &str) -> Result<(), DiskError>;

    /// Waits until the folder's names are durable.
    ///
    /// # Errors
    /// If they may not be.
    fn sync_dir(&mut self) -> Result<(), DiskError>;

    /// Removes a file.
    ///
    /// # Errors
    /// If there is no such file or it cannot be removed.
    fn remove(&mut self, name: &str) -> Result<(), DiskError>;

    /// Removes a file if there is one of that name.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove_if_there(&mut self, name: &str) -> Result<(), DiskError> {
        match self.remove(name) {
            Err(error) if error.kind != DiskErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives a file another name, in place of a file that had it.
    ///
    /// # Errors
    /// If there is no such file or it cannot be renamed.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Cuts a file to `len` bytes.
    ///
    /// # Errors
    /// If there is no such file or it cannot be cut.
    fn truncate(&mut self, name: &str, len: u64) -> Result<(), DiskError>;

    /// Says that the caller will not append to a file any more.
    fn close(&mut self, _name: &str) {}

    /// About how many bytes may still be appended to files, if that can be told.
    ///
    /// # Errors
    /// If the folder cannot be examined.
    fn room(&self) -> Result<Option<u64>, DiskError> {
        Ok(None)
    }
}

/// An operation on a file that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{doing} {file} failed: {source}; {}", .kind.remedy())]
pub struct DiskError {
    /// What was being done.
    pub doing: &'static str,
    /// The file, with its folder where that is known.
    pub file: String,
    /// What can be done about it.
    pub kind: DiskErrorKind,
    /// The operating system's reason.
    pub source: Arc<io::Error>,
}

/// What can be done about a [`DiskError`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DiskErrorKind {
    /// No room: free some, or raise the quota.
    Full,
    /// There is no such file.
    NotFound,
    /// There is such a file already.
    Exists,
    /// Anything else.
    Io,
}

impl DiskErrorKind {
    fn remedy(self) -> &'static str {
        match self {
            Self::Full => "free space on that disk or raise its quota",
            Self::NotFound => "look whether the data folder is mounted and complete",
            Self::Exists => "look whether another process uses the data folder",
            Self::Io => "look at the system's log, and at the disk and the folder's permissions",
        }
    }
}

impl DiskError {
    /// An operation's failure, its kind taken from the operating system's reason.
    #[must_use]
    pub fn new(doing: &'static str, file: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::Full,
            io::ErrorKind::NotFound => DiskErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => DiskErrorKind::Exists,
            _ => DiskErrorKind::Io,
        };
        Self { doing, file: file.into(), kind, source: Arc::new(source) }
    }
}

/// A folder of the file system.
///
/// A file stays open from its creation, or its first append, until it is closed: the operating
/// system reports a failed write-back only to those who had the file open.
#[derive(Debug)]
pub struct FileDisk {
    folder: Folder,
    open: HashMap<String, File>,
}

impl FileDisk {
    /// The folder at this path, made if it is not there.
    ///
    /// # Errors
    /// If it can be neither made nor read, or others may write to it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, DiskError> {
        let path = folder.as_ref();
        let failed = |e: io::Error| DiskError::new("opening the folder", path.display().to_string(), e);
        let folder = Folder::named(path).map_err(|e| failed(e.into()))?;
        folder.names().map_err(failed)?;
        Ok(Self::within(folder))
    }

    /// A folder that is open.
    #[must_use]
    pub fn within(folder: Folder) -> Self {
        Self { folder, open: HashMap::new() }
    }

    /// Where the files lie.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn failed(&self, doing: &'static str, name: &str) -> impl FnOnce(io::Error) -> DiskError {
        let path = self.path(name).display().to_string();
        move |e| DiskError::new(doing, path, e)
    }

    fn writer(&mut self, name: &str) -> io::Result<&mut File> {
        if !self.open.contains_key(name) {
            let file = self.folder.open_file(name, OFlags::WRONLY | OFlags::APPEND)?;
            self.open.insert(name.to_owned(), file);
        }
        self.open.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Clone for FileDisk {
    /// The same folder, with none of its files open.
    fn clone(&self) -> Self {
        Self { folder: self.folder.clone(), open: HashMap::new() }
    }
}

impl Disk for FileDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.folder.names().map_err(self.failed("listing", ""))
    }

    fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.folder.len(name).map_err(self.failed("examining", name))
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<usize, DiskError> {
        let mut read = || -> io::Result<usize> {
            let file = self.folder.open_file(name, OFlags::RDONLY)?;
            let mut done = 0;
            while done < out.len() {
                match file.read_at(&mut out[done..], offset + done as u64) {
                    Ok(0) => break,
                    Ok(n) => done += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(done)
        };
        read().map_err(self.failed("reading", name))
    }

    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let file = self.folder.open_file(name, flags).map_err(self.failed("creating", name))?;
        self.open.insert(name.to_owned(), file);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.writer(name).and_then(|file| file.write_all(bytes)).map_err(self.failed("appending to", name))
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        // The length is synced with the data: fdatasync(2) leaves out only what reading does not
        // need.
        self.writer(name).and_then(|file| file.sync_data()).map_err(self.failed("syncing", name))
    }

    fn sync_dir(&mut self) -> Result<(), DiskError> {
        self.folder.sync().map_err(|e| self.failed("syncing the folder", "")(e.into()))
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.close(name);
        self.folder.remove_file(name).map_err(self.failed("removing", name))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.close(from);
        self.close(to);
        self.folder.rename(from, to).map_err(self.failed("renaming", from))
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<(), DiskError> {
        self.writer(name).and_then(|file| file.set_len(len)).map_err(self.failed("cutting", name))
    }

    fn close(&mut self, name: &str) {
        self.open.remove(name);
    }

    fn room(&self) -> Result<Option<u64>, DiskError> {
        self.folder.room().map_err(self.failed("examining the file system of", ""))
    }
}
