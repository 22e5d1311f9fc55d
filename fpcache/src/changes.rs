//! Updates of a directory by the records of the change log, read and applied in order.
//!
//! Nothing a region holds is trusted. A record that was overwritten, is damaged, or makes no sense
//! where it stands ends the update: the caller fetches the directory anew.

use std::borrow::Borrow;

use fpcache_fabric::{Batch, Endpoint, FabricError, REGION, RemoteAddr};
use fpcache_index::Directory;

use crate::key_space::KeySpace;
use crate::layout::{
    CHANGE_RECORD_BYTES, ChangeRecord, Corrupt, LOG_HEAD_OFFSET, SegmentGeometry, SegmentReplacement,
    TableRecord,
};
use crate::models::Segment;

/// Most records fetched with one doorbell: 16 KiB.
const RECORDS_PER_BATCH: u64 = 256;

/// The outcome of a refresh of something that may have been out of date.
#[derive(Debug)]
pub enum Refresh<T> {
    /// Nothing has changed since.
    Current,
    /// A newer one.
    Newer(T),
    /// It cannot be brought up to date: it must be opened anew.
    Lost,
}

/// Why a directory could not be brought up to date.
#[derive(Debug)]
pub(crate) enum UpdateError {
    /// The log's records do not lead on from it: overwritten since, or damaged.
    Unusable(Corrupt),
    /// The fabric failed.
    Fabric(FabricError),
}

impl From<FabricError> for UpdateError {
    fn from(error: FabricError) -> Self {
        Self::Fabric(error)
    }
}

/// A table's change log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeLog {
    offset: u64,
    records: u64,
    geometry: SegmentGeometry,
    region_bytes: u64,
}

impl ChangeLog {
    /// The log that a table's record names. A table without one never changes.
    pub(crate) fn of(record: &TableRecord, region_bytes: u64) -> Result<Self, Corrupt> {
        let TableRecord { log: offset, log_records: records, .. } = *record;
        let end = records.checked_mul(CHANGE_RECORD_BYTES as u64).and_then(|bytes| bytes.checked_add(offset));
        let inside = offset.is_multiple_of(8) && end.is_some_and(|end| end <= region_bytes);
        if records != 0 && !(records.is_power_of_two() && inside) {
            return Err(damaged(offset, format!("no log of {records} records can lie there")));
        }
        Ok(Self { offset, records, geometry: record.parameters.geometry(), region_bytes })
    }

    /// How many records the log has ever had: one READ of a word.
    pub(crate) fn head<E: Endpoint>(endpoint: &mut E) -> Result<u64, FabricError> {
        let mut head = [0];
        endpoint.read_words(RemoteAddr::region(LOG_HEAD_OFFSET), &mut head)?;
        Ok(head[0])
    }

    /// Applies the records from number `sequence` to before `head`, which was read before, to a
    /// directory that has all below `sequence`, which grows with each change. One round trip per
    /// 256 records.
    pub(crate) fn apply<K: KeySpace, E: Endpoint>(
        &self,
        endpoint: &mut E,
        sequence: &mut u64,
        head: u64,
        directory: &mut Directory<K::Key, Segment<K>>,
        encoders: &K::Encoders,
    ) -> Result<(), UpdateError> {
        match head.checked_sub(*sequence) {
            Some(news) if news <= self.records => {}
            Some(news) => {
                let why = format!("{news} records are missing, it holds {}", self.records);
                return Err(UpdateError::Unusable(damaged(self.offset, why)));
            }
            None => {
                let why = format!("it has {head} records, the directory contains {sequence}");
                return Err(UpdateError::Unusable(damaged(self.offset, why)));
            }
        }
        let (mut batch, mut change, mut next) = (Batch::new(), PartialChange::default(), *sequence);
        while next < head {
            let count = (head - next).min(RECORDS_PER_BATCH);
            // A ring: what lies after its end comes from its beginning.
            let before_end = count.min(self.records - next % self.records);
            batch.clear();
            let landings =
                [(next, before_end), (next + before_end, count - before_end)].map(|(first, count)| {
                    let offset = ChangeRecord::offset(self.offset, self.records, first);
                    batch.read(RemoteAddr { area: REGION, offset }, count as usize * CHANGE_RECORD_BYTES)
                });
            endpoint.run(&mut batch)?;
            for record in landings.iter().flat_map(|l| batch.bytes(*l).chunks_exact(CHANGE_RECORD_BYTES)) {
                self.take(record, next, &mut change, directory, encoders).map_err(|why| {
                    let offset = ChangeRecord::offset(self.offset, self.records, next);
                    UpdateError::Unusable(damaged(offset, why))
                })?;
                next += 1;
                if change.records == 0 {
                    *sequence = next;
                }
            }
        }
        match *sequence == head {
            true => Ok(()),
            false => Err(UpdateError::Unusable(damaged(self.offset, "it ends within a change".into()))),
        }
    }

