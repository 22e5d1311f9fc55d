//! A file system for regions that has no room costs the table that finds none, and neither the
//! daemon nor what is on the disk.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fpcache::key_space::KeyKind;
use fpcache::message::{Request, TablesRequest, WriteStatus, decode_reply};
use fpcache_fabric::{Connection, Deadline};
use rustix::process::{Pid, Signal, kill_process};

use super::{Client, Daemon, Place, is_whole, started, written};

/// Begins with a file system of four mebibytes of its own at the first argument, which is full if
/// the second says so, and goes on with the rest.
const MOUNT: &str = r#"mount -t tmpfs -o size=${SMALL:-4m},mode=0700 tmpfs "$0" || exit 9
if [ "$1" = full ]; then head -c 8m /dev/zero > "$0/fill" 2> /dev/null; fi
shift && exec "$@""#;

/// A shell that has file systems of its own.
fn own_file_systems() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command
}

/// Whether this user can have file systems of his own; that he cannot is said.
fn has_own_file_systems() -> bool {
    let mounted = own_file_systems().arg("mount -t tmpfs tmpfs /mnt").output();
    let has = mounted.is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("NOT TESTED: this user cannot mount a file system in a name space of his own");
    }
    has
}

impl Place {
    /// Where such a file system is.
    fn small(&self) -> PathBuf {
        self.0.path().join("regions")
    }

    /// Starts a daemon whose regions lie in such a file system.
    fn start_within(&self, room: &str, options: &str) -> Daemon {
        started(&mut self.within(room, &format!("--region-dir {} {options}", self.small().display())))
    }

    /// The program with such a file system.
    fn within(&self, room: &str, options: &str) -> Command {
        let small = self.small();
        fs::create_dir_all(&small).unwrap();
        let program = self.command(options);
        let mut command = own_file_systems();
        command.arg(MOUNT).arg(&small).arg(room).arg(program.get_program()).args(program.get_args());
        program.get_envs().for_each(|(name, _)| _ = command.env_remove(name));
        command
    }
}

#[test]
fn a_disk_without_room_for_what_each_table_takes_is_told_with_that() {
    if !has_own_file_systems() {
        return;
    }
    let place = Place::new();
    let options = format!("--data-dir {}", place.small().display());
    let ended = place.within("empty", &options).output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{error}");
    for part in ["32.0 MiB", "notes.new", "each table", "--data-dir"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(!error.contains("ask for a smaller region"), "{error}");
}

#[test]
fn a_table_without_room_for_its_first_page_is_refused_and_the_daemon_goes_on() {
    if !has_own_file_systems() {
        return;
    }
    let place = Place::new();
    let node = place.start_within("empty", "--load sequential:100");
    let process = format!("/proc/{}", node.child.id());
    let fill = format!("{process}/root{}/fill", place.0.path().join("regions").display());
    let mut fill = File::create(fill).unwrap();
    while fill.write_all(&[1; 4096]).is_ok() {}
    let client = place.client();
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    TablesRequest::Create { name: "second".parse().unwrap(), kind: KeyKind::U64, region_bytes: None }
        .encode(&mut request);
    let deadline = || Deadline::after(Duration::from_secs(20));
    client.connection.call(&request, &mut reply, deadline()).unwrap();
    let refusal = decode_reply(&reply).unwrap_err();
    assert!(refusal.message.contains("room"), "{}", refusal.message);
    assert!(client.call(&Request::Stats).is_some(), "it goes on");
    assert_eq!(client.get(7), Some(7));
    node.end();
}

/// Puts keys from `first` on until one is refused; which one, and how.
fn fill_table(client: &mut Client, first: u64) -> (u64, WriteStatus) {
    (first..1 << 20)
        .find_map(|key| {
            let status = client.put_status(key, key)?;
            (status != WriteStatus::Done).then_some((key, status))
        })
        .unwrap()
}

/// What it has told until it ends.
fn told_by(mut node: Daemon) -> String {
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    let mut told = String::new();
    node.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    told
}

#[test]
fn writes_that_find_the_disk_full_are_told_so_and_go_on_when_it_has_room() {
    if !has_own_file_systems() {
        return;
    }
    let place = Place::new();
    let node = place.start_within("empty", "--load sequential:100 --capacity 64MiB");
    let process = format!("/proc/{}", node.child.id());
    let fill = format!("{process}/root{}/fill", place.0.path().join("regions").display());
    let mut file = File::create(&fill).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let mut client = place.client();
    let (key, status) = fill_table(&mut client, 1000);
    assert_eq!(status, WriteStatus::DiskFull, "key {key}");
    drop(file);
    fs::remove_file(&fill).unwrap();
    client.put(key, key).unwrap();
    drop(client);
    let told = told_by(node);
    assert_eq!(told.matches("the file of a region (No space left on device").count(), 1, "{told}");
    assert!(told.contains("room on that file system") && !told.contains("smaller region"), "{told}");
}

/// A copy of the folder would lack what it had acknowledged.
#[test]
fn a_memory_node_whose_log_the_full_disk_does_not_take_does_not_end_as_if_all_were_well() {
    if !has_own_file_systems() {
        return;
    }
    let place = Place::new();
    let regions = place.0.path().join("elsewhere");
    fs::create_dir_all(&regions).unwrap();
    let small = place.small();
    let options = format!(
        "--load sequential:100 --fsync 3600s --data-dir {} --region-dir {}",
        small.display(),
        regions.display()
    );
    let mut node = started(place.within("empty", &options).env("SMALL", "40m"));
    let fill = format!("/proc/{}/root{}/fill", node.child.id(), small.display());
    let mut client = place.client();
    client.put(1, 1).unwrap();
    let mut file = File::create(&fill).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let (key, status) = fill_table(&mut client, 2);
    assert_eq!(status, WriteStatus::NotDurable, "key {key}");
    drop(client);
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    let mut told = String::new();
    node.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(node.child.wait().unwrap().code(), Some(2), "{told}");
    for part in ["in its notes.fpn alone", "before you copy", "No space left on device", "`default`"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[test]
fn a_table_that_fills_its_region_says_so_once_with_what_gives_it_a_larger_one() {
    let place = Place::new();
    let node = place.start("--load sequential:100 --capacity 256KiB");
    let mut client = place.client();
    let (key, status) = fill_table(&mut client, 1000);
    assert_eq!(status, WriteStatus::NoRoom, "key {key}");
    assert_eq!(fill_table(&mut client, key).0, key);
    drop(client);
    let told = told_by(node);
    assert_eq!(told.matches("a write was refused: the region of 256.0 KiB has no room").count(), 1, "{told}");
    assert!(told.contains("region.fpr away first"), "{told}");
    // It does.
    fs::remove_file(place.table().join("region.fpr")).unwrap();
    let node = place.start("--capacity 8MiB");
    place.client().put(key, key).unwrap();
    node.end();
}

#[test]
fn a_start_without_room_for_a_region_serves_what_is_on_the_disk() {
    if !has_own_file_systems() {
        return;
    }
    let place = Place::new();
    written(&place);
    let node = place.start_within("full", "");
    node.says(&["holds      150 keys"]);
    is_whole(&place);
    node.end();
}
