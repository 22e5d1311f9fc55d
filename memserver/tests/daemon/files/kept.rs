//! Whether data are kept, and where the environment says so.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// The variable for the folder had the name of the one for data sets: nothing was kept, and nothing
/// said so.
#[test]
fn the_greeting_says_whether_the_data_are_kept_also_where_the_environment_names_the_folder() {
    let place = Place::new();
    let folder = place.data().to_str().unwrap().to_owned();
    let start = |folder: &str, fsync: &[&str]| {
        let mut command = crate::program();
        command.args(["--exit-with-parent", "--listen", &place.address().to_string(), "--capacity", "8MiB"]);
        started(command.args(fsync).env("FPCACHE_DATA_DIR", folder))
    };
    let node = start(&folder, &[]);
    node.says(&[&format!("durable    in {folder}, synced every 10ms (--fsync 10ms)")]);
    node.end();
    assert!(place.table().exists());
    let node = start(&folder, &["--fsync", "always"]);
    node.says(&["synced before writes are acknowledged (--fsync always)"]);
    node.end();
    // A variable that is empty is none.
    let node = start("", &[]);
    node.says(&["durable    no: the data end with this process (--data-dir"]);
    node.end();
}

/// Where the folder of the data was misspelt, the daemon served nothing, and said nothing of it.
#[test]
fn a_folder_that_has_other_files_and_no_tables_is_taken_with_a_warning() {
    let place = Place::new();
    let said = || {
        let mut node = place.start("");
        kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
        let mut error = String::new();
        node.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        error
    };
    fs::create_dir_all(place.data().join("lost+found")).unwrap();
    fs::set_permissions(place.data(), fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["a", "b", "c", "d"] {
        fs::write(place.data().join(name), "").unwrap();
    }
    let error = said();
    assert!(error.contains("no tables, but it has \"a\", \"b\", \"c\" and 1 more"), "{error}");
    // With the tables of that start it is the right one.
    let error = said();
    assert!(!error.contains("no tables"), "{error}");
    fs::remove_dir_all(place.data()).unwrap();
    let error = said();
    assert!(!error.contains("no tables"), "{error}");
}

/// Restored tables take what they need, and the first page of one after them was refused: it was
/// closed, as its turn came when the capacity was spent.
#[test]
fn tables_are_restored_where_those_before_them_have_spent_the_capacity() {
    let place = Place::new();
    place.start("--table c").end();
    place.start("--table a --load sequential:20K").end();
    place.start("--table b --load sequential:20K").end();
    for table in ["a", "b", "c"] {
        let table = place.data().join("tables").join(table);
        fs::remove_file(table.join("region.fpr")).unwrap();
        fs::remove_file(table.join("notes.fpn")).unwrap();
    }
    let node = place.start("--capacity 256KiB");
    node.says(&["a: 20000 keys, u64", "b: 20000 keys, u64", "c: 0 keys"]);
    assert!(!node.greeting.contains("closed"), "{}", node.greeting);
}

/// It ended as if all were on the disk, and a copy came up empty: a load is in its snapshot alone.
#[test]
fn a_stop_before_there_is_a_snapshot_is_no_good_end() {
    let place = Place::new();
    place.start("--load sequential:300K --capacity 64MiB").end();
    for entry in fs::read_dir(place.table()).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|e| e == "fps") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    // New files may have 2 MiB: no snapshot ends.
    let daemon = place.command("");
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""]);
    let mut node = started(limited.arg(daemon.get_program()).args(daemon.get_args()));
    node.says(&["found      300000 keys in the memory"]);
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    let mut told = String::new();
    node.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(node.child.wait().unwrap().code(), Some(2), "{told}");
    assert!(told.contains("warning: ") && told.contains("no snapshot that its log follows"), "{told}");
    assert!(told.contains("`default` has no snapshot") && told.contains("stop it again"), "{told}");
    // Which helps.
    let node = place.start("");
    let mut client = place.client();
    while client.put_status(1, 1).unwrap() != WriteStatus::Done {}
    node.end();
}
