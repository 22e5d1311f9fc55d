//! Files that appear once they are complete.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;
use tempfile::NamedTempFile;

/// Where the descriptors of a process have names, of which one can be linked.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Links that are followed to a file that is not there.
const MOST_LINKS: u32 = 40;

/// A file that is being written, which gets its name when it is complete; or one that is written in
/// its place because it is a device or a pipe.
///
/// Dropped, it leaves nothing. A process that is ended leaves nothing either, but on file systems
/// that have no files without names a hidden one.
#[derive(Debug)]
pub struct OutputFile(Form);

#[derive(Debug)]
enum Form {
    /// Without a name: nothing is left of it, however the process ends.
    Unnamed(BufWriter<File>, PathBuf),
    /// Beside its final name, where the file system has no files without names.
    Beside(BufWriter<NamedTempFile>, PathBuf),
    InPlace(BufWriter<File>),
}

impl OutputFile {
    /// Begins a file of this name, or of the one that a symbolic link of this name leads to.
    ///
    /// # Errors
    /// If none can be made in its folder, or a device or pipe of this name cannot be opened.
    pub fn create(path: &Path) -> io::Result<Self> {
        // As any new file's, cut down by the umask, or those of the file that is replaced.
        let mut replaced = None;
        let path = match path.metadata() {
            Ok(metadata) if !metadata.is_file() => {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Self(Form::InPlace(BufWriter::new(file))));
            }
            // A link stays one.
            Ok(metadata) => {
                replaced = Some(metadata.permissions());
                path.canonicalize()?
            }
            Err(_) => end_of_links(path),
        };
        let folder = folder_of(&path);
        let file = match unnamed(folder) {
            Some(file) => Form::Unnamed(BufWriter::new(file), path),
            None => Form::Beside(BufWriter::new(beside(folder)?), path),
        };
        if let Some(permissions) = replaced {
            match &file {
                Form::Unnamed(file, _) | Form::InPlace(file) => file.get_ref(),
                Form::Beside(file, _) => file.get_ref().as_file(),
            }
            .set_permissions(permissions)?;
        }
        Ok(Self(file))
    }

    /// Syncs the file and gives it its name, in place of another of that name if it `replaces` one.
    ///
    /// # Errors
    /// If that fails; of the kind `AlreadyExists` if there is another and it replaces none.
    pub fn finish(self, replaces: bool) -> io::Result<()> {
        match self.0 {
            Form::Unnamed(file, path) => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.sync_all()?;
                name(&file, &path, replaces)?;
            }
            Form::Beside(file, path) => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.as_file().sync_all()?;
                if replaces {
                    file.persist(path)?
                } else {
                    file.persist_noclobber(path)?
                };
            }
            Form::InPlace(mut file) => file.flush()?,
        }
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Form::Unnamed(file, _) | Form::InPlace(file) => file.write(bytes),
            Form::Beside(file, _) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Form::Unnamed(file, _) | Form::InPlace(file) => file.flush(),
            Form::Beside(file, _) => file.flush(),
        }
    }
}

impl Seek for OutputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.0 {
            Form::Unnamed(file, _) | Form::InPlace(file) => file.seek(to),
            Form::Beside(file, _) => file.seek(to),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where symbolic links lead that end at no file.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(to) = fs::read_link(&path) else { break };
        path = folder_of(&path).join(to);
    }
    path
}

/// A file without a name, if there can be one that gets a name later.
fn unnamed(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let can_be_named = Path::new(DESCRIPTORS).is_dir();
    can_be_named.then(|| openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok().map(File::from))?
}

/// A file beside the others of a folder.
fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let file = builder.prefix(".fpcache-").permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
    // The error names a file that was not asked for.
    file.map_err(|error| {
        let (kind, shown) = (error.kind(), folder.display());
        let why = match kind {
            io::ErrorKind::NotFound if !folder.is_dir() => format!("there is no folder {shown}; create it"),
            kind => format!("no file can be made in the folder {shown} ({kind}); use another"),
        };
        io::Error::new(kind, why)
    })
}

/// Gives a file that has no name this one, in place of another that has it if it `replaces` one.
fn name(file: &File, path: &Path, replaces: bool) -> io::Result<()> {
    let own = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    let link = |to: &Path| linkat(CWD, &own, CWD, to, AtFlags::SYMLINK_FOLLOW);
    match link(path) {
        Err(Errno::EXIST) if replaces => {}
        linked => return Ok(linked?),
    }
    // A link replaces nothing, but a file that is renamed does.
    for number in 0..u32::MAX {
        let passing = folder_of(path).join(format!(".fpcache-{}-{number}", std::process::id()));
        match link(&passing) {
            Err(Errno::EXIST) => {}
            linked => {
                linked?;
                return fs::rename(&passing, path).inspect_err(|_| drop(fs::remove_file(&passing)));
            }
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn write(path: &Path, text: &str) {
        let mut file = OutputFile::create(path).expect("a file");
        file.write_all(text.as_bytes()).expect("room");
        file.finish(true).expect("a name");
    }

    /// Ended by a signal, an export left a hidden file behind.
    #[test]
    fn what_is_not_complete_has_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.tsv");
        let mut file = OutputFile::create(&path).expect("a file");
        file.write_all(&[b'x'; 1 << 20]).expect("room");
        if matches!(file, OutputFile(Form::Unnamed(..))) {
            assert_eq!(names(folder.path()), [""; 0]);
        }
        file.finish(true).expect("a name");
        assert_eq!(fs::read(&path).expect("it is there").len(), 1 << 20);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("its owner");
        write(&path, "again");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "again");
        assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["records.tsv"]);
    }

    #[test]
    fn where_files_need_names_one_beside_is_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.tsv");
        let beside = || {
            let file = BufWriter::new(beside(folder.path()).expect("a file"));
            let mut file = OutputFile(Form::Beside(file, path.clone()));
            file.write_all(b"text").expect("room");
            file
        };
        beside().finish(true).expect("a name");
        assert_eq!(
            (names(folder.path()), fs::read(&path).expect("it")),
            (vec!["records.tsv".into()], b"text".into())
        );
        for second in [beside(), OutputFile::create(&path).expect("a file")] {
            let error = second.finish(false).expect_err("it is there");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(names(folder.path()), ["records.tsv"]);
    }

    /// One that led to no file was replaced.
    #[test]
    fn links_stay_links() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("sub")).expect("a folder");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        symlink("second", &first).expect("a link");
        symlink("sub/records.tsv", &second).expect("a link");
        for text in ["new", "again"] {
            write(&first, text);
            assert!([&first, &second].iter().all(|link| link.is_symlink()));
            assert_eq!(fs::read_to_string(folder.path().join("sub/records.tsv")).expect("it is there"), text);
        }
        assert_eq!(names(&folder.path().join("sub")), ["records.tsv"]);
    }
}
