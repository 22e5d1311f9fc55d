//! A small HTTP server for figures: `GET` alone, a few connections at a time, each of which is
//! closed after its answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Bytes that a request may have.
const MOST: usize = 8 << 10;
/// Connections that are attended to at a time: a client that sends nothing holds up one.
const AT_A_TIME: usize = 16;
/// Time for a client to send its request, and again to take its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a connection that could not be accepted, as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What is answered to a path.
pub(crate) struct Answer {
    /// Whether all is well: `200`, or else `503`.
    pub(crate) is_well: bool,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// A status and its phrase.
type Status = &'static str;

/// Answers requests for paths until the stop is readable, and those that are being attended to
/// then.
pub(crate) fn serve(
    listener: &TcpListener,
    stop: &UnixStream,
    answer: impl Fn(&str) -> Option<Answer> + Sync,
) -> io::Result<()> {
    // A thread to which another leaves no connection waits for the next one.
    listener.set_nonblocking(true)?;
    thread::scope(|scope| {
        for _ in 1..AT_A_TIME {
            // Fewer threads will do.
            let _ = thread::Builder::new().spawn_scoped(scope, || attend_each(listener, stop, &answer));
        }
        attend_each(listener, stop, &answer)
    })
}

/// Takes connections, one after the other, until the stop is readable.
fn attend_each(
    listener: &TcpListener,
    stop: &UnixStream,
    answer: &impl Fn(&str) -> Option<Answer>,
) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        match listener.accept() {
            // A client that breaks off is no matter of the others.
            Ok((client, _)) => drop(answer_request(client, answer)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Reads a request and answers it.
fn answer_request(mut client: TcpStream, answer: &impl Fn(&str) -> Option<Answer>) -> io::Result<()> {
    let mut request = Vec::new();
    let until = Instant::now() + PATIENCE;
    let path = match read_head(&mut client, &mut request, until)? {
        true => path_of(&request),
        false => Err("431 Request Header Fields Too Large"),
    };
    let is_refused = path.is_err();
    let (status, answer) = match path.map(answer) {
        Ok(Some(answer)) if answer.is_well => ("200 OK", answer),
        Ok(Some(answer)) => ("503 Service Unavailable", answer),
        Ok(None) => refusal("404 Not Found"),
        Err(status) => refusal(status),
    };
    let until = Instant::now() + PATIENCE;
    write_all(&mut client, head(status, &answer).as_bytes(), until)?;
    write_all(&mut client, answer.body.as_bytes(), until)?;
    client.shutdown(Shutdown::Write)?;
    if is_refused {
        // Closed with something unread, the client may lose the answer.
        while read(&mut client, &mut [0; 1 << 10], until)? > 0 {}
    }
    Ok(())
}

fn refusal(status: Status) -> (Status, Answer) {
    let body = format!("{status}: GET /metrics or /healthz\n");
    (status, Answer { is_well: false, content_type: "text/plain; charset=utf-8", body })
}

fn head(status: Status, answer: &Answer) -> String {
    let Answer { content_type, body, .. } = answer;
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    )
}

/// Reads up to the empty line; says whether one came within the bytes that a request may have.
fn read_head(client: &mut TcpStream, request: &mut Vec<u8>, until: Instant) -> io::Result<bool> {
    let mut room = [0; 1 << 10];
    loop {
        let is_whole = |end: &[u8]| request.windows(end.len()).any(|bytes| bytes == end);
        if is_whole(b"\r\n\r\n") || is_whole(b"\n\n") {
            return Ok(true);
        }
        if request.len() >= MOST {
            return Ok(false);
        }
        match read(client, &mut room, until)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => request.extend_from_slice(&room[..bytes]),
        }
    }
}

/// The path that a request asks for, without a query.
fn path_of(request: &[u8]) -> Result<&str, Status> {
    const BAD: Status = "400 Bad Request";
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = str::from_utf8(line.trim_ascii_end()).map_err(|_| BAD)?;
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(_), Some(_), Some(version), None) if !version.starts_with("HTTP/1.") => Err(BAD),
        (Some(_), Some(target), Some(_), None) if !target.starts_with('/') => Err(BAD),
        (Some("GET"), Some(target), Some(_), None) => Ok(target.split('?').next().unwrap_or_default()),
        (Some(_), Some(_), Some(_), None) => Err("405 Method Not Allowed"),
        _ => Err(BAD),
    }
}

/// What is left of the time, which is an error once nothing is.
fn left(until: Instant) -> io::Result<Option<Duration>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

fn read(client: &mut TcpStream, room: &mut [u8], until: Instant) -> io::Result<usize> {
    client.set_read_timeout(left(until)?)?;
    client.read(room)
}

fn write_all(client: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        client.set_write_timeout(left(until)?)?;
        match client.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_for_a_path_is_refused() {
        for (request, path) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Ok("/metrics")),
            ("GET /metrics?collect=all HTTP/1.0\n\n", Ok("/metrics")),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Err("405")),
            ("POST /metrics HTTP/1.1\r\n\r\n", Err("405")),
            ("GET /metrics HTTP/2\r\n\r\n", Err("400")),
            ("GET /metrics\r\n\r\n", Err("400")),
            ("GET  HTTP/1.1\r\n\r\n", Err("400")),
            ("GET /a b HTTP/1.1\r\n\r\n", Err("400")),
            ("\r\n\r\n", Err("400")),
        ] {
            assert_eq!(path_of(request.as_bytes()).map_err(|status| &status[..3]), path, "{request:?}");
        }
        assert!(path_of(b"GET /\xff HTTP/1.1\r\n\r\n").is_err());
    }
}
