//! What the daemon writes to its standard error, and how much of it.
#![cfg(feature = "cli")]

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fpcache_fabric::tcp::Token;
use rustix::process::{Pid, Signal, kill_process};

use crate::tokens::{Node, command, write};

/// What a daemon with these options writes while its tokens are changed to ones that cannot be, and to others.
fn written_with(options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let (old, new) = (Token::random().unwrap(), Token::random().unwrap());
    write(&file, &format!("write {}", old.reveal()), 0o600);
    let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
    command.env_remove("FPCACHE_LOG").arg("--token-file").arg(&file).args(options).stderr(Stdio::piped());
    let mut node = Node::start(command);
    let mut errors = node.child.stderr.take().unwrap();
    assert!(node.lets_in(Some(old)));
    let hang_up = |child| kill_process(Pid::from_child(child), Signal::HUP).unwrap();
    write(&file, "write nothing", 0o600);
    hang_up(&node.child);
    // Of two signals that come at once one is seen.
    std::thread::sleep(Duration::from_millis(500));
    write(&file, &format!("write {}", new.reveal()), 0o600);
    hang_up(&node.child);
    let patience = Instant::now() + Duration::from_secs(5);
    while !node.lets_in(Some(new)) {
        assert!(Instant::now() < patience, "the new token is not known");
        std::thread::sleep(Duration::from_millis(100));
    }
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    let mut text = String::new();
    errors.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn lines_name_the_program_and_their_level_and_those_below_the_asked_one_are_not_written() {
    let failed = "fpcache-memserver: error: keeping the old tokens";
    let changed = "fpcache-memserver: reloaded the token file: 1 tokens";
    let connected = "fpcache-memserver: debug: a client has connected client=";
    for (options, lines) in [
        (&[][..], [true, true, false]),
        (&["--log", "debug"], [true, true, true]),
        (&["--log", "error"], [true, false, false]),
        (&["--log", "off"], [false; 3]),
    ] {
        let text = written_with(options);
        let found = [failed, changed, connected].map(|line| text.lines().any(|own| own.starts_with(line)));
        assert_eq!(found, lines, "{options:?}: {text}");
    }
}
