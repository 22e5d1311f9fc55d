//! Memory node and client in different PID namespaces, as those of two containers: to the one that
//! is in the inner one the other's process has no number.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "conformance/suite/service.rs"]
mod service;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fpcache_fabric::shm::{self, ShmAddress};
use fpcache_fabric::tcp::{self, TcpAddress};
use fpcache_fabric::{
    Connection, Deadline, Export, FabricError, HugePages, OneRegion, RegionName, Serving, SharedMemory,
};

use service::TestService;

const PART: &str = "FPCACHE_NAMESPACES_TEST_PART";
const FOLDER: &str = "FPCACHE_NAMESPACES_TEST_FOLDER";
const PATIENCE: Duration = Duration::from_secs(20);

fn mapped(folder: &Path) -> ShmAddress {
    ShmAddress::at_path(folder.join("mapped.sock")).unwrap()
}

fn stream(folder: &Path) -> TcpAddress {
    TcpAddress::at_path(folder.join("stream.sock")).unwrap()
}

fn region() -> OneRegion<TestService> {
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 16, HugePages::No).unwrap();
    OneRegion::new(RegionName::default(), Export::new(&region, fd, 1).unwrap(), TestService::default())
}

fn serve(folder: &Path) -> [Serving; 2] {
    let mapped = shm::Listener::bind(&mapped(folder), shm::ListenOptions::default()).unwrap();
    let stream = tcp::Listener::bind(&[stream(folder)], tcp::ListenOptions::default()).unwrap();
    [mapped.spawn(region()).unwrap(), stream.spawn(region()).unwrap()]
}

fn echo(connection: &impl Connection) {
    let mut reply = Vec::new();
    connection.call(&[TestService::ECHO, 1], &mut reply, Deadline::after(PATIENCE)).unwrap();
    assert_eq!(reply, [1]);
}

/// Connects again until the memory node is there.
fn met<C>(connect: impl Fn() -> Result<C, FabricError>) -> C {
    let patience = Instant::now() + PATIENCE;
    loop {
        match connect() {
            Err(FabricError::NoMemoryNode { .. }) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            met => return met.unwrap(),
        }
    }
}

/// A program in PID and user namespaces of its own, in which this user is root.
fn within_namespaces(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]).arg(program);
    command
}

/// This test binary in a PID namespace of its own, to play a part; `None` where there can be none.
fn play(part: &str, folder: &Path) -> Option<Child> {
    let probe = within_namespaces(Path::new("true")).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this system lets its users have no namespaces");
        return None;
    }
    let mut command = within_namespaces(&std::env::current_exe().unwrap());
    command.args(["--exact", "played_by_another_process", "--nocapture"]);
    Some(command.env(PART, part).env(FOLDER, folder).stdout(Stdio::null()).process_group(0).spawn().unwrap())
}

/// Not a test of its own: what the second process does when another test has started it.
#[test]
fn played_by_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    match part.as_str() {
        "client" => {
            let over_memory = shm::connect(&mapped(&folder), shm::ConnectOptions::default()).unwrap();
            assert_eq!(over_memory.node_process(), None);
            echo(&over_memory);
            echo(&tcp::connect(&stream(&folder), tcp::ConnectOptions::default()).unwrap());
            assert_eq!(shm::Listener::listening_process(&mapped(&folder)), None);
        }
        "memory node" => {
            let _serving = serve(&folder);
            std::thread::sleep(PATIENCE * 2);
        }
        other => panic!("unknown part {other}"),
    }
}

#[test]
fn a_client_whose_memory_node_has_no_process_number_reads_and_calls() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path());
    let Some(mut client) = play("client", folder.path()) else { return };
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_memory_node_whose_client_has_no_process_number_serves_it_and_its_end_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut node) = play("memory node", folder.path()) else { return };
    let over_memory = met(|| shm::connect(&mapped(folder.path()), shm::ConnectOptions::default()));
    let over_socket = met(|| tcp::connect(&stream(folder.path()), tcp::ConnectOptions::default()));
    echo(&over_memory);
    echo(&over_socket);
    node.kill().unwrap();
    node.wait().unwrap();
    let patience = Instant::now() + PATIENCE;
    while over_memory.is_alive() || over_socket.is_alive() {
        assert!(Instant::now() < patience, "is_alive stays true");
        std::thread::yield_now();
    }
}
