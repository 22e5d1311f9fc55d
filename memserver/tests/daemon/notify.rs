//! What a service manager is told of the daemon.
#![cfg(feature = "cli")]

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::tokens::{Node, command};

/// What a service manager that listens here is told from the start of a daemon to its end by a
/// signal.
fn told(manager: Option<&UnixDatagram>, variable: &str) -> (Vec<String>, ExitStatus) {
    let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
    let mut node = Node::start({
        command.env("NOTIFY_SOCKET", variable);
        command
    });
    let mut told = Vec::new();
    let mut hear = || {
        let Some(manager) = manager else { return };
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut room = [0; 256];
        let bytes = manager.recv(&mut room).unwrap();
        told.push(String::from_utf8(room[..bytes].to_vec()).unwrap());
    };
    hear();
    assert!(node.lets_in(None));
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    hear();
    let ended = node.child.wait().unwrap();
    (told, ended)
}

/// `systemctl start` returned while tables were still being recovered.
#[test]
fn a_service_manager_is_told_when_the_daemon_serves_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let by_path = UnixDatagram::bind(&path).unwrap();
    let name = format!("fpcache-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let by_name = UnixDatagram::bind_addr(&address).unwrap();
    for (manager, variable) in [(by_path, path.to_string_lossy().into_owned()), (by_name, format!("@{name}"))]
    {
        let (told, ended) = told(Some(&manager), &variable);
        assert_eq!(told, ["READY=1\nSTATUS=1 tables, 0 closed", "STOPPING=1"], "{variable}");
        assert!(ended.success(), "{variable}: {ended}");
    }
}

#[test]
fn a_service_manager_that_cannot_be_told_is_no_reason_not_to_serve() {
    for variable in ["", "@", "/nobody/listens", "vsock:2:1234"] {
        assert!(told(None, variable).1.success(), "{variable}");
    }
}

/// It was told once, and a start job waited for ever.
#[test]
fn a_service_manager_that_does_not_read_for_a_while_is_told_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"full", &path).is_ok() {}
    let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
    let mut node = Node::start({
        command.env("NOTIFY_SOCKET", &path);
        command
    });
    assert!(node.lets_in(None));
    std::thread::sleep(Duration::from_secs(2));
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut room = [0; 256];
    loop {
        let bytes = manager.recv(&mut room).unwrap();
        if room[..bytes].starts_with(b"READY=1\n") {
            break;
        }
        assert_eq!(&room[..bytes], b"full");
    }
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    assert!(node.child.wait().unwrap().success());
}
