//! Redis or Valkey, run as a server for an experiment: in memory, without persistence.

use std::sync::Arc;

use anyhow::{bail, ensure};

use super::server::{Server, free_port};
use super::socket::{Address, Dialect, Taken};

/// Programs that speak it, and the packages that have them.
pub const PROGRAMS: [(&str, &str); 2] =
    [("redis-server", "redis-server"), ("valkey-server", "valkey-server")];

/// The protocol of Redis (RESP2), of which it takes what answers a GET or MGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resp {
    /// A GET for each key, all sent together: a pipeline.
    Get,
    /// One MGET.
    MultiGet,
}

/// Starts a server, and says where it listens: over a file and over TCP.
///
/// # Errors
/// If it cannot be started.
pub fn start(program: &str) -> anyhow::Result<(Arc<Server>, [Address; 2])> {
    let port = free_port()?;
    let tcp = Address::Tcp(port);
    let words = |folder: &std::path::Path| {
        let (socket, folder) = (folder.join("socket"), folder.display().to_string());
        let (port, socket) = (port.port().to_string(), socket.display().to_string());
        let options = [
            ["--bind", "127.0.0.1"],
            ["--port", &port],
            ["--unixsocket", &socket],
            ["--dir", &folder],
            ["--save", ""],
            ["--appendonly", "no"],
        ];
        options.concat().into_iter().map(str::to_owned).collect()
    };
    let is_up = |folder: &std::path::Path| tcp.is_up() && Address::Unix(folder.join("socket")).is_up();
    let server = Server::start(program, "both", words, is_up)?;
    let unix = Address::Unix(server.folder().join("socket"));
    Ok((Arc::new(server), [unix, tcp]))
}

impl Dialect for Resp {
    fn ask(self, keys: &[&[u8]], out: &mut Vec<u8>) {
        if self == Self::MultiGet {
            put_number(out, b'*', keys.len() + 1);
            put_bulk(out, b"MGET");
            keys.iter().for_each(|key| put_bulk(out, key));
            return;
        }
        for key in keys {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            put_bulk(out, key);
        }
    }

    fn take(self, keys: &[&[u8]], bytes: &[u8], taken: &mut Taken) -> anyhow::Result<bool> {
        if self == Self::MultiGet && taken.at == 0 {
            let Some((kind, count, at)) = head(bytes, 0)? else { return Ok(false) };
            ensure!(kind == b'*' && count == keys.len() as i64, "an MGET of {} keys got {count}", keys.len());
            taken.at = at;
        }
        while taken.answers.len() < keys.len() {
            let Some((kind, length, at)) = head(bytes, taken.at)? else { return Ok(false) };
            ensure!(kind == b'$', "a value was expected, the reply begins with {:?}", char::from(kind));
            let Ok(length) = usize::try_from(length) else {
                taken.answers.push(None);
                taken.at = at;
                continue;
            };
            let next = at + length + 2;
            if bytes.len() < next {
                return Ok(false);
            }
            taken.answers.push(Some(at..at + length));
            taken.at = next;
        }
        Ok(true)
    }

    fn store(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        put_bulk(out, key);
        put_bulk(out, value);
    }

    fn stored(self) -> &'static [u8] {
        b"+OK\r\n"
    }
}

fn put_number(out: &mut Vec<u8>, kind: u8, mut number: usize) {
    let (mut digits, mut first) = ([0; 20], 20);
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[first..]);
    out.extend_from_slice(b"\r\n");
}

fn put_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The kind and the number of the line at `at`, and where the next one begins; `None` if it has not
/// come whole.
fn head(bytes: &[u8], at: usize) -> anyhow::Result<Option<(u8, i64, usize)>> {
    let Some((&kind, rest)) = bytes.get(at..).and_then(<[u8]>::split_first) else { return Ok(None) };
    let Some(length) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let line = rest[..length].strip_suffix(b"\r").unwrap_or(&rest[..length]);
    if kind == b'-' {
        bail!("the store refused: {}", String::from_utf8_lossy(line));
    }
    let (is_negative, digits) = line.strip_prefix(b"-").map_or((false, line), |digits| (true, digits));
    let mut number = 0i64;
    for &digit in digits {
        ensure!(digit.is_ascii_digit() && number < 1 << 40, "no number: {}", String::from_utf8_lossy(line));
        number = number * 10 + i64::from(digit - b'0');
    }
    Ok(Some((kind, if is_negative { -number } else { number }, at + 1 + length + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spelt_as_the_protocol_has_them() {
        let mut out = Vec::new();
        Resp::Get.ask(&[b"a", b"key"], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        out.clear();
        Resp::MultiGet.ask(&[b"a", b"ten bytes!"], &mut out);
        assert_eq!(out, b"*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$10\r\nten bytes!\r\n");
        out.clear();
        Resp::Get.store(b"k", b"", &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_are_taken_however_they_are_cut() {
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        for (dialect, reply) in [
            (Resp::Get, &b"$2\r\nx\n\r\n$-1\r\n$0\r\n\r\n"[..]),
            (Resp::MultiGet, b"*3\r\n$2\r\nx\n\r\n$-1\r\n$0\r\n\r\n"),
        ] {
            for cut in 0..reply.len() {
                let mut taken = Taken::default();
                assert!(!dialect.take(&keys, &reply[..cut], &mut taken).unwrap(), "cut at {cut}");
                assert!(dialect.take(&keys, reply, &mut taken).unwrap());
                let values: Vec<_> =
                    taken.answers.iter().map(|answer| Some(&reply[answer.clone()?])).collect();
                assert_eq!(values, [Some(&b"x\n"[..]), None, Some(&b""[..])]);
            }
        }
    }

    #[test]
    fn what_is_no_value_is_an_error() {
        for reply in ["-ERR no\r\n", "+OK\r\n", ":1\r\n", "$x\r\n", "$99999999999999999999\r\n"] {
            assert!(Resp::Get.take(&[b"a"], reply.as_bytes(), &mut Taken::default()).is_err(), "{reply}");
        }
        assert!(Resp::MultiGet.take(&[b"a"], b"*2\r\n", &mut Taken::default()).is_err());
    }
}
