//! The daemon that ends with its parent.

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
