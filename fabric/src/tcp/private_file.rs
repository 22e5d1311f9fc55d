//! Files of secrets: tokens, and the keys of certificates.

use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Longer files are none with secrets.
const MAX_FILE: u64 = 64 << 10;

/// Why a file of secrets is not used.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// Others could read or change it.
    Exposed,
    Failed(Error),
}

/// The text of a file that no other user can read or change: its group may read it.
pub(super) fn read(path: &Path) -> Result<String, Unreadable> {
    // A pipe is not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file =
        std::fs::File::options().read(true).custom_flags(flags).open(path).map_err(Unreadable::Failed)?;
    let metadata = file.metadata().map_err(Unreadable::Failed)?;
    let owner = metadata.uid();
    let is_ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o027 != 0 || !is_ours {
        return Err(Unreadable::Exposed);
    }
    let unfit = |why| Err(Unreadable::Failed(Error::new(ErrorKind::InvalidInput, why)));
    if !metadata.is_file() {
        return unfit("it is no regular file");
    }
    if metadata.len() > MAX_FILE {
        return unfit("it has more than 64 KiB");
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(Unreadable::Failed)?;
    Ok(text)
}
