//! The daemon's log on its standard error, and its levels.
#![cfg(feature = "cli")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fpcache_fabric::tcp::{ConnectOptions, Token, connect};
use fpcache_memserver::daemon::log_to_stderr;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, kill_process};
use tracing::level_filters::LevelFilter;

use crate::tokens::{Node, command, write};

/// Waits until `condition` holds.
#[track_caller]
fn eventually(condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
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

/// Their times were those of whatever read them.
#[test]
fn lines_have_the_time_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let durable = |form: &str| {
        let mut command = command(&["--listen", "tcp://127.0.0.1:0", "--log-format", form, "--data-dir"]);
        command.arg(folder.path());
        command
    };
    let is_time = |text: &str| text.len() == 27 && text.ends_with('Z') && text.as_bytes()[10] == b'T';
    let loading = |form: &str| {
        let mut command = durable(form);
        command.args(["--load", "sequential:10"]);
        command
    };
    drop(Node::start(loading("plain")));
    let errors = folder.path().join("errors");
    for form in ["text", "json"] {
        let mut again = loading(form);
        again.stderr(File::create(&errors).unwrap());
        let mut node = Node::start(again);
        let failed = durable(form).output().unwrap();
        assert_eq!(failed.status.code(), Some(2));
        kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
        assert!(end_of(&mut node.child).success());
        let written = fs::read_to_string(&errors).unwrap() + &String::from_utf8(failed.stderr).unwrap();
        for (part, level, begin) in [
            ("skipping --load", "INFO", "fpcache-memserver: skipping"),
            ("another memory node uses", "ERROR", "error: "),
        ] {
            let line = written.lines().find(|line| line.contains(part)).expect(part);
            let (time, text) = match form {
                "json" => {
                    let (time, rest) =
                        line.strip_prefix("{\"timestamp\":\"").unwrap().split_once("\",").unwrap();
                    (time, rest.strip_prefix(&format!("\"level\":\"{level}\",\"message\":\"")).unwrap())
                }
                _ => line.split_once(' ').unwrap(),
            };
            let begin = if form == "json" { begin.trim_start_matches("fpcache-memserver: ") } else { begin };
            assert!(is_time(time) && text.starts_with(begin), "{line}");
        }
    }
}

/// A pipe that is full, and that nobody reads as long as the first end of it is there.
fn unread_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let bytes = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    File::from(writer.try_clone().unwrap()).write_all(&vec![b'x'; bytes]).unwrap();
    (reader, writer)
}

#[track_caller]
fn end_of(child: &mut Child) -> ExitStatus {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match child.try_wait().unwrap() {
            Some(ended) => return ended,
            None if Instant::now() > patience => {
                let _ = child.kill();
                panic!("it has not ended");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Its warning about a foreign connection kept it from everything else.
#[test]
fn a_daemon_whose_log_nobody_reads_serves_and_ends_all_the_same() {
    let (_reader, writer) = unread_pipe();
    let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
    command.stderr(Stdio::from(writer));
    let mut node = Node::start(command);
    let url = node.address.to_string();
    let mut foreign = TcpStream::connect(url.trim_start_matches("tcp://")).unwrap();
    foreign.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").unwrap();
    let _ = foreign.read(&mut [0; 16]);
    assert!(node.lets_in(None));

    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    assert!(end_of(&mut node.child).success());
}

/// It waited for a reader of its greeting, and meanwhile served nobody.
#[test]
fn a_daemon_whose_greeting_nobody_reads_serves_and_ends_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("tcp+unix://{}", folder.path().join("socket").display());
    let (_reader, writer) = unread_pipe();
    let child = command(&["--listen", &url]).stdout(Stdio::from(writer)).spawn().unwrap();
    let mut node = Node { child, address: url.parse().unwrap() };
    eventually(|| connect(&node.address, ConnectOptions::default()).is_ok());
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    assert!(end_of(&mut node.child).success());
}

/// It waited for a reader of why it had failed.
#[test]
fn a_daemon_whose_log_nobody_reads_ends_also_where_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let durable = || {
        let mut command = command(&["--listen", "tcp://127.0.0.1:0", "--data-dir"]);
        command.arg(folder.path());
        command
    };
    let _first = Node::start(durable());
    let (_reader, writer) = unread_pipe();
    let mut second = durable().stderr(Stdio::from(writer)).spawn().unwrap();
    assert_eq!(end_of(&mut second).code(), Some(2));
}

/// A process of [`a_panic_ends_a_thread_also_where_nobody_reads_of_it`].
#[test]
#[ignore = "fails on purpose, in a process of its own"]
fn panics() {
    let log = log_to_stderr(LevelFilter::INFO);
    log.take_panics();
    for n in 0..3 {
        tracing::error!("line {n}");
    }
    std::thread::sleep(Duration::from_millis(100));
    panic!("told of");
}

/// The thread kept all that it held, the folder's lock among it.
#[test]
fn a_panic_ends_a_thread_also_where_nobody_reads_of_it() {
    let process = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "log::panics", "--ignored", "--nocapture"]).stdout(Stdio::null());
        command
    };
    let (_reader, writer) = unread_pipe();
    let mut child = process().stderr(Stdio::from(writer)).spawn().unwrap();
    assert_eq!(end_of(&mut child).code(), Some(101));
    let read = String::from_utf8(process().stderr(Stdio::piped()).output().unwrap().stderr).unwrap();
    assert!(read.contains("thread 'log::panics' panicked at") && read.contains("told of"), "{read}");
}
