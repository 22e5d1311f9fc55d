//! The daemon's options in its environment.
#![cfg(feature = "cli")]

use crate::tokens::{Node, refusal};

/// Options that are about the data set to load and the first table, or that only the process which
/// starts the daemon can give.
const ON_THE_COMMAND_LINE: [&str; 14] = [
    "keys",
    "table",
    "load",
    "epsilon",
    "fingerprint-bits",
    "fill",
    "groups",
    "value-bytes",
    "key-bytes",
    "slot-bytes",
    "duplicates",
    "exit-with-parent",
    "help",
    "version",
];

/// Options whose names clients have as well, for what they show.
const OF_CLIENTS_TOO: [&str; 4] = ["token-file", "tls-cert", "tls-key", "tls-client-ca"];

/// Most had none, so that a container or a file of systemd's could not set them.
#[test]
fn every_option_of_operation_has_a_variable_that_is_named_after_it() {
    let help = crate::program().env("COLUMNS", "1000").arg("--help").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    // Other lines begin with a dash as well: those of possible values.
    let is_option =
        |line: &str| line.starts_with("--") || line.get(2..).is_some_and(|rest| rest.starts_with(", --"));
    let mut seen = 0;
    let mut entries = help.lines().map(str::trim).peekable();
    while let Some(line) = entries.next() {
        let Some((_, option)) = line.split_once("--").filter(|_| is_option(line)) else { continue };
        let option = option.split(|c: char| c != '-' && !c.is_ascii_alphanumeric()).next().unwrap();
        let mut text = line.to_owned();
        while let Some(more) = entries.next_if(|line| !is_option(line)) {
            text += more;
        }
        let variable = match option {
            "datasets-dir" => "FPCACHE_DATASETS".to_owned(),
            option => {
                let of_node = if OF_CLIENTS_TOO.contains(&option) { "NODE_" } else { "" };
                format!("FPCACHE_{of_node}{}", option.to_uppercase().replace('-', "_"))
            }
        };
        let has = text.contains(&format!("[env: {variable}=]"));
        assert_eq!(has, !ON_THE_COMMAND_LINE.contains(&option), "--{option}: {text}");
        seen += 1;
    }
    assert!(seen > 30, "{help}");
}

#[test]
fn a_daemon_takes_its_options_from_the_environment_and_empty_ones_count_as_not_set() {
    let folder = tempfile::tempdir().unwrap();
    let command = || {
        let mut command = crate::program();
        command.env("FPCACHE_CAPACITY", "8MiB").env("FPCACHE_LISTEN", "tcp://127.0.0.1:0,tcp://127.0.0.1:0");
        command.env("FPCACHE_DATA_DIR", folder.path().join("data"));
        command.env("FPCACHE_ALLOW_USER", "1001,1002").env("FPCACHE_IO_THREADS", "");
        for (name, value) in [
            ("FSYNC", "never"),
            ("HUGE_PAGES", "no"),
            ("SPIN", "0s"),
            ("MAX_CONNECTIONS", "7"),
            ("REQUEST_MEMORY", "1MiB"),
            ("GREETING_TIME", "1s"),
            ("FRAME_TIME", "1s"),
            ("READ_TIME", "1s"),
            ("IDLE_TIME", "10m"),
            ("CARD_LEASE", ""),
            ("REGION_DIR", ""),
            ("REQUIRE_TOKEN", "no"),
        ] {
            command.env(format!("FPCACHE_{name}"), value);
        }
        command.arg("--exit-with-parent");
        command
    };
    assert!(Node::start(command()).lets_in(None));
    assert!(folder.path().join("data/tables/default").is_dir());

    for (name, value, why) in [
        ("FPCACHE_FSYNC", "sometimes", "--fsync"),
        ("FPCACHE_ALLOW_USER", "1001,fred", "id -u"),
        ("FPCACHE_MAX_CONNECTIONS", "0", "--max-connections 0"),
        ("FPCACHE_REQUIRE_TOKEN", "1", "--token-file"),
        ("FPCACHE_CARD_LEASE", "1ms", "rdma://"),
    ] {
        let mut command = command();
        command.env(name, value);
        let told = refusal(command);
        assert!(told.contains(why), "{name}: {told}");
    }
}
