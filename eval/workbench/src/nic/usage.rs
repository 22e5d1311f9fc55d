//! The share of its time that each part of a world worked, and which part is the bottleneck.

use super::Picos;
use super::card::Card;
use super::server::Server;
use super::world::World;

/// What was busy, as shares of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Requests served by the busiest memory node's card.
    pub served: f64,
    /// Bytes from the busiest memory node.
    pub bytes_from: f64,
    /// Bytes to the busiest memory node.
    pub bytes_to: f64,
    /// Requests issued, or served, by the busiest compute node's card, or replies of calls issued
    /// by the busiest memory node's.
    pub issued: f64,
    /// Bytes to or from the busiest compute node.
    pub compute_bytes: f64,
    /// The busiest memory node's cores.
    pub cores: f64,
    /// All threads of the compute nodes.
    pub threads: f64,
}

/// What more of would raise the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Requests per second of a card.
    Rate,
    /// Bytes per second of a card.
    Bandwidth,
    /// Time of processors.
    Cpu,
    /// Clients: each waits for its own round trips.
    Latency,
}

impl Usage {
    /// From this share of the time on, a stage is what binds.
    const BINDS: f64 = 0.9;

    /// What binds.
    pub fn bound(&self) -> Bound {
        let stages = [
            (self.served.max(self.issued), Bound::Rate),
            (self.bytes_from.max(self.bytes_to).max(self.compute_bytes), Bound::Bandwidth),
            (self.cores.max(self.threads), Bound::Cpu),
        ];
        let busiest = stages.into_iter().fold((0.0, Bound::Latency), |a, b| if b.0 > a.0 { b } else { a });
        if busiest.0 >= Self::BINDS { busiest.1 } else { Bound::Latency }
    }
}

/// How long everything had worked at one time.
#[derive(Clone, Debug)]
pub struct Work {
    now: Picos,
    memory: Vec<Card>,
    compute: Vec<Card>,
    cores: Vec<Picos>,
    threads: Picos,
}

impl Work {
    /// The time.
    pub fn now(&self) -> Picos {
        self.now
    }
}

impl World {
    /// How long everything has worked so far.
    pub fn work(&self) -> Work {
        Work {
            now: self.now,
            memory: self.memory.clone(),
            compute: self.compute.clone(),
            cores: self.cores.iter().map(|node| node.iter().map(Server::busy).sum()).collect(),
            threads: self.threads.iter().map(Server::busy).sum(),
        }
    }

    /// What was busy since then.
    pub fn usage_since(&self, then: &Work) -> Usage {
        let now = self.work();
        let span = (now.now - then.now).max(1) as f64;
        let most = |now: &[Card], then: &[Card], of: fn(&Card) -> Picos| {
            let shares = now.iter().zip(then).map(|(now, then)| (of(now) - of(then)) as f64 / span);
            shares.fold(0.0, f64::max).min(1.0)
        };
        let cores = now.cores.iter().zip(&then.cores).map(|(now, then)| (now - then) as f64);
        Usage {
            served: most(&now.memory, &then.memory, |card| card.serve.busy()),
            bytes_from: most(&now.memory, &then.memory, |card| card.transmit.busy()),
            bytes_to: most(&now.memory, &then.memory, |card| card.receive.busy()),
            issued: most(&now.compute, &then.compute, |card| card.issue.busy().max(card.serve.busy()))
                .max(most(&now.memory, &then.memory, |card| card.issue.busy())),
            compute_bytes: most(&now.compute, &then.compute, |card| {
                card.transmit.busy().max(card.receive.busy())
            }),
            cores: (cores.fold(0.0, f64::max) / span / f64::from(self.hosts.cores.max(1))).min(1.0),
            threads: ((now.threads - then.threads) as f64 / span / self.threads.len().max(1) as f64).min(1.0),
        }
    }
}
