//! The daemon's log on its standard error, and its levels.
#![cfg(feature = "cli")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fpcache_fabric::tcp::Token;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::tokens::{Node, command, write};

/// Waits until `condition` holds.
#[track_caller]
fn eventually(condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < patience, "not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const FAILED: &str = "fpcache-memserver: error: keeping the old tokens";
const CHANGED: &str = "fpcache-memserver: reloaded the token file: 1 tokens";
const CONNECTED: &str = "fpcache-memserver: debug: a client has connected client=";

/// Which of these lines a daemon writes while its tokens are changed to ones that cannot be, and to
/// others: as soon as those that are expected are there.
fn written_by(mut command: Command, expected: [bool; 3]) -> [bool; 3] {
    let folder = tempfile::tempdir().unwrap();
    let (tokens, errors) = (folder.path().join("tokens"), folder.path().join("errors"));
    let (old, new) = (Token::random().unwrap(), Token::random().unwrap());
    write(&tokens, &format!("write {}", old.reveal()), 0o600);
    command.arg("--token-file").arg(&tokens).stderr(File::create(&errors).unwrap());
    let node = Node::start(command);
    let has = |line: &str| fs::read_to_string(&errors).unwrap().lines().any(|own| own.starts_with(line));
    let hang_up = || kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
    assert!(node.lets_in(Some(old)));

    write(&tokens, "write nothing", 0o600);
    hang_up();
    if expected[0] {
        eventually(|| has(FAILED));
    } else {
        // Nothing tells that it has been seen. One that comes later than this fails no test.
        std::thread::sleep(Duration::from_millis(100));
    }
    write(&tokens, &format!("write {}", new.reveal()), 0o600);
    hang_up();
    eventually(|| node.lets_in(Some(new)));
    for (line, expected) in [FAILED, CHANGED, CONNECTED].into_iter().zip(expected) {
        eventually(|| !expected || has(line));
    }
    [FAILED, CHANGED, CONNECTED].map(has)
}

#[test]
fn lines_name_the_program_and_their_level_and_those_below_the_asked_one_are_not_written() {
    for (options, lines) in [
        (&[][..], [true, true, false]),
        (&["--log", "debug"], [true, true, true]),
        (&["--log", "info"], [true, true, false]),
        (&["--log", "warn"], [true, false, false]),
        (&["--log", "error"], [true, false, false]),
        (&["--log", "off"], [false; 3]),
    ] {
        let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
        command.args(options);
        assert_eq!(written_by(command, lines), lines, "{options:?}");
    }
}

#[test]
fn the_environment_says_what_is_written_where_the_command_line_does_not() {
    for (options, lines) in [(&[][..], [true; 3]), (&["--log", "off"], [false; 3])] {
        let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
        command.env("FPCACHE_LOG", "debug").args(options);
        assert_eq!(written_by(command, lines), lines, "{options:?}");
    }
}

/// Its warning about a foreign connection kept it from everything else.
#[test]
fn a_daemon_whose_log_nobody_reads_serves_and_ends_all_the_same() {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let bytes = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    File::from(writer.try_clone().unwrap()).write_all(&vec![b'x'; bytes]).unwrap();
    let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
    command.stderr(Stdio::from(writer));
    let mut node = Node::start(command);
    let url = node.address.to_string();
    let mut foreign = TcpStream::connect(url.trim_start_matches("tcp://")).unwrap();
    foreign.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").unwrap();
    let _ = foreign.read(&mut [0; 16]);
    assert!(node.lets_in(None));

    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    let patience = Instant::now() + Duration::from_secs(10);
    let ended = loop {
        match node.child.try_wait().unwrap() {
            Some(ended) => break ended,
            None => assert!(Instant::now() < patience, "it has not ended"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(ended.success());
    drop(reader);
}
