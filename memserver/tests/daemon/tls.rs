//! The daemon's certificate: what it takes to show one, and that it can be changed.

use crate::tokens::{command, refusal};

#[test]
fn a_certificate_and_addresses_that_show_it_go_together() {
    let text = refusal(command(&["--listen", "tcps://127.0.0.1:0"]));
    let why = if cfg!(feature = "tls") { "--tls-cert" } else { "--features tls" };
    assert!(text.contains("tcps://127.0.0.1:0") && text.contains(why), "{text}");
    let text = refusal(command(&["--listen", "tcps://127.0.0.1:0", "--tls-cert", "a.pem"]));
    assert!(text.contains("--tls-key"), "{text}");
    let files = ["--tls-cert", "a.pem", "--tls-key", "a.key"];
    let text = refusal(command(&[&["--listen", "tcp://127.0.0.1:0"][..], &files].concat()));
    assert!(text.contains("--listen tcps://"), "{text}");
    let text = refusal(command(&[&["--listen", "tcps://127.0.0.1:0"][..], &files].concat()));
    let why = if cfg!(feature = "tls") { "a.pem" } else { "--features tls" };
    assert!(text.contains(why), "{text}");
}

#[cfg(feature = "tls")]
mod with_tls {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use fpcache_fabric::FabricError;
    use fpcache_fabric::tcp::{ConnectOptions, TlsTrust, connect};
    use rustix::process::{Pid, Signal, kill_process};

    use crate::tokens::{Node, command};

    fn certificates() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fabric/tests/conformance/tls")
    }

    fn is_believed(node: &Node) -> bool {
        let trust = TlsTrust { authority: Some(certificates().join("authority.pem")), identity: None };
        match connect(&node.address.clone().trusting(trust), ConnectOptions::default()) {
            Ok(_) => true,
            Err(FabricError::Tls(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_certificate_is_read_again_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("node.pem"), folder.path().join("node.key"));
        let take = |name: &str| {
            fs::copy(certificates().join(format!("{name}.pem")), &certificate).unwrap();
            fs::copy(certificates().join(format!("{name}.key")), &key).unwrap();
            // Else it would not be used.
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        };
        take("elsewhere");
        let mut command = command(&["--listen", "tcps://127.0.0.1:0"]);
        command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key).stderr(Stdio::null());
        let node = Node::start(command);
        assert!(!is_believed(&node), "it is not for this address");
        let hang_up = || kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
        // Files that cannot be used change nothing.
        fs::write(&key, "none").unwrap();
        hang_up();
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_believed(&node));
        take("node");
        hang_up();
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_believed(&node) {
            assert!(Instant::now() < patience, "the new certificate is not shown");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
