//! The daemon that ends with its parent.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::tokens::{Node, refusal};

/// It served for ever: a parent that ended before its end could be asked for gave no signal.
#[test]
fn a_daemon_whose_parent_ended_before_it_could_ask_for_that_says_so_and_ends() {
    let own = std::process::id();
    let with = |parent: u32| {
        let mut command = crate::program();
        command.args(["--capacity", "8MiB", "--listen", "tcp://127.0.0.1:0"]);
        command.arg(format!("--exit-with-parent={parent}"));
        command
    };
    let told = refusal(with(own + 1));
    assert!(told.contains(&format!("process {}", own + 1)) && told.contains("not the parent"), "{told}");
    assert!(Node::start(with(own)).lets_in(None));
}

/// A parent that passes a signal on and ends sent two, of which the second ended the daemon before
/// it had removed its address.
#[test]
fn the_end_of_the_parent_is_no_second_signal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = folder.path().join("node.sock");
    let mut daemon = crate::program()
        .args(["--capacity", "8MiB", "--exit-with-parent", "--listen"])
        .arg(format!("shm://{}", address.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    assert!(address.exists());
    let pid = daemon.id().to_string();
    // It finds all of them when it goes on.
    for signal in ["-STOP", "-TERM", "-USR1", "-CONT"] {
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill is there");
        assert!(status.success());
    }
    let status = daemon.wait().expect("it ended");
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(!address.exists());
}
