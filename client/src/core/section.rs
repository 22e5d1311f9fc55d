//! Sections of a table: what a scan has before it, in either direction, and what is read of it at a
//! time.

use std::borrow::Borrow;
#[cfg(feature = "tokio")]
use std::time::Duration;

use fpcache::key_space::BuildKeys;
#[cfg(feature = "tokio")]
use fpcache::read::{ReadError, drive_while};
use fpcache::read::{Scan, ScanScratch, Wanted};
use fpcache::table::Table;

#[cfg(feature = "tokio")]
use super::{Connector, Core, HeldContext};
#[cfg(feature = "tokio")]
use crate::client::Record;
#[cfg(feature = "tokio")]
use crate::empty_tables::or_if_empty;
#[cfg(feature = "tokio")]
use crate::error::ClientError;
use crate::span::Span;

/// Keys that are scanned at a time without their values.
const KEYS_AT_ONCE: usize = 1 << 16;

/// Up to `limit` records from one end of a span of keys on.
#[derive(Clone)]
pub(crate) struct Section<K: BuildKeys> {
    pub(crate) span: Span<K>,
    pub(crate) limit: usize,
    /// Whether it is read from the end on, in descending order.
    pub(crate) is_down: bool,
}

impl<K: BuildKeys> Section<K> {
    /// The first records of a span.
    pub(crate) fn up(span: Span<K>, limit: usize) -> Self {
        Self { span, limit, is_down: false }
    }

    /// The last records of a span, in descending order.
    pub(crate) fn down(span: Span<K>, limit: usize) -> Self {
        Self { span, limit, is_down: true }
    }

    /// Whether nothing is in it.
    pub(crate) fn is_over(&self) -> bool {
        self.limit == 0 || self.span.is_empty()
    }

    /// How many of its records are scanned at a time: many keys alone take little time each.
    pub(super) fn at_once(&self, wanted: Wanted) -> usize {
        if wanted == Wanted::Value { self.limit } else { self.limit.min(KEYS_AT_ONCE) }
    }

    /// What is left of its span where this is left of a part that it begins with.
    #[cfg(feature = "tokio")]
    pub(crate) fn after_part(&self, rest: Span<K>) -> Span<K> {
        match self.is_down {
            false => Span { end: self.span.end.clone(), ..rest },
            true => Span { start: self.span.start.clone(), ..rest },
        }
    }

    /// A scan of its first records, up to a `limit`, or of their keys alone if they suffice, in the
    /// table as it is here.
    pub(crate) fn scan<'s>(
        &self,
        table: &'s Table<K>,
        scratch: &'s mut ScanScratch<K>,
        (limit, wanted): (usize, Wanted),
    ) -> Scan<'s, K> {
        let Self { span, is_down, .. } = self;
        let mut scan =
            Scan::new(table.view(), scratch, span.start.borrow(), limit).with_groups(table.groups());
        if let Some(end) = &span.end {
            scan = scan.until(end.borrow());
        }
        if *is_down {
            scan = scan.descending();
        }
        if wanted == Wanted::Value { scan } else { scan.of_keys() }
    }

    /// What is left of its span after a scan of up to `limit` records, `None` if nothing is: the
    /// scan may have stopped to have taken what it has found.
    pub(super) fn rest(&self, scan: &Scan<'_, K>, limit: usize) -> Option<Span<K>> {
        let full = scan.records().last().filter(|_| scan.records().len() == limit);
        match full {
            Some((last, _)) if self.is_down => Some(Span { end: Some(last.to_owned()), ..self.span.clone() }),
            Some((last, _)) => self.span.clone().above(last),
            None => scan.uncovered().map(|(start, end)| Span { start, end }),
        }
    }

    /// The same of a scan that has `ended` in an error too, unless it had not got on: what is left
    /// meets that again.
    #[cfg(feature = "tokio")]
    fn rest_if_progressed(
        &self,
        scan: &Scan<'_, K>,
        limit: usize,
        ended: Result<(), ReadError>,
    ) -> Result<Option<Span<K>>, ReadError> {
        let rest = self.rest(scan, limit);
        if rest.as_ref() == Some(&self.span) {
            ended?;
        }
        Ok(rest)
    }

    /// What a scan of all of it has found, and what is left, as far as it got.
    #[cfg(feature = "tokio")]
    pub(crate) fn part(
        &self,
        scan: &Scan<'_, K>,
        ended: Result<(), ReadError>,
    ) -> Result<SectionRead<K>, ReadError> {
        let rest = self.rest_if_progressed(scan, self.limit, ended)?;
        let records = scan.records().map(|(key, value)| (key.to_owned(), value.to_vec())).collect();
        Ok(SectionRead { records, rest })
    }
}

/// What was read of a section.
#[cfg(feature = "tokio")]
pub(crate) struct SectionRead<K: BuildKeys> {
    pub(crate) records: Vec<Record<K>>,
    /// What is left of its span; `None` if nothing is.
    pub(crate) rest: Option<Span<K>>,
}

#[cfg(feature = "tokio")]
impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Passes the first records of a section to `take`, in its order, as many as there is time for,
    /// up to those of one scan: keys alone where only their presence is wanted. Says what is left
    /// of its span. Nothing is found if the table has no parameters yet.
    pub(crate) fn scan_part(
        &self,
        held: &mut HeldContext<K, T>,
        (section, wanted): (&Section<K>, Wanted),
        within: Duration,
        mut take: impl FnMut(&K::Key, &[u8]),
    ) -> Result<Option<Span<K>>, ClientError> {
        let (mut goes_on, limit) = (self.patience(within), section.at_once(wanted));
        let scanned = self.with_table(held, within, |buffers, table| {
            let mut scan = section.scan(table, &mut buffers.scan, (limit, wanted));
            let ended = drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on);
            let rest = section.rest_if_progressed(&scan, limit, ended)?;
            scan.records().for_each(|(key, value)| take(key, value));
            buffers.scan.clear();
            Ok(rest)
        });
        or_if_empty(scanned, None)
    }
}
