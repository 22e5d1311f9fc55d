//! Scrapes: memory nodes that are asked for their metrics, over connections that may be kept.

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Chain, Error};
use fpcache_client::{
    BuildKeys, ByteClient, Client, ClientError, KeyKind, NodeStats, SocketStats, TableClient, TableInfo,
    TableName, Tables,
};
use fpcache_datasets::causes;
use rustix::io::Errno;

use crate::exposition::Metric;
use crate::figures::{TableScrape, of_all, up};
use crate::table_arguments::TableArguments;

/// Memory nodes that are scraped.
pub(crate) struct Scraper(Vec<NodeScraper>);

/// What memory nodes told, and which did not.
#[derive(Default)]
pub(crate) struct Scrape {
    pub(crate) metrics: Vec<Metric>,
    /// Why memory nodes told nothing.
    pub(crate) failed_nodes: Vec<String>,
    /// Why nothing was told of tables.
    pub(crate) failed_tables: Vec<String>,
}

/// A memory node, and what is kept of it.
struct NodeScraper {
    place: TableArguments,
    /// Whether it is the only one.
    is_alone: bool,
    tables: Option<Tables>,
    clients: BTreeMap<TableName, AnyClient>,
    /// How many of them at most are kept.
    most: usize,
}

enum AnyClient {
    U64(Client),
    Bytes(ByteClient),
}

/// A scraper for several threads, which asks for one answer at a time.
pub(crate) struct SharedScraper<T>(Mutex<(Scraper, Option<(Instant, T)>)>);

impl<T: Clone> SharedScraper<T> {
    pub(crate) fn of(scraper: Scraper) -> Self {
        Self(Mutex::new((scraper, None)))
    }

    /// What memory nodes tell, asked for since the call began: by this thread, or by another one
    /// meanwhile. So none waits for more than the answer that is under way and the next one.
    pub(crate) fn ask(&self, ask: impl FnOnce(&mut Scraper) -> T) -> T {
        let called = Instant::now();
        // A panic elsewhere leaves memory nodes as they were.
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (scraper, told) = &mut *shared;
        if let Some((began, told)) = told
            && *began >= called
        {
            return told.clone();
        }
        let began = Instant::now();
        told.insert((began, ask(scraper))).1.clone()
    }
}

impl Scraper {
    /// Of each memory node in the URL; clients of this many tables in all are kept for the next
    /// scrape, of each memory node as many.
    pub(crate) fn of(place: &TableArguments, most: usize) -> Result<Self, ClientError> {
        let places = place.each()?;
        let (is_alone, most) = (places.len() == 1, most / places.len().max(1));
        let node = |place| NodeScraper { place, is_alone, tables: None, clients: BTreeMap::new(), most };
        Ok(Self(places.into_iter().map(node).collect()))
    }

    /// How many memory nodes are asked.
    pub(crate) fn nodes(&self) -> usize {
        self.0.len()
    }

    /// Asks all of them for their metrics, which takes about as long as the deadline of one call
    /// where one does not answer.
    pub(crate) fn scrape(&mut self) -> Scrape {
        let mut scrape = Scrape::default();
        let told = self.ask_each(|node| {
            let mut failed = Vec::new();
            node.scrape(&mut failed).map(|told| (told, failed))
        });
        for (node, told) in self.0.iter().zip(told) {
            let told = match told {
                Ok((told, failed)) => {
                    scrape.failed_tables.extend(failed);
                    told
                }
                Err(why) => {
                    scrape.failed_nodes.push(why);
                    vec![up(false)]
                }
            };
            match node.is_alone {
                true => scrape.metrics = told,
                false => {
                    told.into_iter().for_each(|metric| add(&mut scrape.metrics, metric, &node.place.url))
                }
            }
        }
        scrape
    }

    /// Asks all of them for an answer, and returns why some gave none.
    pub(crate) fn unanswered(&mut self) -> Vec<String> {
        let asked = self.ask_each(|node| node.tables().and_then(Tables::ping));
        asked.into_iter().filter_map(Result::err).collect()
    }

    /// Asks each of them at the same time; where one tells nothing, says why.
    fn ask_each<T: Send>(
        &mut self,
        ask: impl Fn(&mut NodeScraper) -> Result<T, ClientError> + Sync,
    ) -> Vec<Result<T, String>> {
        let ask = &ask;
        thread::scope(|scope| {
            let start = self.0.iter_mut().map(|node| {
                let asked = move || ask(&mut *node).map_err(|error| node.why(error));
                thread::Builder::new().spawn_scoped(scope, asked)
            });
            let started: Vec<_> = start.collect();
            let end = |started: Result<thread::ScopedJoinHandle<'_, _>, _>| match started {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(error) => Err(format!("starting a thread that asks a memory node: {error}")),
            };
            started.into_iter().map(end).collect()
        })
    }
}

/// Adds what one of several memory nodes has told to what others have: each metric comes once, with
/// all its samples.
fn add(metrics: &mut Vec<Metric>, mut metric: Metric, url: &str) {
    metric.samples.iter_mut().for_each(|(labels, _)| labels.insert(0, ("node", url.to_owned())));
    match metrics.iter_mut().find(|other| other.name == metric.name) {
        Some(other) => other.samples.append(&mut metric.samples),
        None => metrics.push(metric),
    }
}

impl NodeScraper {
    /// Why it told nothing, with its URL where it is one of several.
    fn why(&self, error: ClientError) -> String {
        if self.is_alone { causes::in_one_line(Error::from(error).chain()) } else { self.place.why(&error) }
    }

    fn tables(&mut self) -> Result<&Tables, ClientError> {
        match &mut self.tables {
            Some(tables) => Ok(tables),
            none => Ok(none.insert(self.place.tables()?)),
        }
    }

