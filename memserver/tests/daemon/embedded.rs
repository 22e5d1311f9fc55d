//! Daemons within programs.

use fpcache_fabric::shm::ShmAddress;
use fpcache_memserver::{Daemon, DaemonConfig};

/// Only a signal to the whole process did.
#[test]
fn a_program_ends_the_daemon_that_it_embeds() {
    let folder = tempfile::tempdir().unwrap();
    let address = ShmAddress::at_path(folder.path().join("node.sock")).unwrap();
    let config = DaemonConfig { capacity: 8 << 20, ..DaemonConfig::at(address) };
    for is_early in [true, false] {
        let daemon = Daemon::open(&config).unwrap();
        let stop = daemon.stop_handle();
        if is_early {
            stop.stop();
        }
        let serving = std::thread::spawn(|| daemon.serve());
        stop.stop();
        serving.join().unwrap().unwrap();
    }
}
