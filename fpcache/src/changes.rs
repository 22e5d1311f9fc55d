//! Keeping a directory current: the records of the change log, read and applied in order.
//!
//! Nothing a region holds is trusted. A record that was overwritten, is damaged, or makes no sense where it stands ends the
//! matter: whoever asked fetches the directory anew.

use fpcache_fabric::{Batch, Endpoint, FabricError, REGION, RemoteAddr};
use fpcache_index::Directory;

use crate::key_space::KeySpace;
use crate::layout::{
    CHANGE_RECORD_BYTES, ChangeRecord, Corrupt, LOG_HEAD_OFFSET, SegmentGeometry, TableRecord,
};
use crate::models::Segment;

/// Most records fetched with one doorbell: 16 KiB.
const RECORDS_PER_BATCH: u64 = 256;

/// What became of something that may have been out of date.
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
pub(crate) enum Failed {
    /// The log's records do not lead on from it: overwritten since, or damaged.
    Unusable(Corrupt),
    /// The fabric failed.
    Fabric(FabricError),
}

impl From<FabricError> for Failed {
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
    pub(crate) fn of<K: KeySpace>(record: &TableRecord, region_bytes: u64) -> Result<Self, Corrupt> {
        let TableRecord { log: offset, log_records: records, .. } = *record;
        let end = records.checked_mul(CHANGE_RECORD_BYTES as u64).and_then(|bytes| bytes.checked_add(offset));
        let inside = offset.is_multiple_of(8) && end.is_some_and(|end| end <= region_bytes);
        if records != 0 && !(records.is_power_of_two() && inside) {
            return Err(damaged(offset, format!("no log of {records} records can lie there")));
        }
        Ok(Self { offset, records, geometry: record.parameters.geometry::<K>(), region_bytes })
    }

    /// How many records the log has ever had: one READ of a word.
    pub(crate) fn head<E: Endpoint>(endpoint: &mut E) -> Result<u64, FabricError> {
        let mut head = [0];
        endpoint.read_words(RemoteAddr::region(LOG_HEAD_OFFSET), &mut head)?;
        Ok(head[0])
    }

    /// Applies the records from number `from` to before `head`, which was read before, to a directory that has all below
    /// `from`. One round trip per 256 records. A directory that could not be brought to `head` may be at any change before.
    pub(crate) fn apply<K: KeySpace, E: Endpoint>(
        &self,
        endpoint: &mut E,
        from: u64,
        head: u64,
        directory: &mut Directory<K::Key, Segment>,
    ) -> Result<(), Failed> {
        match head.checked_sub(from) {
            Some(news) if news <= self.records => {}
            Some(news) => {
                let why = format!("{news} records are missing, it holds {}", self.records);
                return Err(Failed::Unusable(damaged(self.offset, why)));
            }
            None => {
                let why = format!("it has {head} records, the directory contains {from}");
                return Err(Failed::Unusable(damaged(self.offset, why)));
            }
        }
        let (mut batch, mut change, mut next) = (Batch::new(), Change::<K>::default(), from);
        while next < head {
            let count = (head - next).min(RECORDS_PER_BATCH);
            // A ring: what lies behind its end comes from its beginning.
            let before_end = count.min(self.records - next % self.records);
            batch.clear();
            let landings =
                [(next, before_end), (next + before_end, count - before_end)].map(|(first, count)| {
                    let offset = ChangeRecord::offset(self.offset, self.records, first);
                    batch.read(RemoteAddr { area: REGION, offset }, count as usize * CHANGE_RECORD_BYTES)
                });
            endpoint.run(&mut batch)?;
            for record in landings.iter().flat_map(|l| batch.bytes(*l).chunks_exact(CHANGE_RECORD_BYTES)) {
                self.take(record, next, &mut change, directory).map_err(|why| {
                    let offset = ChangeRecord::offset(self.offset, self.records, next);
                    Failed::Unusable(damaged(offset, why))
                })?;
                next += 1;
            }
        }
        match change.with.is_empty() {
            true => Ok(()),
            false => Err(Failed::Unusable(damaged(self.offset, "it ends within a change".into()))),
        }
    }

    /// Takes the record with this number; the last one of a change is where it takes effect.
    fn take<K: KeySpace>(
        &self,
        record: &[u8],
        sequence: u64,
        change: &mut Change<K>,
        directory: &mut Directory<K::Key, Segment>,
    ) -> Result<(), String> {
        let record = ChangeRecord::decode(record, sequence)
            .ok_or_else(|| format!("record {sequence} was overwritten or is damaged"))?;
        let wrong = |why: &str| format!("record {sequence} makes no sense: {why}");
        if usize::from(record.part) != change.with.len()
            || (record.part > 0 && change.ends != (record.parts, record.hi))
        {
            return Err(wrong("it belongs to another change than the one before it"));
        }
        if !Segment::can_lie(&record.descriptor, &self.geometry, self.region_bytes) {
            return Err(wrong("its segment cannot lie where it says"));
        }
        change.ends = (record.parts, record.hi);
        change.with.push((K::from_coordinate(record.descriptor.lo), Segment::from(&record.descriptor)));
        if record.part + 1 == record.parts {
            change.put_into(directory).map_err(|why| wrong(&why))?;
        }
        Ok(())
    }
}

/// A change whose records are being read.
#[derive(Debug)]
struct Change<K: KeySpace> {
    with: Vec<(K::Key, Segment)>,
    /// How many segments it has, and the last key of the range it replaces.
    ends: (u16, u64),
}

impl<K: KeySpace> Default for Change<K> {
    fn default() -> Self {
        Self { with: Vec::new(), ends: (0, 0) }
    }
}

impl<K: KeySpace> Change<K> {
    /// Replaces the range's segments by the new ones. Both of its ends must be ends of segments.
    fn put_into(&mut self, directory: &mut Directory<K::Key, Segment>) -> Result<(), String> {
        let (Some((lo, _)), last) = (self.with.first().copied(), K::from_coordinate(self.ends.1)) else {
            return Ok(());
        };
        if directory.locate(&lo).is_none_or(|found| *found.lo != lo) {
            return Err("the range it replaces begins inside a segment".into());
        }
        let end = directory.locate(&last).and_then(|found| found.hi.copied());
        if end != K::successor(&last) {
            return Err("the range it replaces ends inside a segment".into());
        }
        directory.replace(&lo, end.as_ref(), &self.with).map_err(|error| error.to_string())?;
        self.with.clear();
        Ok(())
    }
}

fn damaged(offset: u64, why: String) -> Corrupt {
    Corrupt::new("change log", offset, why)
}