    /// The same up to the head as it is now, which takes another round trip.
    pub(crate) fn apply_all<K: KeySpace, E: Endpoint>(
        &self,
        endpoint: &mut E,
        sequence: &mut u64,
        directory: &mut Directory<K::Key, Segment<K>>,
        encoders: &K::Encoders,
    ) -> Result<(), UpdateError> {
        let head = Self::head(endpoint)?;
        self.apply::<K, E>(endpoint, sequence, head, directory, encoders)
    }

    /// Takes a record. After the last one of a change, the directory is changed.
    fn take<K: KeySpace>(
        &self,
        record: &[u8],
        sequence: u64,
        gathered: &mut PartialChange,
        directory: &mut Directory<K::Key, Segment<K>>,
        encoders: &K::Encoders,
    ) -> Result<(), String> {
        let record = ChangeRecord::decode(record, sequence)
            .ok_or_else(|| format!("record {sequence} was overwritten or is damaged"))?;
        let wrong = |why: &str| format!("record {sequence} makes no sense: {why}");
        if record.part != gathered.records || (record.part > 0 && gathered.parts != record.parts) {
            return Err(wrong("it belongs to another change than the one before it"));
        }
        gathered.bytes.extend(record.share);
        (gathered.records, gathered.parts) = (record.part + 1, record.parts);
        if gathered.records == gathered.parts {
            let change =
                SegmentReplacement::<K>::decode(&gathered.bytes).ok_or_else(|| wrong("it cannot be read"))?;
            let lies = |d| Segment::is_plausible(d, &self.geometry, self.region_bytes, encoders);
            if !change.with.iter().all(lies) {
                return Err(wrong("its segment cannot lie where it says"));
            }
            put_into(&change, directory).map_err(|why| wrong(&why))?;
            *gathered =
                PartialChange { bytes: std::mem::take(&mut gathered.bytes), ..PartialChange::default() };
            gathered.bytes.clear();
        }
        Ok(())
    }
}

/// A change whose records are being read.
#[derive(Debug, Default)]
struct PartialChange {
    bytes: Vec<u8>,
    /// Records so far, and how many the change has.
    records: u16,
    parts: u16,
}

/// Replaces a change's range by its segments. Both of its ends must be ends of segments.
pub fn put_into<K: KeySpace>(
    change: &SegmentReplacement<K>,
    directory: &mut Directory<K::Key, Segment<K>>,
) -> Result<(), String> {
    let Some(first) = change.with.first() else { return Err("it has no segments".into()) };
    let (start, end) = (first.start.borrow(), change.end.as_ref().map(Borrow::borrow));
    let begins = |key: &K::Key| directory.locate(key).is_some_and(|found| found.start.borrow() == key);
    if !begins(start) {
        return Err("the range it replaces begins inside a segment".into());
    }
    if end.is_some_and(|end| !begins(end)) {
        return Err("the range it replaces ends inside a segment".into());
    }
    let with: Vec<_> = change.with.iter().map(|d| (d.start.clone(), Segment::from(d))).collect();
    directory.replace(start, end, &with).map_err(|error| error.to_string())?;
    Ok(())
}

fn damaged(offset: u64, why: String) -> Corrupt {
    Corrupt::new("change log", offset, why)
}
