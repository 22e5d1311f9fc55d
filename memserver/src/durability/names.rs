//! The names of files.

use super::disk::{Disk, DiskError};
use super::lsn::Lsn;

/// The name of the file whose first record is `first`.
pub(super) fn log_name(first: Lsn) -> String {
    format!("log-{first:016x}.fpl")
}

/// The first LSN in a name of the form `<before><16 hexadecimal digits><after>`.
pub(super) fn lsn_in_name(name: &str, before: &str, behind: &str) -> Option<Lsn> {
    let digits = name.strip_prefix(before)?.strip_suffix(behind)?;
    let is_ours = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_ours { Lsn::from_str_radix(digits, 16).ok() } else { None }
}

/// The log's files in order, by their names alone.
pub(super) fn list_logs(disk: &impl Disk) -> Result<Vec<(Lsn, String)>, DiskError> {
    let mut found = Vec::new();
    for name in disk.list()? {
        if let Some(first) = lsn_in_name(&name, "log-", ".fpl") {
            found.push((first, name));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(log_name(0x1f), "log-000000000000001f.fpl");
        let lsn = |name| lsn_in_name(name, "log-", ".fpl");
        assert_eq!(lsn("log-000000000000001f.fpl"), Some(0x1f));
        for name in [
            "log-1f.fpl",
            "log-000000000000001F.fpl",
            "log-+00000000000001f.fpl",
            "log-000000000000001f.fpl~",
        ] {
            assert_eq!(lsn(name), None, "{name}");
        }
    }
}
