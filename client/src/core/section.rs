//! Sections of a table: what a caller that takes a scan part by part has read at a time, in either
//! direction.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Operation, ReadError, Scan, ScanBack, ScanScratch, Step, drive_while};
use fpcache::table::Table;
use fpcache_fabric::Batch;

use super::scans::{scan_of, uncovered};
use super::{Connector, Core, HeldContext};
use crate::client::Record;
use crate::empty_tables::or_if_empty;
use crate::error::ClientError;
use crate::span::Span;

/// Up to `limit` records from one end of a span of keys on.
#[derive(Clone)]
pub(crate) struct Section<K: BuildKeys> {
    pub(crate) span: Span<K>,
    pub(crate) limit: usize,
    /// Whether it is read from the end on, in descending order.
    pub(crate) is_down: bool,
}

/// What was read of a section.
pub(crate) struct SectionRead<K: BuildKeys> {
    pub(crate) records: Vec<Record<K>>,
    /// What is left of its span; `None` if nothing is.
    pub(crate) rest: Option<Span<K>>,
}

impl<K: BuildKeys> Default for SectionRead<K> {
    fn default() -> Self {
        Self { records: Vec::new(), rest: None }
    }
}

/// A scan of a section.
pub(crate) struct SectionScan<'s, K: BuildKeys> {
    section: &'s Section<K>,
    scan: Directed<'s, K>,
}

enum Directed<'s, K: BuildKeys> {
    Up(Scan<'s, K>),
    Down(ScanBack<'s, K>),
}

impl<K: BuildKeys> Section<K> {
    /// A scan of it, in the table as it is here.
    pub(crate) fn scan<'s>(
        &'s self,
        table: &'s Table<K>,
        scratch: &'s mut ScanScratch<K>,
    ) -> SectionScan<'s, K> {
        let (start, end) = (self.span.start.borrow(), self.span.end.as_ref().map(Borrow::borrow));
        let scan = match self.is_down {
            false => Directed::Up(scan_of(table, scratch, (start, end), self.limit)),
            true => {
                let down = ScanBack::new(table.view(), scratch, self.span.upper(), start, self.limit);
                Directed::Down(down)
            }
        };
        SectionScan { section: self, scan }
    }
}

impl<K: BuildKeys> SectionScan<'_, K> {
    /// What it has found, and what is left: it may have stopped to have it taken.
    pub(crate) fn part(&self) -> SectionRead<K> {
        fn own<'r, K: BuildKeys>(records: impl Iterator<Item = (&'r K::Key, &'r [u8])>) -> Vec<Record<K>> {
            records.map(|(key, value)| (key.to_owned(), value.to_vec())).collect()
        }
        let Section { span, limit, .. } = self.section;
        match &self.scan {
            Directed::Up(scan) => {
                let rest = |start| Span { start, end: span.end.clone() };
                SectionRead { records: own::<K>(scan.records()), rest: uncovered(scan, *limit).map(rest) }
            }
            Directed::Down(scan) => {
                let records = own::<K>(scan.records());
                let rest = |end| Span { start: span.start.clone(), end };
                let rest = match records.last() {
                    Some((last, _)) if records.len() == *limit => Some(rest(Some(last.clone()))),
                    _ => scan.uncovered().map(|to| rest(Span::<K>::end_after(to))),
                };
                SectionRead { records, rest }
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
