//! Options of `fabric`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Ends the help of `fabric`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval fabric
  fpcache-eval fabric --transport shm,sim --bytes 8,4096 --batch 1,64
  fpcache-eval fabric --transport rdma --batch 1,16,64 --json rdma.json

Each transport has a memory node of its own, served by a thread of this process, and one client. `read`, `write` and `cas` post as many \
requests with one doorbell as --batch says, at places drawn at random; `ring` is a request and its reply over the way that FPCache's own \
requests take; `rf-rpc` writes requests into the memory node and fetches their results, as many to a message as --batch says, and \
`server-reply` is the same with results that the memory node sends. Latencies are of a doorbell or a message, rates of requests, \
bandwidth of the bytes asked for. Times of sim are those of its virtual clock: round trips of a network, and no work of a processor.

Where perftest is installed (Debian's package of that name), its ib_read_bw, ib_write_bw and ib_atomic_bw are run after \
the rows of rdma, each with the same bytes, a list as long and no more under way; beside it stand its requests/s and how many times those ours are.

Exit code: 0 if every transport answered rightly, 1 if an answer was wrong, 2 wrong usage or a failure.";

/// The options of `fabric`.
#[derive(Args, Clone, Debug)]
pub struct FabricArgs {
    /// Transports, separated by commas
    #[arg(long = "transport", value_enum, value_delimiter = ',', default_value = "shm,tcp,sim")]
    pub transports: Vec<Way>,

    /// Verbs to measure, separated by commas [default: all]
    #[arg(long = "verb", value_enum, value_delimiter = ',')]
    pub verbs: Vec<Verb>,

    /// Bytes of a READ, a WRITE, and of request and reply of a call; separated by commas
    #[arg(long, value_delimiter = ',', default_value = "8,64,256,4096", value_parser = clap::value_parser!(u32).range(8..=4096))]
    pub bytes: Vec<u32>,

    /// Requests per doorbell batch or message, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,16,64", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub batch: Vec<u32>,

    /// Seconds per row; a thousandth of that in the simulated fabric
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub seconds: f64,

    /// R: number of failed fetches, in two consecutive calls, after which results are sent
    /// [default: 200 over shm, else 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub retries: Option<u32>,

    /// Seed of the offsets, and of the simulated fabric
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Write the results to this file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How the memory node is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Shared memory
    Shm,
    /// TCP over the loopback interface
    Tcp,
    /// A network card, at 127.0.0.1
    Rdma,
    /// The simulated fabric
    Sim,
}

impl Way {
    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Sim => "sim",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// READs of a doorbell
    Read,
    /// WRITEs of a doorbell
    Write,
    /// Compare-and-swap of eight bytes
    Cas,
    /// A request and its reply
    Ring,
    /// Requests whose results are fetched
    RfRpc,
    /// The same with results that are sent
    ServerReply,
}

impl Verb {
    const ALL: [Self; 6] = [Self::Read, Self::Write, Self::Cas, Self::Ring, Self::RfRpc, Self::ServerReply];

    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Cas => "cas",
            Self::Ring => "ring",
            Self::RfRpc => "rf-rpc",
            Self::ServerReply => "server-reply",
        }
    }
}

/// One row to be measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// What is measured.
    pub verb: Verb,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests to a doorbell or a message.
    pub batch: u32,
}

impl FabricArgs {
    /// The rows of one transport.
    pub(super) fn tasks(&self) -> Vec<Task> {
        let verbs = if self.verbs.is_empty() { &Verb::ALL[..] } else { &self.verbs };
        let mut tasks = Vec::new();
        for &verb in verbs {
            for (index, &bytes) in self.bytes.iter().enumerate() {
                for (ordinal, &batch) in self.batch.iter().enumerate() {
                    // Words are swapped, and one request goes through a ring at a time.
                    let once = (verb == Verb::Cas && index > 0) || (verb == Verb::Ring && ordinal > 0);
                    let bytes = if verb == Verb::Cas { 8 } else { bytes };
                    let batch = if verb == Verb::Ring { 1 } else { batch };
                    if !once {
                        tasks.push(Task { verb, bytes, batch });
                    }
                }
            }
        }
        tasks
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=60.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds from 0.001 to 60, such as 0.2".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> Result<Box<FabricArgs>, String> {
        let Command::Fabric(arguments) = command("fabric", options)? else { panic!("no `fabric`") };
        Ok(arguments)
    }

    #[test]
    fn rows_are_verbs_by_bytes_by_batch() {
        let tasks = parse("--bytes 8,64 --batch 1,16").expect("good options").tasks();
        let of = |verb| tasks.iter().filter(|task| task.verb == verb).count();
        assert_eq!(Verb::ALL.map(of), [4, 4, 2, 2, 4, 4]);
        let cases = [("--transport bird", "shm"), ("--bytes 4", "8..=4096"), ("--seconds 0", "0.001")];
        assert_refused(parse, &cases);
    }
}
