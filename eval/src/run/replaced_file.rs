//! Files of figures, which are replaced in one step where that can be.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::Context;
use fpcache_datasets::OutputFile;

/// Puts `bytes` into a file in one step: a reader, now or after an interruption, sees the old or
/// the new. Devices and pipes are written in their place, and so is a file that may be written but
/// not replaced: one that is mounted by itself, another user's in a sticky folder, or one in a folder
/// that is not to be written.
pub fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let mut file = OutputFile::create(path)?;
        file.write_all(bytes)?;
        file.finish(true)
    };
    let in_place = |error| {
        let mut file = irreplaceable(path, error)?;
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().or_else(in_place).with_context(|| format!("writing {}", path.display()))
}

/// Finds out now, rather than after hours of work, whether the file of an option can be written.
pub fn check_file(option: &str, path: &Path) -> anyhow::Result<()> {
    let told = || {
        format!("{option} {}: the file cannot be written; name one in a folder that is there", path.display())
    };
    let check = || {
        if path.is_file() {
            // One that is not to be written is not to be replaced.
            OpenOptions::new().append(true).open(path)?;
        }
        OutputFile::create(path).map(drop).or_else(|error| irreplaceable(path, error).map(drop))
    };
    check().with_context(told)
}

/// Opens a file that was not replaced because of this error, if it can be written all the same.
///
/// # Errors
/// The same.
fn irreplaceable(path: &Path, error: io::Error) -> io::Result<File> {
    let is_kept = matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
            | ErrorKind::ReadOnlyFilesystem
    );
    let opened = is_kept.then(|| OpenOptions::new().write(true).open(path).ok()).flatten();
    opened.ok_or(error)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// It was emptied first: an interruption then lost the rows of all that came before.
    #[test]
    fn figures_are_replaced_in_one_step() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["figures.json", "old.json"].map(|name| folder.path().join(name));
        replace(&path, b"before").unwrap();
        fs::hard_link(&path, &old).unwrap();
        replace(&path, b"after").unwrap();
        assert_eq!((fs::read(&old).unwrap(), fs::read(&path).unwrap()), (b"before".into(), b"after".into()));
        replace(Path::new("/dev/null"), b"after").unwrap();
        check_file("--json", Path::new("/dev/null")).unwrap();
    }

    /// The figures were lost at the end, or refused at the beginning.
    #[test]
    fn a_file_that_may_be_written_but_not_replaced_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.json");
        fs::write(&path, "longer than before").unwrap();
        // All the same to root.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
        check_file("--json", &path).unwrap();
        replace(&path, b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();

        for raw in [nix::errno::Errno::EBUSY, nix::errno::Errno::EPERM, nix::errno::Errno::EXDEV] {
            irreplaceable(&path, raw.into()).unwrap();
        }
        let full = irreplaceable(&path, ErrorKind::StorageFull.into()).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        let missing = irreplaceable(&folder.path().join("none"), ErrorKind::ResourceBusy.into()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::ResourceBusy);
    }
}
