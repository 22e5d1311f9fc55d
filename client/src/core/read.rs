//! Lookups and scans, with retries.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;
use fpcache::read::{
    Cost, LookupScratch, Outcome, Outcomes, Scan, Wanted, WordAnswer, contains, look_up, look_up_all,
    look_up_word,
};
use fpcache::table::Table;

use super::attempts::drive_as_it_gets_on;
use super::{Connector, Core, EndpointOf, Held};
use crate::empty::or_of_empty;
use crate::error::ClientError;
use crate::session::{Buffers, ReaderContext};

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// The answer of a lookup without anything rare in it, in a table of words.
    #[inline(always)]
    pub(crate) fn look_up_word<'h>(
        &self,
        held: &'h mut Held<K, T>,
        key: &K::Key,
    ) -> Option<(WordAnswer, &'h RecordShape)> {
        let context = held.as_mut().filter(|context| self.is_current(context))?;
        let ReaderContext { table, buffers, .. } = context;
        let Buffers { endpoint, lookup, .. } = buffers;
        let answer = look_up_word(endpoint, table, lookup, key);
        answer.is_answer().then(|| (answer, &table.view().geometry().shape))
    }

    /// Looks up one key and passes the answer to `take`.
    #[inline(never)]
    pub(crate) fn look_up<R>(
        &self,
        held: &mut Held<K, T>,
        key: &K::Key,
        within: Duration,
        mut take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        let mut retry = self.begun(within);
        loop {
            let read = |buffers: &mut Buffers<K, EndpointOf<T>>, table: &Table<K>| {
                let Buffers { endpoint, lookup, .. } = buffers;
                look_up(endpoint, table, lookup, key, &mut take)
            };
            match self.try_table(held, &mut retry, read) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_of_empty_table() => {
                    return Ok(take(&Outcome::server_side(None, 0, 0), None));
                }
                Err(error) => return Err(error),
            }
            match self.look_up_server_side(held, key, &mut retry, &mut take) {
                Err(error) => self.get_over(held, error, &mut retry)?,
                answered => return answered,
            }
        }
    }

    /// Whether a key is there.
    pub(crate) fn contains(
        &self,
        held: &mut Held<K, T>,
        key: &K::Key,
        within: Duration,
    ) -> Result<bool, ClientError> {
        let mut retry = self.begun(within);
        let read = |buffers: &mut Buffers<K, EndpointOf<T>>, table: &Table<K>| {
            let Buffers { endpoint, lookup, .. } = buffers;
            contains(endpoint, table, lookup, key, |outcome| outcome.version.is_some())
        };
        loop {
            match self.try_table(held, &mut retry, read) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_of_empty_table() => return Ok(false),
                Err(error) => return Err(error),
            }
            match self.contains_server_side(held, key, &mut retry) {
                Err(error) => self.get_over(held, error, &mut retry)?,
                answered => return answered,
            }
        }
    }

    /// Looks up a group of keys and passes the buffers with the answers to `take`.
    #[inline]
    pub(crate) fn lookup<'k, R>(
        &self,
        held: &mut Held<K, T>,
        (keys, wanted): (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        mut take: impl FnMut(&mut LookupScratch<K>) -> R,
    ) -> Result<R, ClientError> {
        let mut retry = self.begun(within);
        loop {
            let read = |buffers: &mut Buffers<K, EndpointOf<T>>, table: &Table<K>| {
                let Buffers { endpoint, lookup, .. } = buffers;
                look_up_all(endpoint, table, lookup, keys.clone(), wanted)?;
                Ok(take(&mut buffers.lookup))
            };
            match self.try_table(held, &mut retry, read) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_of_empty_table() => return Ok(take(&mut self.absent(keys.count()))),
                Err(error) => return Err(error),
            }
            match self.lookup_server_side(held, keys.clone(), &mut retry, &mut take) {
                Err(error) => self.get_over(held, error, &mut retry)?,
                answered => return answered,
            }
        }
    }

    /// The answers of a group of keys that are all absent.
    fn absent(&self, keys: usize) -> LookupScratch<K> {
        let mut outcomes = Outcomes::default();
        (0..keys).for_each(|_| outcomes.push_server_side(None, &[], 0));
        let mut scratch = LookupScratch::new(self.matcher);
        scratch.swap_outcomes(&mut outcomes);
        scratch
    }

    /// Scans, and passes each record to `take` in key order. Records found before the directory
    /// turned out to be out of date, or the memory node to be down, are passed on, and the scan
    /// continues after them.
    pub(crate) fn scan(
        &self,
        held: &mut Held<K, T>,
        (start, end): (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let (mut from, mut left, mut cost) = (Some(start.to_owned()), limit, Cost::default());
        let scanned = self.by_parts(held, within, |buffers, table, got_on| {
            // It may stop to have long values taken before there are more.
            while let Some(next) = from.take() {
                let mut scan = Scan::new(table.view(), &mut buffers.scan, next.borrow(), left)
                    .with_groups(table.groups());
                if let Some(end) = end {
                    scan = scan.until(end);
                }
                let ended = drive_as_it_gets_on(&mut buffers.endpoint, &mut scan, Scan::stuck_at, within);
                scan.records().for_each(|(key, value)| take(K::as_view(key), value));
                (from, left) = (scan.uncovered().map(ToOwned::to_owned), left - scan.records().len());
                got_on.note(from.as_ref() != Some(&next));
                cost += scan.cost();
                ended?;
            }
            Ok(cost)
        });
        or_of_empty(scanned, Cost::default())
    }
}
