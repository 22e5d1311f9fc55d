//! One measurement: a verb, repeated over one connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use fpcache_fabric::{
    AreaId, Batch, Clock, Connection, Deadline, Endpoint, Landing, MeterSnapshot, REGION, RemoteAddr,
};
use fpcache_rf_rpc::{Client, ClientOptions, Mode, Results};
use hdrhistogram::Histogram;

use super::options::{Task, Verb};
use crate::machine::split_mix;

/// Bytes of the region that is READ.
pub const REGION_BYTES: usize = 16 << 20;
/// Bytes at the begin of the writable area that WRITEs and swaps go to; the buffers of calls
/// follow.
pub const SCRATCH_BYTES: usize = 1 << 20;
/// Latencies above this count as this.
const LONGEST_NS: u64 = 60_000_000_000;
/// Doorbells before those that are timed; what all cost is counted.
pub const WARM_UP: u64 = 50;
/// The RPC that gives back what it is given.
pub const ECHO: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

/// The word at an offset of the region.
pub fn word_at(offset: u64) -> u64 {
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a row is measured with.
pub struct Bench<C: Connection> {
    pub connection: C,
    /// Opened before, because a connection has one channel: fetching and replied to.
    pub fetching: Client<C>,
    pub replied: Client<C>,
    pub clock: Arc<dyn Clock>,
    /// Memory that may be written.
    pub scratch: AreaId,
    pub took: Duration,
    pub state: u64,
}

/// The results of a task.
pub struct Measured {
    pub doorbells: Histogram<u64>,
    pub seconds: f64,
    pub cost: MeterSnapshot,
    /// Of calls whose results were fetched: fetches in vain, and calls whose results were sent.
    pub failed: u64,
    pub replied: u64,
    pub mismatches: u64,
}

/// Opens what a transport's rows need.
pub fn bench<C: Connection>(
    mut connect: impl FnMut() -> anyhow::Result<C>,
    clock: Arc<dyn Clock>,
    scratch: AreaId,
    (took, retries, seed): (Duration, u32, u64),
) -> anyhow::Result<Bench<C>> {
    let open = |fixed, connection| {
        // A batch of the largest kind of row fits the first READ.
        let options = ClientOptions { retries, fixed, fetch_bytes: 256 };
        Client::open(connection, options, Arc::clone(&clock), Deadline::after_on(&*clock, PATIENCE))
    };
    let fetching = open(None, connect()?).context("opening a channel")?;
    let replied = open(Some(Mode::Reply), connect()?).context("opening a channel")?;
    Ok(Bench { connection: connect()?, fetching, replied, clock, scratch, took, state: seed })
}

impl<C: Connection> Bench<C> {
    pub fn measure(&mut self, task: Task) -> anyhow::Result<Measured> {
        match task.verb {
            Verb::Read | Verb::Write | Verb::Cas => self.one_sided(task),
            Verb::Ring => self.ring(task),
            Verb::RfRpc | Verb::ServerReply => self.calls(task),
        }
    }

    fn one_sided(&mut self, task: Task) -> anyhow::Result<Measured> {
        let (mut endpoint, mut batch, mut state) = (self.connection.endpoint(), Batch::new(), self.state);
        let (bytes, scratch) = (task.bytes as usize, self.scratch);
        let source = vec![0xa5; bytes];
        let most = if task.verb == Verb::Read { REGION_BYTES } else { SCRATCH_BYTES };
        let places = ((most - bytes) / 8) as u64;
        let mut landings: Vec<(u64, Landing)> = Vec::new();
        let mut mismatches = 0;
        let before = endpoint.meter().snapshot();
        let (doorbells, seconds) = self.again(|| {
            batch.clear();
            landings.clear();
            for _ in 0..task.batch {
                let offset = split_mix(&mut state) % places * 8;
                match task.verb {
                    Verb::Read => {
                        landings.push((offset, batch.read(RemoteAddr { area: REGION, offset }, bytes)))
                    }
                    Verb::Write => batch.write(RemoteAddr { area: scratch, offset }, &source),
                    _ => _ = batch.compare_swap(RemoteAddr { area: scratch, offset }, 0, 1),
                }
            }
            endpoint.run(&mut batch)?;
            // One word of each, for what is measured is the fabric.
            mismatches +=
                landings.iter().filter(|(offset, landing)| batch.u64(*landing) != word_at(*offset)).count()
                    as u64;
            Ok(())
        })?;
        self.state = state;
        let cost = endpoint.meter().snapshot() - before;
        Ok(Measured { doorbells, seconds, cost, failed: 0, replied: 0, mismatches })
    }

    fn ring(&mut self, task: Task) -> anyhow::Result<Measured> {
        let (mut request, mut reply) = (vec![7; task.bytes as usize], Vec::new());
        let (mut number, mut mismatches) = (0u64, 0);
        let (connection, clock) = (&self.connection, &self.clock);
        let before = connection.call_meter();
        let (doorbells, seconds) = self.again(|| {
            number += 1;
            // The first byte is zero: what begins with `RF` is a message of RF-RPC.
            request[..8].copy_from_slice(&(number << 8).to_le_bytes());
            connection.call(&request, &mut reply, Deadline::after_on(&**clock, PATIENCE))?;
            mismatches += u64::from(reply != request);
            Ok(())
        })?;
        let cost = connection.call_meter() - before;
        Ok(Measured { doorbells, seconds, cost, failed: 0, replied: 0, mismatches })
    }

    fn calls(&mut self, task: Task) -> anyhow::Result<Measured> {
        let requests = vec![vec![7; task.bytes as usize]; task.batch as usize];
        let (mut requests, mut results) = (requests, Results::new());
        let (mut number, mut mismatches) = (0u64, 0);
        let (took, clock) = (self.took, Arc::clone(&self.clock));
        let client = if task.verb == Verb::RfRpc { &mut self.fetching } else { &mut self.replied };
        let (before, counts) = (client.meter(), client.counts());
        let (doorbells, seconds) = again(took, &*clock, || {
            number += 1;
            for request in &mut requests {
                request[..8].copy_from_slice(&number.to_le_bytes());
            }
            let deadline = Deadline::after_on(&*clock, PATIENCE);
            let sent = client.send(ECHO, &requests, deadline)?;
            client.recv(sent, &mut results, deadline)?;
            mismatches += u64::from(!results.iter().eq(requests.iter().map(Vec::as_slice)));
            Ok(())
        })?;
        let (cost, now) = (client.meter() - before, client.counts());
        let (failed, replied) = (now.failed - counts.failed, now.replied - counts.replied);
        Ok(Measured { doorbells, seconds, cost, failed, replied, mismatches })
    }

    fn again(&self, act: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<(Histogram<u64>, f64)> {
        again(self.took, &*self.clock, act)
    }
}

/// Does something for a while.
fn again(
    took: Duration,
    clock: &dyn Clock,
    mut act: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<(Histogram<u64>, f64)> {
    let mut doorbells = Histogram::new_with_bounds(1, LONGEST_NS, 3)?;
    for _ in 0..WARM_UP {
        act()?;
    }
    let began = clock.now();
    let mut last = began;
    while last - began < took {
        act()?;
        let now = clock.now();
        doorbells.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
    Ok((doorbells, (last - began).as_secs_f64()))
}