    /// What it has to tell; and why it does not of some tables.
    fn scrape(&mut self, failed: &mut Vec<String>) -> Result<Vec<Metric>, ClientError> {
        let until = Instant::now() + self.place.deadline;
        let list = self.tables()?.list()?;
        self.clients.retain(|name, _| list.tables.iter().any(|info| info.name == *name));
        let (mut told, mut sockets, mut unasked) = (Vec::new(), None, 0);
        for (table, info) in list.tables.iter().enumerate().filter(|(_, info)| !info.is_closed()) {
            if left(until).is_zero() {
                unasked += 1;
                told.push(TableScrape { table, stats: None });
                continue;
            }
            let stats = match self.ask(info, sockets.is_none(), until) {
                Ok((stats, of_sockets)) => {
                    sockets = sockets.or(of_sockets);
                    Some(stats)
                }
                Err(error) if is_gone(&error) => continue,
                Err(error) => {
                    // Where it is the memory node that does not answer, no other table need be
                    // tried.
                    if !left(until).is_zero() {
                        self.tables()?.ping()?;
                    }
                    failed.push(format!("the table `{}` tells no counters: {}", info.name, self.why(error)));
                    None
                }
            };
            told.push(TableScrape { table, stats });
        }
        if unasked > 0 {
            let (url, deadline) = (&self.place.url, self.place.deadline);
            failed.push(format!(
                "{url}: the counters of {unasked} tables were not asked for within {deadline:?}: raise --deadline"
            ));
        }
        Ok(of_all(&list, &told, sockets.as_ref()))
    }

    /// A table's counters; and those of the memory node's sockets, if they are wanted and there are
    /// any.
    fn ask(
        &mut self,
        info: &TableInfo,
        wants_sockets: bool,
        until: Instant,
    ) -> Result<(NodeStats, Option<SocketStats>), ClientError> {
        // A client that fails may be of a table that was made anew since.
        if let Some(kept) = self.clients.remove(&info.name)
            && let Ok(told) = kept.ask(wants_sockets, until)
        {
            self.clients.insert(info.name, kept);
            return Ok(told);
        }
        let place = TableArguments { table: info.name, deadline: left(until), ..self.place.clone() };
        let client = match AnyClient::of(&place, info.kind) {
            Err(error) if !self.clients.is_empty() && lacks_descriptors(&error) => {
                self.most = self.clients.len() / 2;
                self.clients.clear();
                AnyClient::of(&place, info.kind)?
            }
            client => client?,
        };
        let told = client.ask(wants_sockets, until)?;
        if self.clients.len() < self.most {
            self.clients.insert(info.name, client);
        }
        Ok(told)
    }
}

/// The time that is left until then.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

impl AnyClient {
    fn of(place: &TableArguments, kind: KeyKind) -> Result<Self, ClientError> {
        Ok(match kind {
            KeyKind::U64 => Self::U64(place.client()?),
            KeyKind::Bytes => Self::Bytes(place.client()?),
        })
    }

    fn ask(
        &self,
        wants_sockets: bool,
        until: Instant,
    ) -> Result<(NodeStats, Option<SocketStats>), ClientError> {
        fn of<K: BuildKeys>(
            client: &TableClient<K>,
            wants_sockets: bool,
            until: Instant,
        ) -> Result<(NodeStats, Option<SocketStats>), ClientError> {
            let stats = client.with_deadline(left(until)).stats()?;
            let sockets = || client.with_deadline(left(until)).sockets().ok().flatten();
            // A memory node of an older release refuses to tell, which is no reason to tell
            // nothing.
            let sockets = if wants_sockets { sockets() } else { None };
            Ok((stats, sockets.filter(|sockets| sockets.io_threads > 0)))
        }
        match self {
            Self::U64(client) => of(client, wants_sockets, until),
            Self::Bytes(client) => of(client, wants_sockets, until),
        }
    }
}

/// Whether a table is not there any more that was listed: it was dropped, or is being made anew,
/// perhaps over several memory nodes.
fn is_gone(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::NoSuchTable { .. } | ClientError::OtherKeys { .. } | ClientError::TableNotWhole { .. }
    )
}

/// Whether this process or the machine has no descriptor left.
fn lacks_descriptors(error: &ClientError) -> bool {
    let mut causes = Chain::new(error).filter_map(|cause| cause.downcast_ref::<Arc<io::Error>>());
    causes.any(|cause| matches!(Errno::from_io_error(cause), Some(Errno::MFILE | Errno::NFILE)))
}

#[cfg(test)]
mod tests {
    use fpcache_fabric::FabricError;

    use super::*;

    /// The memory node had no metrics at all then.
    #[test]
    fn a_listed_table_that_is_made_anew_over_several_memory_nodes_is_left_out() {
        let why = || "the table `t` over several memory nodes is not whole yet".to_owned();
        assert!(is_gone(&ClientError::TableNotWhole { why: why() }));
        assert!(is_gone(&ClientError::NoSuchTable { why: why() }));
        assert!(!is_gone(&ClientError::Emptied));
    }

    /// The clients that were kept left no descriptor for others, for as long as the process ran.
    #[test]
    fn a_lack_of_descriptors_is_told_from_other_failures() {
        let of_system = |errno: Errno| FabricError::os("opening a socket", errno.into());
        let connecting = |errno| {
            let (address, source) = ("tcp://x".to_owned(), Box::new(of_system(errno)));
            ClientError::from(FabricError::Connecting { address, source })
        };
        assert!(lacks_descriptors(&of_system(Errno::MFILE).into()));
        assert!(lacks_descriptors(&connecting(Errno::NFILE)));
        assert!(!lacks_descriptors(&connecting(Errno::CONNREFUSED)));
    }
}
