//! Lookups and scans, with retries.

use std::borrow::Borrow;
use std::ops::ControlFlow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;
use fpcache::read::{
    Cost, Outcome, ReadError, Scan, ScanScratch, Wanted, WordAnswer, contains, look_up, look_up_word,
};
use fpcache::table::Table;
use fpcache_fabric::Endpoint;

use super::attempts::drive_while_progressing;
use super::recover::Retry;
use super::{Connector, Core, EndpointOf, HeldContext};
use crate::empty_tables::or_if_empty;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::session::{Buffers, ReaderContext};

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// The answer of a lookup without anything rare in it, in a table of words.
    #[inline(always)]
    pub(crate) fn look_up_word<'h>(
        &self,
        held: &'h mut HeldContext<K, T>,
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
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        within: Duration,
        take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        self.read_or_ask(
            (held, within),
            take,
            |take, Buffers { endpoint, lookup, .. }, table| look_up(endpoint, table, lookup, key, take),
            |take, held, retry| self.look_up_server_side(held, key, retry, take),
            |mut take| take(&Outcome::server_side(None, 0, 0), None),
        )
    }

    /// Whether a key is there.
    pub(crate) fn contains(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        within: Duration,
    ) -> Result<bool, ClientError> {
        let is_there = |outcome: &Outcome| outcome.version.is_some();
        self.read_or_ask(
            (held, within),
            (),
            |(), Buffers { endpoint, lookup, .. }, table| contains(endpoint, table, lookup, key, is_there),
            |(), held, retry| self.contains_server_side(held, key, retry),
            |()| false,
        )
    }

    /// Reads until there is an answer, or asks the memory node's processor once the directory has
    /// been out of date too often; that of a table without parameters is `absent`. All three have
    /// `what` they share.
    #[inline(always)]
    pub(super) fn read_or_ask<W, R>(
        &self,
        (held, within): (&mut HeldContext<K, T>, Duration),
        mut what: W,
        mut read: impl FnMut(&mut W, &mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
        mut ask: impl FnMut(&mut W, &mut HeldContext<K, T>, &mut Retry) -> Result<R, ClientError>,
        absent: impl FnOnce(W) -> R,
    ) -> Result<R, ClientError> {
        let mut retry = self.begun(within);
        loop {
            match self.try_table(held, &mut retry, |buffers, table, _| read(&mut what, buffers, table)) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_of_empty_table() => return Ok(absent(what)),
                Err(error) => return Err(error),
            }
            match ask(&mut what, held, &mut retry) {
                Err(error) => self.recover_or_fail(held, error, &mut retry)?,
                answered => return answered,
            }
        }
    }

    /// Scans from where `rest` begins up to `end`, and passes each record to `take` in key order:
    /// keys alone where only their presence is wanted. Records found before the directory turned
    /// out to be out of date, or the memory node to be down, are passed on, and the scan continues
    /// after them, until `take` wants no more. After an error `rest` says from where.
    pub(crate) fn scan<F: ScanFlow>(
        &self,
        held: &mut HeldContext<K, T>,
        rest: &mut Rest<K::Owned>,
        (end, wanted): (Option<&K::Key>, Wanted),
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        let mut cost = Cost::default();
        let scanned = self.by_parts(held, within, |Buffers { endpoint, scan, .. }, table, progressed| {
            let kept = ClearedAtEnd(scan);
            // It may stop to have what was found taken, or many keys, before there are more.
            while let Some(from) = rest.from.take() {
                let limit = if wanted == Wanted::Value { rest.limit } else { rest.limit.min(KEYS_AT_ONCE) };
                let mut scan = scan_of(table, kept.0, (from.borrow(), end), limit);
                if wanted != Wanted::Value {
                    scan = scan.of_keys();
                }
                let ended = drive_while_progressing(endpoint, &mut scan, Scan::stuck_at, within);
                let flow = hand_over::<K, F>(scan.records(), &mut take);
                // The time that this took is not the rest's.
                endpoint.set_patience(within);
                cost += scan.cost();
                if flow.is_break() {
                    rest.limit = 0;
                    return Ok(cost);
                }
                rest.limit -= scan.records().len();
                rest.from = if rest.limit > 0 { uncovered(&scan, limit) } else { None };
                *progressed |= rest.from.as_ref() != Some(&from);
                ended?;
            }
            Ok(cost)
        });
        or_if_empty(scanned, Cost::default())
    }

    /// Passes the first keys of a range to `take`, as many as there is time for, up to `limit` and
    /// to those of one scan, and says from which key to go on.
    #[cfg(feature = "tokio")]
    pub(crate) fn keys_part(
        &self,
        held: &mut HeldContext<K, T>,
        (start, end): (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
        mut take: impl FnMut(&K::Key),
    ) -> Result<Option<K::Owned>, ClientError> {
        let (mut goes_on, limit) = (self.patience(within), limit.min(KEYS_AT_ONCE));
        let found = self.with_table(held, within, |buffers, table| {
            let mut scan = scan_of(table, &mut buffers.scan, (start, end), limit).of_keys();
            let ended = fpcache::read::drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on);
            let next = uncovered(&scan, limit);
            if next.as_ref().map(Borrow::borrow) == Some(start) {
                // What was found before something went wrong counts.
                ended?;
            }
            scan.records().for_each(|(key, _)| take(key));
            buffers.scan.clear();
            Ok(next)
        });
        or_if_empty(found, None)
    }
}

/// Keys that are scanned at a time without their values.
const KEYS_AT_ONCE: usize = 1 << 16;

/// A scan's buffers: no thread keeps the memory of a long one, however it ends, also if what takes
/// its records panics.
pub(super) struct ClearedAtEnd<'s, K: BuildKeys>(pub(super) &'s mut ScanScratch<K>);

impl<K: BuildKeys> Drop for ClearedAtEnd<'_, K> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Passes records to `take` until that wants no more.
pub(super) fn hand_over<'r, K: BuildKeys, F: ScanFlow>(
    mut records: impl Iterator<Item = (&'r K::Key, &'r [u8])>,
    mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
) -> ControlFlow<()> {
    records.try_for_each(|(key, value)| take(K::as_view(key), value).flow())
}

/// What is left of a scan.
pub(crate) struct Rest<From> {
    /// Where it goes on; `None` at its end.
    pub(crate) from: Option<From>,
    /// Records that are still wanted: none once the one that takes them wants no more.
    pub(crate) limit: usize,
}

impl<From> Rest<From> {
    pub(crate) fn new(from: From, limit: usize) -> Self {
        Self { from: Some(from), limit }
    }
}

/// A scan from a key up to an end, of at most `limit` records.
pub(crate) fn scan_of<'s, K: BuildKeys>(
    table: &'s Table<K>,
    scratch: &'s mut ScanScratch<K>,
    (start, end): (&K::Key, Option<&'s K::Key>),
    limit: usize,
) -> Scan<'s, K> {
    let scan = Scan::new(table.view(), scratch, start, limit).with_groups(table.groups());
    match end {
        Some(end) => scan.until(end),
        None => scan,
    }
}

/// The key from which to go on after a scan of `limit` records; `None` if nothing is left.
pub(crate) fn uncovered<K: BuildKeys>(scan: &Scan<'_, K>, limit: usize) -> Option<K::Owned> {
    match scan.records().last() {
        // It stopped because there are enough for once.
        Some((last, _)) if scan.records().len() == limit => K::successor(last),
        _ => scan.uncovered().map(ToOwned::to_owned),
    }
}
