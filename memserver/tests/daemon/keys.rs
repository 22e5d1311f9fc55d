//! The kinds of a memory node's keys: those it was asked for, those of the store that is there,
//! those of the data set to load.
#![cfg(feature = "cli")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, remove_file};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fpcache::TableName;
use fpcache::key_space::{ByteKeys, KeyKind, U64Keys};
use fpcache_fabric::shm::ShmAddress;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Daemon, DaemonConfig, DurableConfig};
use tempfile::TempDir;

/// A folder for a memory node's data, beside its socket.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn address(&self) -> ShmAddress {
        ShmAddress::at_path(self.0.path().join("node.sock")).unwrap()
    }

    fn folders(&self) -> Folders {
        let data = self.0.path().join("data");
        Folders { region: data.clone(), data }
    }

    /// Of the table that there is.
    fn region_file(&self) -> PathBuf {
        self.folders().data.join("tables/default/region.fpr")
    }

    fn command(&self, options: &str) -> Command {
        let mut command = crate::program();
        command.args(["--exit-with-parent", "--capacity", "8MiB", "--listen", &self.address().to_string()]);
        command.args(options.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn durably(&self, options: &str) -> String {
        format!("--data-dir {} {options}", self.folders().data.display())
    }

    /// Starts one, which must say this, and ends it.
    #[track_caller]
    fn says(&self, options: &str, parts: &[&str]) {
        let mut child = self.command(options).spawn().unwrap();
        let greeting = greeting(&mut child);
        // What it tells goes to the standard error by a thread of its own, which this waits for.
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = format!("{greeting}{}", String::from_utf8_lossy(&ended.stderr));
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?} in {said}");
    }

    /// Starts one, which must refuse and say this.
    #[track_caller]
    fn refuses(&self, options: &str, parts: &[&str]) {
        let output = self.command(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?} in {said}");
    }
}

fn greeting(child: &mut Child) -> String {
    let mut greeting = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        greeting += &line;
        if line.starts_with("  next ") {
            break;
        }
    }
    greeting
}

#[test]
fn an_empty_memory_node_has_the_keys_it_was_asked_for() {
    let place = Place::new();
    place.says("", &["keys       u64", "load ipv4"]);
    place.says("--keys u64", &["keys       u64", "load ipv4"]);
    place.says("--keys bytes", &["keys       bytes", "load words"]);
    place.refuses("--keys text", &["text", "u64, bytes"]);
}

#[test]
fn a_data_set_brings_its_keys() {
    let place = Place::new();
    place.says("--load sequential:100", &["100 keys, u64"]);
    place.says("--load words:1000", &["1000 keys, bytes"]);
    place.says("--load ycsb:1000 --key-bytes 40 --value-bytes 20 --keys bytes", &["1000 keys, bytes"]);
    place.says("--load domains:1000 --slot-bytes 300", &["1000 keys, bytes"]);
    for (options, parts) in [
        ("--load words:1000 --keys u64", &["words:1K", "bytes", "leave --keys away"][..]),
        ("--load sequential:100 --keys bytes", &["sequential:100", "u64", "leave --keys away"]),
        ("--load sequential:100 --key-bytes 9", &["leave --key-bytes"]),
        ("--load paths:100 --slot-bytes 9", &["--slot-bytes 9", "at least"]),
        ("--load ycsb:100 --key-bytes 5", &["23"]),
        ("--load words:100 --value-bytes 100000", &["100000"]),
    ] {
        place.refuses(options, parts);
    }
}

#[test]
fn a_store_keeps_its_keys_whatever_is_left_of_it() {
    for (load, kind, other) in
        [("--load words:500", KeyKind::Bytes, "u64"), ("--load sequential:500", KeyKind::U64, "bytes")]
    {
        let (place, name) = (Place::new(), kind.name());
        let (region, holds) = (place.region_file(), format!("500 keys, {name}"));
        place.says(&place.durably(load), &["an empty store", &holds]);
        place.says(&place.durably(""), &["in the memory of the previous process", &holds]);
        // A data set of other keys is left out as any would be.
        place.says(&place.durably("--load words:10"), &["skipping --load", &holds]);
        place.says(&place.durably("--load sequential:10"), &["skipping --load", &holds]);
        let asked = place.durably(&format!("--keys {other}"));
        place.refuses(&asked, &["`default`", name, other, "--data-dir"]);
        place.says(&place.durably(&format!("--keys {name}")), &[&holds]);

        // As of a process that ended while it rewrote the superblock.
        let file = File::options().write(true).open(&region).unwrap();
        file.write_all_at(&[1], 32).unwrap();
        place.says(&place.durably(""), &["in the memory of the previous process", &holds]);

        // As after a crash of the machine.
        remove_file(&region).unwrap();
        remove_file(place.folders().data.join("tables/default/notes.fpn")).unwrap();
        let durable = Some(DurableConfig { folders: place.folders(), sync: SyncPolicy::Never });
        let config = DaemonConfig { capacity: 8 << 20, durable, ..DaemonConfig::at(place.address()) };
        let mut daemon = Daemon::open(&config).unwrap();
        let error = match kind {
            KeyKind::U64 => daemon.table::<ByteKeys>(&TableName::default()).map(drop),
            KeyKind::Bytes => daemon.table::<U64Keys>(&TableName::default()).map(drop),
        };
        let error = error.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(other), "{error}");
        drop(daemon);
        place.refuses(&asked, &[name, other]);
        place.says(&place.durably(""), &["500 keys in the memory of the previous process", &holds]);
    }
}
