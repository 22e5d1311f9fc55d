//! The commands as a user types them, against a memory node of this process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod exports;
mod failures;
mod loading;
mod odd_files;
mod order;
mod over_nodes;
mod own_records;
mod records;
mod scraping;
mod tables;
mod usage;
mod watching;

use std::ffi::OsStr;
use std::process::{Command, Output};

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind, U64Keys};
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_fabric::{Service, Serving};
use fpcache_memserver::{Catalogue, CatalogueConfig};
use serde_json::Value;
use tempfile::TempDir;

struct Node {
    directory: TempDir,
    url: String,
    serving: Option<Serving>,
}

impl Node {
    /// For u64 keys.
    fn start(capacity: u64) -> Self {
        Self::start_for::<U64Keys>(capacity)
    }

    fn start_for<K: BuildKeys>(capacity: u64) -> Self {
        Self::serving::<K, _>(capacity, |catalogue| catalogue)
    }

    /// With a table that a service has.
    fn serving<K: BuildKeys, S: Service + 'static>(
        capacity: u64,
        service: impl FnOnce(Catalogue) -> S,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let config = CatalogueConfig::of(capacity);
        let mut catalogue = Catalogue::open(&config).unwrap();
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
        catalogue.create(TableName::default(), kind, None).unwrap();
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        Self {
            directory,
            url: address.to_string(),
            serving: Some(listener.spawn(service(catalogue)).unwrap()),
        }
    }

    /// Runs a command with this node's URL in the environment.
    fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        command().env("FPCACHE_URL", &self.url).args(arguments).output().unwrap()
    }

    /// Runs a command line that must end with this exit code.
    #[track_caller]
    fn ends_with(&self, code: i32, line: &str) -> (String, String) {
        let output = self.run(line.split_whitespace());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}\n{out}\n{err}");
        (out, err)
    }

    #[track_caller]
    fn json(&self, code: i32, line: &str) -> Value {
        let (out, _) = self.ends_with(code, line);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{line} gave {out}: {e}"))
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpcache-cli"));
    command.env_remove("FPCACHE_DATASETS").env_remove("FPCACHE_URL").env_remove("FPCACHE_TABLE");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
