//! One range of a table over several memory nodes, connected or not.

use std::borrow::Borrow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fpcache::TableName;
use fpcache::cache::CacheConfig;
use fpcache::key_space::BuildKeys;
use fpcache::map::{RangeMap, key_of_bytes};
use fpcache::read::Side;
use fpcache::table_view::OpenError;
use fpcache_fabric::{Deadline, FabricError, SystemClock};

use crate::access::token_for;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::mapped::MappedNode;
use crate::one_node::{ReaderCore, SharedCore};
use crate::open_table::Node;
use crate::remote::RemoteNode;
use crate::span::Span;
use crate::timed_lock::TimedLock;
use crate::url::Url;

use super::map_retries::Tries;
use super::trusted_nodes::follow;

/// A range.
pub(crate) struct PoolRange<K: BuildKeys> {
    pub(super) start: K::Owned,
    pub(super) end: Option<K::Owned>,
    pub(super) url: Url,
    /// The name of its table, which is never given to other keys.
    pub(super) table: TableName,
    core: OnceLock<SharedCore<K>>,
    connecting: TimedLock,
}

/// The ranges of a map.
pub(crate) struct Ranges<K: BuildKeys> {
    /// Tells the maps apart that a client has used.
    pub(super) number: u64,
    pub(super) map: RangeMap,
    /// In the order of keys: all keys are theirs.
    pub(super) ranges: Vec<Arc<PoolRange<K>>>,
}

impl<K: BuildKeys> Ranges<K> {
    /// The ranges of a map, of which those that are as `before` keep their connections.
    /// The client goes no further than what it was `given` lets it.
    pub(super) fn of(
        map: RangeMap,
        number: u64,
        before: Option<&Self>,
        given: &[Url],
    ) -> Result<Self, ClientError> {
        let mut ranges = Vec::with_capacity(map.ranges.len());
        for range in &map.ranges {
            let table = map.table(range)?;
            let url = follow(&range.node, given)?;
            let kept = before.and_then(|before| {
                before.ranges.iter().find(|other| other.table == table && other.url == url)
            });
            if let Some(kept) = kept {
                ranges.push(Arc::clone(kept));
                continue;
            }
            // A map that was checked is bounded by keys.
            let key = |bytes: &[u8]| key_of_bytes::<K>(bytes).unwrap_or_default();
            ranges.push(Arc::new(PoolRange {
                start: key(&range.start),
                end: range.end.as_deref().map(key),
                url,
                table,
                core: OnceLock::new(),
                connecting: TimedLock::default(),
            }));
        }
        Ok(Self { number, map, ranges })
    }

    /// Which range a key is of.
    #[inline]
    pub(crate) fn index_of(&self, key: &K::Key) -> usize {
        // The first one starts at the lowest key.
        self.ranges.partition_point(|range| range.start.borrow() <= key).saturating_sub(1)
    }

    /// Which range the keys right below a key are of.
    pub(super) fn index_below(&self, key: &K::Key) -> usize {
        let at = self.index_of(key);
        if at > 0 && self.ranges[at].start.borrow() == key { at - 1 } else { at }
    }

    /// The range that the keys of a span begin in, those of them that are its own, and the others,
    /// if there are any.
    fn first_of(&self, span: &Span<K>) -> (usize, Span<K>, Option<Span<K>>) {
        let index = self.index_of(span.start.borrow());
        let own_end = self.end_before(index, span.end.as_ref().map(Borrow::borrow));
        let beyond = own_end.map(|own| Span { start: own.clone(), end: span.end.clone() });
        let end = own_end.or(span.end.as_ref()).cloned();
        (index, Span { start: span.start.clone(), end }, beyond)
    }

    /// As [`first_of`](Self::first_of), of the range that they end in.
    fn last_of(&self, span: &Span<K>) -> (usize, Span<K>, Option<Span<K>>) {
        let index = span.end.as_ref().map_or(self.ranges.len() - 1, |end| self.index_below(end.borrow()));
        let own_start = &self.ranges[index].start;
        let goes_on = own_start > &span.start;
        let start = if goes_on { own_start } else { &span.start }.clone();
        let beyond = goes_on.then(|| Span { start: span.start.clone(), end: Some(own_start.clone()) });
        (index, Span { start, end: span.end.clone() }, beyond)
    }

    /// As [`first_of`](Self::first_of), or downwards as [`last_of`](Self::last_of).
    pub(crate) fn part_of(&self, span: &Span<K>, is_down: bool) -> (usize, Span<K>, Option<Span<K>>) {
        if is_down { self.last_of(span) } else { self.first_of(span) }
    }

