//! The daemon's tokens: where they are, who may read them, and that they can be changed.
#![cfg(feature = "cli")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fpcache_fabric::tcp::{ConnectOptions, TcpAddress, Token, connect};
use fpcache_fabric::{Connection, FabricError};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub fn command(options: &[&str]) -> Command {
    let mut command = crate::program();
    command.args(["--exit-with-parent", "--capacity", "8MiB"]).args(options);
    command
}

/// What it says when it does not start.
#[track_caller]
pub fn refusal(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A daemon at a port of its own.
pub struct Node {
    pub child: Child,
    pub address: TcpAddress,
}

impl Node {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines: Vec<String> = lines.take_while(|line| !line.starts_with("  next ")).collect();
        let address = lines.iter().find_map(|line| line.strip_prefix("  address")).unwrap();
        let address = address.trim().replace("0.0.0.0", "127.0.0.1").parse().unwrap();
        Self { child, address }
    }

    pub fn lets_in(&self, token: Option<Token>) -> bool {
        match connect(&self.address, ConnectOptions { token, ..Default::default() }) {
            Ok(connection) => connection.is_alive(),
            Err(FabricError::TokenRefused { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_daemon_that_others_reach_wants_tokens_that_nobody_else_can_read() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let anywhere = ["--listen", "tcp://0.0.0.0:0"];
    let text = refusal(command(&anywhere));
    assert!(text.contains("tcp://0.0.0.0:0") && text.contains("--token-file"), "{text}");
    let text = refusal(command(&["--listen", "tcp://127.0.0.1:0", "--require-token"]));
    assert!(text.contains("--token-file"), "{text}");

    let token = Token::random().unwrap();
    let line = format!("write {}\n", token.reveal());
    let with_file = || {
        let mut command = command(&anywhere);
        command.arg("--token-file").arg(&file);
        command
    };
    for (text, mode, why) in [
        (&*line, 0o644, "chmod 600"),
        ("", 0o600, "no token"),
        (&format!("# mine\n{}", token.reveal()), 0o600, "line 2"),
    ] {
        write(&file, text, mode);
        let told = refusal(with_file());
        assert!(told.contains(why) && told.contains(&*file.to_string_lossy()), "{told}");
        assert!(!told.contains(&token.reveal()), "{told}");
    }
    let mut by_environment = command(&anywhere);
    by_environment
        .env("FPCACHE_NODE_TOKENS", format!("read {}", Token::random().unwrap().reveal()) + ";" + &line);
    let node = Node::start(by_environment);
    assert!(node.lets_in(Some(token)) && !node.lets_in(None));
    write(&file, &line, 0o600);
    let node = Node::start(with_file());
    assert!(node.lets_in(Some(token)) && !node.lets_in(None));
}

#[test]
fn the_file_of_tokens_is_read_again_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let (old, new) = (Token::random().unwrap(), Token::random().unwrap());
    write(&file, &format!("write {}", old.reveal()), 0o600);
    let mut command = command(&["--listen", "tcp://127.0.0.1:0", "--require-token"]);
    command.arg("--token-file").arg(&file).stderr(Stdio::null());
    let mut node = Node::start(command);
    assert!(node.lets_in(Some(old)) && !node.lets_in(Some(new)));
    let hang_up = || kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
    // A file that cannot be used changes nothing.
    write(&file, "write nothing", 0o600);
    hang_up();
    std::thread::sleep(Duration::from_millis(100));
    assert!(node.lets_in(Some(old)));
    write(&file, &format!("read {}", new.reveal()), 0o600);
    hang_up();
    let patience = Instant::now() + Duration::from_secs(60);
    while !node.lets_in(Some(new)) {
        assert!(Instant::now() < patience, "the new token is not known");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(!node.lets_in(Some(old)));
    assert!(node.child.try_wait().unwrap().is_none());
}

/// A log that cannot be written is the operator's loss, not the clients'.
#[test]
fn a_daemon_whose_lines_nobody_can_take_serves_on_and_changes_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let (old, new) = (Token::random().unwrap(), Token::random().unwrap());
    write(&file, &format!("write {}", old.reveal()), 0o600);
    let mut command = command(&["--listen", "tcp://127.0.0.1:0", "--require-token"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    command.arg("--token-file").arg(&file).stderr(full);
    let mut node = Node::start(command);
    assert!(!node.lets_in(None) && node.lets_in(Some(old)));
    write(&file, &format!("write {}", new.reveal()), 0o600);
    kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while !node.lets_in(Some(new)) {
        assert!(Instant::now() < patience, "the new token is not known");
        std::thread::sleep(Duration::from_millis(300));
    }
    // The thread that tells of the change lives on.
    write(&file, &format!("write {}", old.reveal()), 0o600);
    kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
    while !node.lets_in(Some(old)) {
        assert!(Instant::now() < patience, "the second change is not known");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(node.child.try_wait().unwrap().is_none());
}

#[test]
fn a_daemon_with_nothing_to_read_again_outlives_the_signal_for_it() {
    let token = Token::random().unwrap();
    let mut command = command(&["--listen", "tcp://127.0.0.1:0", "--require-token"]);
    command.env("FPCACHE_NODE_TOKENS", format!("write {}", token.reveal()));
    let mut node = Node::start(command);
    kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(node.lets_in(Some(token)) && node.child.try_wait().unwrap().is_none());
}
