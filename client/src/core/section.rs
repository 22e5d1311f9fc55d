//! Sections of a table: what a scan has before it, in either direction, and what is read of it at a
//! time.

use std::borrow::Borrow;
use std::ops::ControlFlow;
#[cfg(feature = "tokio")]
use std::time::Duration;

use fpcache::key_space::BuildKeys;
#[cfg(feature = "tokio")]
use fpcache::read::drive_while;
use fpcache::read::{Cost, Operation, ReadError, Scan, ScanBack, ScanScratch, Step, Wanted};
use fpcache::table::Table;
use fpcache_fabric::Batch;

#[cfg(feature = "tokio")]
use super::{Connector, Core, HeldContext};
#[cfg(feature = "tokio")]
use crate::client::Record;
#[cfg(feature = "tokio")]
use crate::empty_tables::or_if_empty;
#[cfg(feature = "tokio")]
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::span::Span;

/// Up to `limit` records from one end of a span of keys on.
#[derive(Clone)]
pub(crate) struct Section<K: BuildKeys> {
    pub(crate) span: Span<K>,
    pub(crate) limit: usize,
    /// Whether it is read from the end on, in descending order.
    pub(crate) is_down: bool,
}

/// A scan of a section, or of its first records.
pub(crate) struct SectionScan<'s, K: BuildKeys> {
    section: &'s Section<K>,
    limit: usize,
    scan: Directed<'s, K>,
}

enum Directed<'s, K: BuildKeys> {
    Up(Scan<'s, K>),
    Down(ScanBack<'s, K>),
}

impl<K: BuildKeys> Section<K> {
    /// Whether nothing is in it.
    pub(crate) fn is_over(&self) -> bool {
        self.limit == 0 || self.span.is_empty()
    }

    /// A scan of it, in the table as it is here.
    #[cfg(feature = "tokio")]
    pub(crate) fn scan<'s>(
        &'s self,
        table: &'s Table<K>,
        scratch: &'s mut ScanScratch<K>,
    ) -> SectionScan<'s, K> {
        self.scan_some(table, scratch, (self.limit, Wanted::Value))
    }

    /// A scan of its first records, up to a `limit`; of keys alone upwards, if they suffice.
    pub(super) fn scan_some<'s>(
        &'s self,
        table: &'s Table<K>,
        scratch: &'s mut ScanScratch<K>,
        (limit, wanted): (usize, Wanted),
    ) -> SectionScan<'s, K> {
        let (start, end) = (self.span.start.borrow(), self.span.end.as_ref().map(Borrow::borrow));
        let scan = match (self.is_down, wanted) {
            (true, _) => {
                Directed::Down(ScanBack::new(table.view(), scratch, self.span.upper(), start, limit))
            }
            (false, Wanted::Value) => Directed::Up(scan_of(table, scratch, (start, end), limit)),
            (false, _) => Directed::Up(scan_of(table, scratch, (start, end), limit).of_keys()),
        };
        SectionScan { section: self, limit, scan }
    }
}

impl<K: BuildKeys> SectionScan<'_, K> {
    /// How many records it has found so far.
    pub(super) fn found(&self) -> usize {
        match &self.scan {
            Directed::Up(scan) => scan.records().len(),
            Directed::Down(scan) => scan.records().len(),
        }
    }

    /// How many there were when one was met that is being written; `None` while it gets on.
    pub(super) fn stuck_at(&self) -> Option<usize> {
        match &self.scan {
            Directed::Up(scan) => scan.stuck_at(),
            Directed::Down(scan) => scan.stuck_at(),
        }
    }

    /// Its cost so far.
    pub(super) fn cost(&self) -> Cost {
        match &self.scan {
            Directed::Up(scan) => scan.cost(),
            Directed::Down(scan) => scan.cost(),
        }
    }

    /// Passes what it has found to `take` until that wants no more.
    pub(super) fn hand_over<F: ScanFlow>(
        &self,
        mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> ControlFlow<()> {
        let mut take = |(key, value): (&K::Key, &[u8])| take(K::as_view(key), value).flow();
        match &self.scan {
            Directed::Up(scan) => scan.records().try_for_each(&mut take),
            Directed::Down(scan) => scan.records().try_for_each(&mut take),
        }
    }

    /// What is left of the section's span, `None` if nothing is: it may have stopped to have taken
    /// what it has found.
    pub(super) fn rest(&self) -> Option<Span<K>> {
        let span = &self.section.span;
        match &self.scan {
            Directed::Up(scan) => {
                uncovered(scan, self.limit).map(|start| Span { start, end: span.end.clone() })
            }
            Directed::Down(scan) => {
                let end = match scan.records().last() {
                    Some((last, _)) if scan.records().len() == self.limit => Some(last.to_owned()),
                    _ => Span::<K>::end_after(scan.uncovered()?),
                };
                Some(Span { start: span.start.clone(), end })
            }
        }
    }
}

impl<K: BuildKeys> Operation for SectionScan<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        match &mut self.scan {
            Directed::Up(scan) => scan.step(),
            Directed::Down(scan) => scan.step(),
        }
    }

    fn batch(&mut self) -> &mut Batch {
        match &mut self.scan {
            Directed::Up(scan) => scan.batch(),
            Directed::Down(scan) => scan.batch(),
        }
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
impl<K: BuildKeys> Default for SectionRead<K> {
    fn default() -> Self {
        Self { records: Vec::new(), rest: None }
    }
}

#[cfg(feature = "tokio")]
impl<K: BuildKeys> SectionScan<'_, K> {
    /// What it has found, and what is left.
    pub(crate) fn part(&self) -> SectionRead<K> {
        let mut records = Vec::with_capacity(self.found());
        let keep = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        // It is kept to the end.
        let _ = self.hand_over(keep);
        SectionRead { records, rest: self.rest() }
    }
}

#[cfg(feature = "tokio")]
impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Reads a section, which ends sooner where records are long; nothing is found if the table
    /// has no parameters yet.
    pub(crate) fn scan_section(
        &self,
        held: &mut HeldContext<K, T>,
        section: &Section<K>,
        within: Duration,
    ) -> Result<SectionRead<K>, ClientError> {
        let mut goes_on = self.patience(within);
        let scanned = self.with_table(held, within, |buffers, table| {
            let mut scan = section.scan(table, &mut buffers.scan);
            drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on)?;
            let part = scan.part();
            buffers.scan.clear();
            Ok(part)
        });
        or_if_empty(scanned, SectionRead::default())
    }
}

/// A scan from a key up to an end, of at most `limit` records.
pub(super) fn scan_of<'s, K: BuildKeys>(
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
pub(super) fn uncovered<K: BuildKeys>(scan: &Scan<'_, K>, limit: usize) -> Option<K::Owned> {
    match scan.records().last() {
        // It stopped because there are enough for once.
        Some((last, _)) if scan.records().len() == limit => K::successor(last),
        _ => scan.uncovered().map(ToOwned::to_owned),
    }
}
