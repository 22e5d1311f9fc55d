//! Other users at a memory node's socket: those not admitted take nothing, those admitted keep no
//! others out, and names lead to the users they name.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "conformance/suite/service.rs"]
mod service;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fpcache_fabric::shm::{ConnectOptions, ListenError, ListenOptions, Listener, ShmAddress, connect};
use fpcache_fabric::{
    Connection, Deadline, Export, FabricError, HugePages, OneRegion, RegionName, Serving, SharedMemory,
};

use service::TestService;

const PART: &str = "FPCACHE_USERS_TEST_PART";
const ADDRESS: &str = "FPCACHE_USERS_TEST_ADDRESS";
/// A user other than root and the one that runs the tests.
const OTHER: u32 = 65_534;
/// Idle sockets of one user: more than a memory node has greet it at once, and than wait in its
/// queue.
const IDLE: usize = 250;
/// How long a client may have to wait because of them. A socket that says nothing is heard two
/// seconds.
const SOON: Duration = Duration::from_millis(1500);
/// One is enough: a machine that others use takes its time, too.
const TRIES: u32 = 5;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn serve(address: &ShmAddress, allowed_users: &[u32]) -> Result<Serving, ListenError> {
    let options = ListenOptions { allowed_users: allowed_users.to_vec(), ..ListenOptions::default() };
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 16, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let service = OneRegion::new(RegionName::default(), export, TestService::default());
    Ok(Listener::bind(address, options)?.spawn(service).unwrap())
}

/// A folder that other users can pass through, and an address in it.
fn open_folder() -> (tempfile::TempDir, ShmAddress) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let address = ShmAddress::at_path(folder.path().join("node.sock")).unwrap();
    (folder, address)
}

/// A name that no other test uses.
fn name(of: &str) -> String {
    format!("test-{of}-{}", std::process::id())
}

fn echo(address: &ShmAddress) -> Result<(), FabricError> {
    let connection = connect(address, ConnectOptions::default())?;
    let mut reply = Vec::new();
    let request = [TestService::ECHO, 1];
    connection.call(&request, &mut reply, Deadline::after(Duration::from_secs(20)))?;
    assert_eq!(reply, [1]);
    Ok(())
}

/// Idle sockets at a memory node, as many as one gets.
fn idle_at(path: &Path) -> Vec<UnixStream> {
    let idle: Vec<_> = (0..IDLE).map_while(|_| UnixStream::connect(path).ok()).collect();
    assert!(idle.len() >= 64);
    idle
}

/// Another user's process that plays a part.
struct Other {
    child: Child,
    /// What it says first.
    said: String,
    /// Open as long as it writes.
    _output: BufReader<ChildStdout>,
}

impl Other {
    fn play(part: &str, address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "played_by_another_user", "--nocapture"]).uid(OTHER).gid(OTHER);
        command.env(PART, part).env(ADDRESS, address).env_remove("XDG_RUNTIME_DIR").current_dir("/");
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map_while(Result::ok);
        let said = lines.find_map(|line| line.split_once("SAYS ").map(|(_, said)| said.to_owned()));
        Self { child, said: said.unwrap_or_default(), _output: output }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: what another user's process does.
#[test]
fn played_by_another_user() {
    let (Ok(part), Ok(address)) = (std::env::var(PART), std::env::var(ADDRESS)) else { return };
    let address: ShmAddress = address.parse().unwrap();
    match part.as_str() {
        "client" => match echo(&address) {
            Ok(()) => println!("SAYS served"),
            Err(error) => println!("SAYS {error}"),
        },
        "idle" => {
            let _idle = idle_at(&address.socket_path().unwrap());
            println!("SAYS idle");
            // Until it is killed.
            let _ = std::io::stdin().lines().next();
            std::thread::sleep(Duration::from_secs(60));
        }
        other => panic!("unknown part {other}"),
    }
}

