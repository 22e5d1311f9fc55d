//! Retraining of the encoders that map byte strings to numbers.
//!
//! Encoders are trained on a sample when a table is loaded. A table that began empty, or whose keys
//! have changed, retrains on the keys it holds: at 4,096 records, and whenever it has grown
//! sixteenfold since. If that saves a quarter of the segments, the new encoder is added to the
//! table, and segments built with older ones are replaced in the background, a few neighbours at a
//! time.
//!
//! A reader that meets a descriptor with an unknown encoder reopens the table.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableRecord;
use fpcache_fabric::NodeMemory;
use fpcache_index::SegmentOptions;
use xxhash_rust::xxh3::xxh3_64;

use super::Table;
use super::error::TableError;
use super::rebuilder::gather::{MOST_GATHERED_BYTES, Old};
use super::rebuilder::planned::Making;
use super::segments::Segments;
use super::segments::slots::{Slots, live_records};
use crate::space::Extent;
use crate::superblock_writer::SuperblockWriter;

/// Keys in a sample.
const SAMPLE: usize = 8192;
/// Runs of neighbouring keys in a sample.
const RUNS: usize = 8;
/// Segments to each run, at least: a run of one could not show that fewer segments would do.
const RUN_SEGMENTS: usize = 8;
/// Slots whose records are replaced at once, about.
const CONVERTED_SLOTS: usize = 2048;
/// Segments looked at in one step.
const LOOKED_AT: usize = 4096;

impl<K: BuildKeys> Table<K> {
    /// Retrains, or replaces some outdated segments; `false` if there is nothing to do.
    pub(super) fn step_retraining<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        if let Some(from) = self.rebuilder.retraining.outdated_from.take() {
            self.rebuilder.retraining.outdated_from = self.replace_outdated(superblock, from)?;
            return Ok(true);
        }
        if !self.rebuilder.retraining.is_due(self.segments.keys) {
            return Ok(false);
        }
        let runs = self.segments.runs_of_keys(superblock)?;
        let options = SegmentOptions {
            epsilon: self.rebuilder.options.cut_epsilon(),
            fill: self.rebuilder.options.fill,
            max_slots: self.rebuilder.options.max_slots,
            ..SegmentOptions::default()
        };
        if let Some(encoders) = K::learn(&self.segments.encoders, &runs, options, self.segments.keys) {
            self.adopt(superblock, encoders)?;
            self.rebuilder.retraining.outdated_from = Some(K::lowest().to_owned());
        }
        Ok(true)
    }

    /// Adopts encoders, which include the present ones: from here on segments are built with the
    /// newest.
    fn adopt<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        encoders: K::Encoders,
    ) -> Result<(), TableError> {
        let bytes = K::encode_encoders(&encoders);
        let extent = self.room.allocate_for_records(superblock, &self.segments, bytes.len() as u64)?;
        superblock.region.write_bytes(extent.offset, &bytes)?;
        superblock.region.release();
        let old = Extent::new(self.room.record.encoders, self.room.record.encoders_bytes);
        let record = TableRecord {
            encoders: extent.offset,
            encoders_bytes: bytes.len() as u64,
            encoders_checksum: xxh3_64(&bytes),
            ..self.room.record
        };
        superblock.publish(record)?;
        self.room.record = record;
        self.segments.encoders = encoders;
        if old.len > 0 {
            self.room.space.retire(superblock.current().log_head, old);
        }
        Ok(())
    }

    /// Replaces some of the first outdated segments from `from` on; returns where to continue.
    fn replace_outdated<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        from: K::Owned,
    ) -> Result<Option<K::Owned>, TableError> {
        let is_outdated = |tail| K::is_outdated(&self.segments.encoders, tail);
        let mut entries =
            self.segments.directory.range_from(from.borrow()).map(|(lo, segment)| (lo, *segment)).peekable();
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
        let most_slots = CONVERTED_SLOTS.min(MOST_GATHERED_BYTES / self.segments.geometry.slot_bytes.max(1));
        while slots < most_slots
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
            self.rebuilder.gathering.add_segment(superblock, &self.segments, lo.borrow(), segment)?;
        }
        let old = Old { lo, behind, segments };
        match self.replace(superblock, &old, Making::ForWrites) {
            Ok(()) => Ok(old.behind),
            // The change of so many does not fit the change log, or free memory: that of fewer may.
            Err(TableError::NoRoom { .. }) if old.segments.len() > 1 => {
                self.rebuilder.retraining.at_once = old.segments.len() / 2;
                Ok(Some(old.lo))
            }
            // The table keeps what it has.
            Err(TableError::NoRoom { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl<K: BuildKeys> Segments<K> {
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
}
