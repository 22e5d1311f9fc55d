//! Whether data are kept, and where the environment says so.

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
