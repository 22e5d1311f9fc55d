//! memcached, run as a server for an experiment.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};

use super::server::{Server, free_port};
use super::socket::{Address, Dialect, Taken};

/// The program, which is its package's name, too.
pub const PROGRAM: &str = "memcached";
/// Longest key it takes.
pub const MAX_KEY_BYTES: usize = 250;

/// memcached's text protocol, of which it takes what answers a `get` of several keys.
#[derive(Clone, Copy, Debug)]
pub struct Text;

/// Starts a server with room for `bytes` bytes, over a file or over TCP: it has one way there.
///
/// # Errors
/// If it cannot be started.
pub fn start(bytes: u64, over_tcp: bool) -> anyhow::Result<(Arc<Server>, Address)> {
    let port = free_port()?;
    let address = |folder: &Path| match over_tcp {
        true => Address::Tcp(port),
        false => Address::Unix(folder.join("socket")),
    };
    let words = |folder: &Path| {
        let mut words = vec![
            // An error, rather than a record that is quietly left out.
            "-M".to_owned(),
            "-m".to_owned(),
            bytes.div_ceil(1 << 20).max(64).to_string(),
            "-t".to_owned(),
            "1".to_owned(),
        ];
        if rustix::process::geteuid().is_root() {
            words.extend(["-u".to_owned(), "root".to_owned()]);
        }
        match address(folder) {
            Address::Tcp(port) => {
                words.extend(
                    ["-l", "127.0.0.1", "-p", &port.port().to_string(), "-U", "0"].map(str::to_owned),
                );
            }
            Address::Unix(path) => words.extend(["-s".to_owned(), path.display().to_string()]),
        }
        words
    };
    let label = if over_tcp { "tcp" } else { "unix" };
    let server = Server::start(PROGRAM, label, words, |folder| address(folder).is_up())?;
    let address = address(server.folder());
    Ok((Arc::new(server), address))
}

impl Dialect for Text {
    fn ask(self, keys: &[&[u8]], out: &mut Vec<u8>) {
        out.extend_from_slice(b"get");
        for key in keys {
            out.push(b' ');
            out.extend_from_slice(key);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Values come in the order of their keys; those that are not there are left out.
    fn take(self, keys: &[&[u8]], bytes: &[u8], taken: &mut Taken) -> anyhow::Result<bool> {
        loop {
            let rest = &bytes[taken.at..];
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(false) };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            if line == b"END" {
                taken.answers.resize(keys.len(), None);
                taken.at += end + 1;
                return Ok(true);
            }
            let mut words = line.split(|&byte| byte == b' ');
            let (Some(b"VALUE"), Some(key), Some(_), Some(length)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                bail!("the store said: {}", String::from_utf8_lossy(line));
            };
            let length: usize = str::from_utf8(length)?.parse().context("the length of a value")?;
            let at = taken.at + end + 1;
            if bytes.len() < at + length + 2 {
                return Ok(false);
            }
            while keys.get(taken.answers.len()).is_some_and(|asked| *asked != key) {
                taken.answers.push(None);
            }
            ensure!(taken.answers.len() < keys.len(), "a value of a key that was not asked for");
            taken.answers.push(Some(at..at + length));
            taken.at = at + length + 2;
        }
    }

    fn store(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"set ");
        out.extend_from_slice(key);
        out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    fn stored(self) -> &'static [u8] {
        b"STORED\r\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_however_they_are_cut_and_missing_keys_are_absent() {
        let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"a"];
        let reply = b"VALUE b 0 3\r\nE\nD\r\nVALUE a 0 0\r\n\r\nEND\r\n";
        for cut in 0..reply.len() {
            let mut taken = Taken::default();
            assert!(!Text.take(&keys, &reply[..cut], &mut taken).unwrap(), "cut at {cut}");
            assert!(Text.take(&keys, reply, &mut taken).unwrap());
            let values: Vec<_> = taken.answers.iter().map(|answer| Some(&reply[answer.clone()?])).collect();
            assert_eq!(values, [None, Some(&b"E\nD"[..]), None, Some(&b""[..])]);
        }
    }

    #[test]
    fn what_is_no_value_is_an_error() {
        for reply in
            ["ERROR\r\n", "VALUE a 0 x\r\n", "VALUE z 0 1\r\n1\r\n", "SERVER_ERROR out of memory\r\n"]
        {
            assert!(Text.take(&[b"a"], reply.as_bytes(), &mut Taken::default()).is_err(), "{reply}");
        }
    }
}
