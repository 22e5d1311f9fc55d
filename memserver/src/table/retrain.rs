//! Encoders that suit the keys a table has by now.
//!
//! What makes numbers of byte strings is trained on a sample when a table is loaded. A table that began empty, or whose keys have
//! become others, retrains on the keys it holds: at [`FIRST`] records, and again whenever it has sixteen times as many. If
//! that saves a quarter of the segments, the new encoder joins the table's, and segments built with others are replaced in the
//! background, some neighbours at a time.
//!
//! Readers who meet a descriptor with an encoder that they do not know open the table anew.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableRecord;
use fpcache_fabric::NodeMemory;
use fpcache_index::SegmentOptions;
use xxhash_rust::xxh3::xxh3_64;

use super::gather::Old;
use super::replacement::Making;
use super::slots::{Slots, live_records};
use super::{Table, TableError};
use crate::recovery_area::MOST_REPLACED;
use crate::space::Extent;
use crate::superblock_writer::SuperblockWriter;

/// Records from which a table first learns.
pub(crate) const FIRST: u64 = 4096;
/// How many times as many it has when it learns again.
const GROWTH: u64 = 16;
/// Keys that are learned from, in how many runs of neighbours, and how many segments there should be to a run: with one alone
/// it would not show that fewer would do.
const SAMPLE: usize = 8192;
const RUNS: usize = 8;
const RUN_SEGMENTS: usize = 8;
/// Slots whose records are replaced at once, about.
const CONVERTED_SLOTS: usize = 2048;
/// Segments that are looked at in one step for some to replace.
const LOOKED_AT: usize = 4096;

/// When a table learns, and how far what it learned is put to use.
#[derive(Debug)]
pub(super) struct Retraining<K: BuildKeys> {
    /// Records with which it learns next.
    at: u64,
    /// Where the segments begin that may be outdated; `None` if there is none.
    outdated_from: Option<K::Owned>,
    /// How many of them are replaced at once, at most.
    at_once: usize,
}

impl<K: BuildKeys> Retraining<K> {
    /// For a table of so many records.
    pub(super) fn new(encoders: &K::Encoders, keys: u64) -> Self {
        let at = if K::is_trained(encoders) { keys.saturating_mul(GROWTH).max(FIRST) } else { FIRST };
        // Those that the process before did not get to.
        Self {
            at,
            outdated_from: K::has_outdated(encoders).then(|| K::lowest().to_owned()),
            at_once: MOST_REPLACED,
        }
    }

    pub(super) fn retrain_at(&mut self, keys: u64) {
        self.at = keys;
    }
}

impl<K: BuildKeys> Table<K> {
    /// Learns, or replaces some outdated segments; `false` if there is nothing to do.
    pub(super) fn step_retraining<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        if let Some(from) = self.rebuilder.retraining.outdated_from.take() {
            self.rebuilder.retraining.outdated_from = self.replace_outdated(superblock, from)?;
            return Ok(true);
        }
        if K::FIXED_BYTES.is_some() || self.keys < self.rebuilder.retraining.at {
            return Ok(false);
        }
        self.rebuilder.retraining.at = self.keys.saturating_mul(GROWTH);
        let runs = self.runs_of_keys(superblock)?;
        let options = SegmentOptions {
            epsilon: self.rebuilder.options.cut_epsilon(),
            fill: self.rebuilder.options.fill,
            max_slots: self.rebuilder.options.max_slots,
            ..SegmentOptions::default()
        };
        if let Some(encoders) = K::learn(&self.encoders, &runs, options, self.keys) {
            self.adopt(superblock, encoders)?;
            self.rebuilder.retraining.outdated_from = Some(K::lowest().to_owned());
        }
        Ok(true)
    }

    /// Neighbouring keys from all over the table, each run in order.
    fn runs_of_keys<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
    ) -> Result<Vec<Vec<K::Owned>>, TableError> {
        let every = self.directory.len().div_ceil(RUNS).max(RUN_SEGMENTS);
        let most = SAMPLE / self.directory.len().div_ceil(every).max(1);
        let mut runs: Vec<Vec<K::Owned>> = Vec::with_capacity(RUNS);
        let mut bytes = Vec::new();
        for (at, (_, segment)) in self.directory.iter().enumerate() {
            if at % every == 0 {
                runs.push(Vec::with_capacity(most));
            }
            let Some(run) = runs.last_mut().filter(|run| run.len() < most) else { continue };
            Slots::of(&*superblock.region, self.geometry, segment).read_all(&mut bytes)?;
            let before = run.len();
            let keys =
                live_records::<K>(&self.geometry, &bytes).filter_map(|record| K::view(record.parts.key));
            run.extend(keys.map(|key| key.borrow().to_owned()));
            run[before..].sort_unstable();
            run.truncate(most);
        }
        Ok(runs)
    }

    /// Makes encoders the table's, which include those it has: from here on segments are built with the newest.
    fn adopt<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        encoders: K::Encoders,
    ) -> Result<(), TableError> {
        let bytes = K::encode_encoders(&encoders);
        let extent = self.allocate_for_records(superblock, bytes.len() as u64)?;
        superblock.region.write_bytes(extent.offset, &bytes)?;
        superblock.region.release();
        let old = Extent::new(self.record.encoders, self.record.encoders_bytes);
        let record = TableRecord {
            encoders: extent.offset,
            encoders_bytes: bytes.len() as u64,
            encoders_checksum: xxh3_64(&bytes),
            ..self.record
        };
        superblock.publish(record)?;
        self.record = record;
        self.encoders = encoders;
        if old.len > 0 {
            self.space.retire(superblock.current().log_head, old);
        }
        Ok(())
    }

    /// Replaces some of the first outdated segments from `from` on; returns where to go on.
    fn replace_outdated<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        from: K::Owned,
    ) -> Result<Option<K::Owned>, TableError> {
        let is_outdated = |tail| K::is_outdated(&self.encoders, tail);
        let mut entries =
            self.directory.range_from(from.borrow()).map(|(lo, segment)| (lo, *segment)).peekable();
        for _ in 0..LOOKED_AT {
            if entries.next_if(|(_, segment)| !is_outdated(segment.tail())).is_none() {
                break;
            }
        }
        let Some((lo, first)) = entries.next() else { return Ok(None) };
        if !is_outdated(first.tail()) {
            return Ok(Some(lo));
        }
        let (mut segments, mut los) = (vec![first], vec![lo.clone()]);
        let mut slots = usize::from(first.model().cap);
        while slots < CONVERTED_SLOTS
            && segments.len() < self.rebuilder.retraining.at_once
            && let Some((lo, segment)) = entries.next_if(|(_, segment)| is_outdated(segment.tail()))
        {
            slots += usize::from(segment.model().cap);
            segments.push(segment);
            los.push(lo);
        }
        let behind = entries.next().map(|(lo, _)| lo);
        drop(entries);
        self.rebuilder.gathering.clear();
        for (lo, segment) in los.iter().zip(&segments) {
            self.gather_segment(superblock, lo.borrow(), segment)?;
        }
        let old = Old { lo, behind, segments };
        match self.replace(superblock, &old, Making::ForWrites) {
            Ok(()) => Ok(old.behind),
            // What replaces so many does not fit the change log, or free memory: fewer may.
            Err(TableError::NoRoom { .. }) if old.segments.len() > 1 => {
                self.rebuilder.retraining.at_once = old.segments.len() / 2;
                Ok(Some(old.lo))
            }
            // The table goes on with what it has.
            Err(TableError::NoRoom { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