#[test]
fn idle_sockets_keep_nobody_out() {
    let is_soon = || {
        let (_folder, address) = open_folder();
        let _serving = serve(&address, &[]).unwrap();
        let _idle = idle_at(&address.socket_path().unwrap());
        let begun = Instant::now();
        echo(&address).unwrap();
        begun.elapsed() < SOON
    };
    assert!((0..TRIES).any(|_| is_soon()));
}

#[test]
fn another_users_idle_sockets_keep_nobody_out() {
    if !is_root() {
        // Only root can become another user.
        return;
    }
    for allowed in [&[OTHER][..], &[1]] {
        let are_soon = || {
            let (_folder, address) = open_folder();
            let _serving = serve(&address, allowed).unwrap();
            let other = Other::play("idle", &address.to_string());
            assert_eq!(other.said, "idle");
            let begun = Instant::now();
            for _ in 0..10 {
                echo(&address).unwrap();
            }
            begun.elapsed() < SOON
        };
        assert!((0..TRIES).any(|_| are_soon()));
    }
}

#[test]
fn users_that_are_not_admitted_are_told_so() {
    if !is_root() {
        return;
    }
    let (_folder, address) = open_folder();
    let _serving = serve(&address, &[1]).unwrap();
    let other = Other::play("client", &address.to_string());
    assert!(other.said.contains(&format!("user {OTHER} is not admitted")), "{}", other.said);
    assert!(other.said.contains("--allow-user"), "{}", other.said);
    echo(&address).unwrap();
}

#[test]
fn an_admitted_user_reaches_a_memory_node_by_its_name() {
    if !is_root() {
        return;
    }
    let name = name("admitted");
    let (own, others) = (ShmAddress::named(&name).unwrap(), ShmAddress::of_user(&name, 0).unwrap());
    let serving = serve(&own, &[OTHER]).unwrap();
    assert_eq!(Other::play("client", &others.to_string()).said, "served");
    // The owner need not say whose it is, and may.
    echo(&own).unwrap();
    echo(&others).unwrap();
    // Without a user that is let in, it is where no other user can reach it.
    drop(serving);
    let _serving = serve(&own, &[]).unwrap();
    echo(&own).unwrap();
    let refused = Other::play("client", &others.to_string()).said.clone();
    assert!(refused.contains("no memory node at") && refused.contains("--allow-user"), "{refused}");
}

#[test]
fn a_name_is_one_memory_nodes_wherever_its_socket_lies() {
    let name = name("once");
    let address = ShmAddress::named(&name).unwrap();
    let own = ShmAddress::of_user(&name, rustix::process::geteuid().as_raw()).unwrap();
    for (first, second) in [(&[][..], &[OTHER][..]), (&[OTHER], &[]), (&[OTHER], &[OTHER])] {
        let serving = serve(&address, first).unwrap();
        for again in [&address, &own] {
            let error = serve(again, second).map(drop).unwrap_err();
            let ours = Some(std::process::id());
            assert!(matches!(error, ListenError::InUse { pid, .. } if pid == ours), "{error}");
        }
        echo(&address).unwrap();
        drop(serving);
    }
    let socket = address.shared_socket_path().unwrap();
    let directory = std::fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o711, "nobody else writes or lists it");
    assert!(!socket.exists() && !address.socket_path().unwrap().exists());
    let error = serve(&ShmAddress::of_user(&name, OTHER - 1).unwrap(), &[]).map(drop).unwrap_err();
    assert!(error.to_string().contains("names a memory node of user"), "{error}");
}

#[test]
fn whoever_listens_under_another_users_name_is_not_believed() {
    // A user that does not exist, in whose directory another user has put a socket.
    let user = 4_000_000_000 + std::process::id() % 1000;
    let address = ShmAddress::of_user("planted", user).unwrap();
    let path = address.shared_socket_path().unwrap();
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let planted = UnixListener::bind(&path);
    let error = connect(&address, ConnectOptions::default()).map(drop).unwrap_err();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    drop(planted.unwrap());
    let ours = rustix::process::geteuid().as_raw();
    assert!(matches!(error, FabricError::UserRefused { user, .. } if user == ours), "{error}");
}