    /// Which of these keys, by their numbers, are of which range.
    pub(crate) fn divide<'k>(&self, keys: impl Iterator<Item = (usize, &'k K::Key)>) -> Vec<Vec<usize>> {
        let mut parts: Vec<Vec<usize>> = self.ranges.iter().map(|_| Vec::new()).collect();
        keys.for_each(|(at, key)| parts[self.index_of(key)].push(at));
        parts
    }

    /// The ranges in the order in which a search that finds nothing goes on, each with the key from
    /// which it comes there from another: all records of a range are on the side that is asked for
    /// by keys beyond it.
    pub(crate) fn in_search_order(
        &self,
        side: Side,
    ) -> impl Iterator<Item = (usize, &'static K::Key)> + use<K> {
        let count = self.ranges.len();
        (0..count).map(move |step| match side {
            Side::Floor => (count - 1 - step, K::highest()),
            Side::Ceiling => (step, K::lowest()),
        })
    }

    /// A reader's place at a range, which is connected now if it is not, in the time that the call
    /// has left.
    #[inline]
    pub(super) fn place<'h>(
        &self,
        held: &'h mut Option<ReaderCore<K>>,
        index: usize,
        config: &ClientConfig,
        tries: &Tries,
    ) -> Result<&'h mut ReaderCore<K>, ClientError> {
        match held {
            Some(place) => Ok(place),
            nothing => Ok(nothing.insert(self.core(index, config, tries)?.place())),
        }
    }

    /// A range's core, connected now if it is not, in the time that the call has left.
    pub(super) fn core(
        &self,
        index: usize,
        config: &ClientConfig,
        tries: &Tries,
    ) -> Result<&SharedCore<K>, ClientError> {
        match self.ranges[index].core.get() {
            Some(core) => Ok(core),
            None => self.connect(index, config, tries.left()),
        }
    }

    #[cold]
    fn connect(
        &self,
        index: usize,
        config: &ClientConfig,
        within: Duration,
    ) -> Result<&SharedCore<K>, ClientError> {
        let range = &self.ranges[index];
        let deadline = Deadline::after(within);
        let turn = range.connecting.take(deadline, &SystemClock);
        let _turn =
            turn.ok_or(FabricError::DeadlinePassed { waiting_for: "another thread, which connects" })?;
        if let Some(core) = range.core.get() {
            return Ok(core);
        }
        // Each range has an even share of the budget: they are made to have as many keys.
        let share = |cache: CacheConfig| match cache.budget {
            u64::MAX => cache,
            budget => cache.with_budget(budget / self.ranges.len() as u64),
        };
        let token = token_for(&range.url, config.token)?;
        let config =
            config.clone().with_table(range.table).with_cache(config.cache.map(share)).with_token(token);
        let within = deadline.remaining(Instant::now()).unwrap_or(within);
        let core = match &range.url {
            Url::Shm(address) => {
                SharedCore::Mapped(MappedNode::at(address.clone(), range.table).reach(&config, within)?)
            }
            Url::Tcp(address) => {
                SharedCore::Remote(RemoteNode::at(address.clone(), &config).reach(&config, within)?)
            }
        };
        Ok(range.core.get_or_init(|| core))
    }

    /// The error of a range's call, with the memory node's name; of a budget it tells all of it.
    #[cold]
    pub(crate) fn named(&self, index: usize, error: ClientError) -> ClientError {
        match error {
            ClientError::Open(OpenError::Budget { budget, least }) => {
                let ranges = self.ranges.len() as u64;
                let (budget, least) = (budget.saturating_mul(ranges), least.saturating_mul(ranges));
                ClientError::RangesBudget { ranges, budget, least }
            }
            error => error.at(&self.url(index)),
        }
    }

    /// How many ranges there are.
    #[cfg(feature = "tokio")]
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Where a range ends, if what goes up to `end` goes on after it.
    pub(crate) fn end_before(&self, index: usize, end: Option<&K::Key>) -> Option<&K::Owned> {
        let own_end = self.ranges[index].end.as_ref();
        own_end.filter(|own| end.is_none_or(|end| Borrow::<K::Key>::borrow(*own) < end))
    }

    /// A range's core, if it has been connected.
    #[cfg(feature = "tokio")]
    pub(crate) fn connected(&self, index: usize) -> Option<&SharedCore<K>> {
        self.ranges[index].core.get()
    }

    /// The cores of all ranges that have been connected.
    pub(super) fn cores(&self) -> impl Iterator<Item = &SharedCore<K>> {
        self.ranges.iter().filter_map(|range| range.core.get())
    }

    /// The URL of a range's memory node.
    pub(crate) fn url(&self, index: usize) -> String {
        self.ranges[index].url.to_string()
    }

    /// Whether one of the ranges has a table of this name.
    pub(super) fn has(&self, table: &TableName) -> bool {
        self.ranges.iter().any(|range| range.table == *table)
    }

    /// The name of a range's table.
    pub(super) fn table(&self, index: usize) -> TableName {
        self.ranges[index].table
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use fpcache::key_space::{KeyKind, U64Keys};
    use fpcache::map::MapState;

    use super::*;

    /// It waited for its turn, and then had all of its time once more to connect.
    #[test]
    fn a_thread_that_connects_stretches_nobodys_deadline() {
        const WITHIN: Duration = Duration::from_secs(5);
        // Accepts, and never says a word.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let nodes = [format!("tcp://{}", silent.local_addr().expect("bound"))];
        let name: TableName = "t".parse().expect("a name");
        let map = RangeMap::divide(name, KeyKind::U64, 7, &nodes, &[]).expect("a map");
        let whole = map.next(MapState::Whole).expect("a version");
        let ranges = Ranges::<U64Keys>::of(whole, 0, None, &[]).expect("ranges");
        let turn = ranges.ranges[0].connecting.take(Deadline::NONE, &SystemClock).expect("nobody has it");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(WITHIN * 4 / 5);
                drop(turn);
            });
            let begun = Instant::now();
            let connected = ranges.core(0, &ClientConfig::default(), &Tries::begun(WITHIN));
            assert!(connected.is_err() && begun.elapsed() < WITHIN * 3 / 2, "{:?}", begun.elapsed());
        });
    }
}
