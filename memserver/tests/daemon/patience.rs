//! Timeouts of the daemon for peers over sockets that do nothing.
#![cfg(feature = "cli")]

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fpcache_fabric::Connection;
use fpcache_fabric::tcp::{ConnectOptions, connect};

use crate::tokens::{Node, command, refusal};

fn node(options: &[&str]) -> Node {
    let mut command = command(&["--listen", "tcp://127.0.0.1:0"]);
    command.args(options).stderr(std::process::Stdio::null());
    Node::start(command)
}

/// How long a peer that says nothing keeps its connection.
fn silence_borne_by(node: &Node) -> Duration {
    let (began, url) = (Instant::now(), node.address.to_string());
    let mut peer = TcpStream::connect(url.trim_start_matches("tcp://")).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0);
    began.elapsed()
}

#[test]
fn whoever_does_not_greet_in_the_time_it_is_given_is_hung_up_on() {
    let node = node(&["--greeting-time", "50ms"]);
    // Two seconds unless told; on a busy machine one of several tries is enough.
    assert!((0..5).any(|_| silence_borne_by(&node) < Duration::from_secs(1)));
}

#[test]
fn whoever_does_nothing_for_the_time_it_is_given_is_hung_up_on() {
    let node = node(&["--idle-time", "50ms"]);
    let idle = connect(&node.address, ConnectOptions::default()).unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while idle.is_alive() {
        assert!(Instant::now() < patience, "an hour unless told");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Its first connection ended the memory node, which could not add the time to the clock's.
#[test]
fn times_that_never_come_end_nobody_and_nothing() {
    let ever = "2900000000000000h";
    let options = ["--greeting-time", ever, "--frame-time", ever, "--read-time", ever, "--idle-time", ever];
    let node = node(&options);
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    assert!(node.lets_in(None) && connection.is_alive());
}

#[test]
fn no_peer_is_given_next_to_no_time_or_memory() {
    for option in ["--greeting-time", "--frame-time", "--read-time", "--idle-time"] {
        let told = refusal(command(&[option, "0s"]));
        assert!(told.contains(option) && told.contains("10ms"), "{told}");
    }
    let told = refusal(command(&["--request-memory", "1KiB"]));
    assert!(told.contains("--request-memory") && told.contains("at least"), "{told}");
}
