//! Files of secrets: tokens, and the keys of certificates. Opening one waits for no other process.

use std::fs::File;
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

fn unfit(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, why)
}

/// Opens a regular file: a pipe that no process writes to would be waited for.
pub(super) fn open_regular(path: &Path) -> Result<File, Error> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(unfit("it is no regular file")) }
}

/// The text of a file that no other user can read or change: its group may read it.
pub(super) fn read(path: &Path) -> Result<String, Unreadable> {
    let file = open_regular(path).map_err(Unreadable::Failed)?;
    let metadata = file.metadata().map_err(Unreadable::Failed)?;
    let owner = metadata.uid();
    let is_ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o027 != 0 || !is_ours {
        return Err(Unreadable::Exposed);
    }
    if metadata.len() > MAX_FILE {
        return Err(Unreadable::Failed(unfit("it has more than 64 KiB")));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(Unreadable::Failed)?;
    Ok(text)
}
