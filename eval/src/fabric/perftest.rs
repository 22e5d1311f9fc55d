//! Measurements of the same card by [perftest](https://github.com/linux-rdma/perftest), where it is
//! installed.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fpcache_fabric::rdma::{self, CardChoice};

use super::options::{Task, Verb};
use crate::leftovers::{ChildKind, EndedChild};

/// How long its client is started again while its server does not listen yet.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// How long a row may take, beside its requests.
const PATIENCE: Duration = Duration::from_secs(60);
/// The fewest requests that it takes.
const FEWEST: u64 = 5;

/// The tools, and the card that they are to use.
pub struct Perftest {
    card: CardChoice,
}

impl Perftest {
    /// None if they are not installed, or there is no card.
    pub fn find() -> Option<Self> {
        let is_installed = Command::new("ib_read_bw").arg("--version").output().is_ok();
        let card = rdma::resolve(&CardChoice::default());
        card.ok().filter(|_| is_installed).map(|card| Self { card })
    }

    /// Requests per second of one queue pair that has a list of `batch` under way, posted with one
    /// doorbell and signalled once, as an endpoint has; measured over about as many requests. None
    /// if no tool does the like.
    pub fn rate(&self, task: Task, requests: u64) -> anyhow::Result<Option<f64>> {
        let (tool, options) = match task.verb {
            Verb::Read => ("ib_read_bw", &[][..]),
            Verb::Write => ("ib_write_bw", &[][..]),
            Verb::Cas => ("ib_atomic_bw", &["--atomic_type", "CMP_AND_SWAP"][..]),
            Verb::Ring | Verb::RfRpc | Verb::ServerReply => return Ok(None),
        };
        let lists = requests.max(FEWEST).div_ceil(u64::from(task.batch));
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr())?.port();
        let command = || {
            let mut command = Command::new(tool);
            command.args(["-F", "-N", "--output", "message_rate"]).args(options);
            let numbers = [
                ("--port", u64::from(port)),
                ("--tx-depth", u64::from(task.batch)),
                ("--post_list", u64::from(task.batch)),
                ("--iters", lists * u64::from(task.batch)),
            ];
            command.args(numbers.map(|(name, number)| format!("{name}={number}")));
            if task.verb != Verb::Cas {
                command.arg(format!("--size={}", task.bytes));
            }
            let CardChoice { device, port, gid, .. } = &self.card;
            command.args(device.iter().map(|device| format!("--ib-dev={device}")));
            command.args(port.iter().map(|port| format!("--ib-port={port}")));
            command.args(gid.iter().map(|gid| format!("--gid-index={gid}")));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            command
        };
        let served = EndedChild::spawn(&mut command(), ChildKind::Foreign)
            .with_context(|| format!("starting {tool}"))?;
        let began = Instant::now();
        let said = loop {
            let client = EndedChild::spawn(command().arg("127.0.0.1"), ChildKind::Foreign)?;
            match output(client)? {
                (true, said) => break said,
                (false, _) if began.elapsed() < STARTS_WITHIN => thread::sleep(Duration::from_millis(100)),
                (false, said) => bail!("{tool} failed: {}", said.trim()),
            }
        };
        output(served)?;
        let millions = said.lines().rev().find_map(|line| line.trim().parse::<f64>().ok());
        let millions = millions.with_context(|| format!("{tool} said no rate: {}", said.trim()))?;
        Ok(Some(millions * 1e6))
    }
}

/// Whether a process succeeded, and what it said, which is little.
fn output(mut process: EndedChild) -> anyhow::Result<(bool, String)> {
    let status = process.ends_within(PATIENCE)?;
    let status = status.with_context(|| format!("it did not end within {} s", PATIENCE.as_secs()))?;
    let mut said = String::new();
    if let Some(mut output) = process.take_stdout() {
        output.read_to_string(&mut said)?;
    }
    Ok((status.success(), said))
}
