//! Socket files have one mode, whatever the mask of the process is.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fpcache_fabric::{shm, tcp};

/// Says to a process of this test where it is to listen.
const FOLDER: &str = "FPCACHE_TEST_SOCKETS_IN";

#[test]
fn a_socket_file_is_its_owners_or_everybodys_whatever_the_mask_is() {
    if let Some(folder) = env::var_os(FOLDER) {
        return listen_in(Path::new(&folder));
    }
    for mask in ["000", "022", "077"] {
        let folder = tempfile::tempdir().unwrap();
        let ended = Command::new("sh")
            .args(["-c", &format!("umask {mask} && exec \"$0\" \"$@\"")])
            .arg(env::current_exe().unwrap())
            .args(["--exact", "a_socket_file_is_its_owners_or_everybodys_whatever_the_mask_is"])
            .env(FOLDER, folder.path())
            .status();
        assert!(ended.unwrap().success(), "mask {mask}");
    }
}

fn listen_in(folder: &Path) {
    for (allowed_users, mode) in [(vec![], 0o600), (vec![65_534], 0o666)] {
        let path = |name: &str| folder.join(format!("{name}-{mode:o}.sock"));
        let options = shm::ListenOptions { allowed_users: allowed_users.clone(), ..Default::default() };
        let _mapped = shm::Listener::bind(&shm::ShmAddress::at_path(path("shm")).unwrap(), options).unwrap();
        let options = tcp::ListenOptions { allowed_users, ..Default::default() };
        let _sockets =
            tcp::Listener::bind(&[tcp::TcpAddress::at_path(path("tcp")).unwrap()], options).unwrap();
        for name in ["shm", "tcp"] {
            let found = fs::symlink_metadata(path(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(format!("{found:o}"), format!("{mode:o}"), "{name}");
        }
    }
}
