//! Options of `peers`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use fpcache_client::ClientConfig;
use serde::Serialize;

use crate::counts::positive_count;
use crate::run::options::RunArgs;
use crate::systems::memcached::MAX_KEY_BYTES;

/// Ends the help of `peers`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval peers
  fpcache-eval peers --keys 10M --system fpcache,hashmap,redis --json peers.json
  fpcache-eval peers --keys 200K --seconds 0.2 --waiting asleep

The same records and the same stream of lookups for each system, in one run, its passes taking turns. Redis, Valkey and \
memcached are started and ended by this command where they are installed, in memory, keeping nothing, with one client on this \
machine: over a unix socket and over TCP, each key by itself, 64 in a pipeline, and 64 in one request. FPCache is also asked by 64 \
tasks of one thread, a key each, and as a table over three memory nodes over TCP. Ratios are to Redis \
over its unix socket, asked for one key at a time (to Valkey or memcached where it is not there).

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the comparison failed.";

/// The options of `peers`.
#[derive(Args, Clone, Debug)]
pub struct PeersArgs {
    /// Records, such as 10M
    #[arg(long, default_value = "1M", value_parser = positive_count)]
    pub keys: u64,

    /// Bytes of every key, which is `user` and a number as in YCSB
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(23..=MAX_KEY_BYTES as i64))]
    pub key_bytes: u32,

    /// Bytes of every value
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub value_bytes: u32,

    /// Systems, separated by commas [default: all]
    #[arg(long = "system", value_enum, value_delimiter = ',')]
    pub systems: Vec<PeerName>,

    /// Keys per pipeline or multi-key request
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub together: u32,

    /// Approximate seconds of a pass
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,

    /// Passes of each, interleaved; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// How to wait for replies and requests over sockets
    #[arg(long, value_enum, default_value = "own")]
    pub waiting: WaitingName,

    /// Seed of records and lookups
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Also write the results as JSON, to a file or, with -, to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A system of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    /// FPCache: a memory node in a second process, over shared memory, a unix socket and TCP, and
    /// three over TCP
    Fpcache,
    /// A hash map in this process
    Hashmap,
    /// An ordered map in this process
    Btreemap,
    /// LMDB: an ordered map in mapped files, if this program was built with it
    Lmdb,
    /// Redis, or Valkey if installed
    Redis,
    /// memcached
    Memcached,
}

/// How to wait for replies and requests over sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitingName {
    /// As each system does by default: FPCache's clients and memory nodes spin for up to 50 µs and
    /// then sleep, those of others sleep
    Own,
    /// All clients spin; all servers sleep until there are requests
    Awake,
    /// All clients and servers sleep at once
    Asleep,
}

impl WaitingName {
    /// What it means, in a table's title.
    pub(super) fn explained(self) -> &'static str {
        match self {
            Self::Own => "each waiting in its own way",
            Self::Awake => "all clients looking again and again, all servers sleeping as they wait",
            Self::Asleep => "all sleeping as they wait",
        }
    }

    /// How long FPCache's memory nodes look at sockets before they sleep, if not as long as the
    /// daemon's. Redis and memcached sleep at once, whatever their clients do.
    fn spin_of_nodes(self) -> Option<Duration> {
        match self {
            Self::Own => None,
            Self::Awake | Self::Asleep => Some(Duration::ZERO),
        }
    }

    /// How long FPCache's clients do, if not as long as others.
    fn spin_of_clients(self) -> Option<Duration> {
        match self {
            Self::Own => None,
            // Longer than an answer takes: they never sleep.
            Self::Awake => Some(Duration::from_secs(1)),
            Self::Asleep => Some(Duration::ZERO),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds from 0.01 to 3600, such as 1".to_owned())
}

impl PeersArgs {
    /// The systems, each once.
    pub fn systems(&self) -> Vec<PeerName> {
        let all = PeerName::value_variants().iter().copied();
        all.filter(|name| self.systems.is_empty() || self.systems.contains(name)).collect()
    }

    /// The settings of FPCache's clients.
    ///
    /// # Errors
    /// If the options are invalid.
    pub fn client_config(&self) -> anyhow::Result<ClientConfig> {
        let config = RunArgs { spin: self.waiting.spin_of_clients(), ..self.run()? }.client_config();
        Ok(config)
    }

    /// The experiment that FPCache's part is, with memory nodes that wait as they should; its
    /// clients have [`client_config`](Self::client_config).
    ///
    /// # Errors
    /// If the options are invalid.
    pub fn run(&self) -> anyhow::Result<RunArgs> {
        let words = [
            format!("--dataset=ycsb:{}", self.keys),
            format!("--key-bytes={}", self.key_bytes),
            format!("--value-bytes={}", self.value_bytes),
            format!("--seed={}", self.seed),
        ];
        let run = RunArgs::of(words).context("the options of FPCache's part")?;
        let run = RunArgs { spin: self.waiting.spin_of_nodes(), ..run };
        run.validate()?;
        ensure!(run.dataset.key_kind() == fpcache_datasets::KeyKind::Bytes, "ycsb has integer keys now");
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::command;

    #[test]
    fn clients_and_memory_nodes_wait_as_those_of_other_systems_do() {
        let usual = ClientConfig::default().spin;
        let second = Duration::from_secs(1);
        for (waiting, of_client, of_node) in [
            ("own", usual, None),
            ("awake", second, Some(Duration::ZERO)),
            ("asleep", Duration::ZERO, Some(Duration::ZERO)),
        ] {
            let Ok(Command::Peers(arguments)) = command("peers", &format!("--waiting {waiting}")) else {
                panic!("no `peers`")
            };
            let config = arguments.client_config().expect("options");
            let run = arguments.run().expect("options");
            assert_eq!((config.spin, run.node(1 << 20, 0).spin), (of_client, of_node), "{waiting}");
        }
    }
}
