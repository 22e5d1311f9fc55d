//! Taking of records for snapshots, and restoring of records by key.

use std::borrow::Borrow;
use std::collections::HashMap;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, Stored, ValuePlace};
use fpcache::message::{Sent, WriteKind, WriteOperation};
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::{DamagedRecord, TableError};
use super::record_collector::RecordCollector;
use super::segments::Segments;
use super::segments::copied::WholeRecord;
use super::segments::decide::{Decision, MutationKind, SlotMutation};
use super::segments::slots::{NO_MARKS, Slots};
use super::values::{memory_of, read_value};
use crate::versions::age;

/// Bytes of a version before what the slot holds in a record of a snapshot.
pub(crate) const VERSION_BYTES: usize = 4;
/// Bytes of a record's length before it.
const LENGTH_BYTES: usize = 4;

/// The records in what [`Table::take_records`] gave.
pub(crate) fn each_record(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, bytes) = records.split_first_chunk::<LENGTH_BYTES>()?;
        let (record, rest) = bytes.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        records = rest;
        Some(record)
    })
}

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Begins to take the records that are there now, in the place of any others.
    pub(crate) fn begin_taking(&mut self) {
        let next = K::lowest().to_owned();
        self.taking = Some(Box::new(RecordCollector {
            next,
            written: HashMap::new(),
            rest_of: None,
            rest: Vec::new(),
        }));
    }

    /// Whether there are records that are still to be taken.
    pub(crate) fn is_taking(&self) -> bool {
        self.taking.is_some()
    }

    /// Gives up taking records.
    pub(crate) fn end_taking(&mut self) {
        self.taking = None;
    }

    /// Appends the next records that are to be taken, of one segment and in key order, to `out`
    /// until that has `most` bytes or more. Each is its length (u32), its version, and what its
    /// slot holds, without padding and as if the slot were long enough for the value.
    ///
    /// # Errors
    /// Of a damaged record, what `leaves_out` says: what the disk has of it may be better. It is
    /// told whether it has not been asked about that record before.
    pub(crate) fn take_records(
        &mut self,
        most: usize,
        mut leaves_out: impl FnMut(DamagedRecord, bool) -> Result<(), TableError>,
        out: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let Some(mut taking) = self.taking.take() else { return Ok(()) };
        let Some(located) = self.segments.directory.locate(taking.next.borrow()) else { return Ok(()) };
        let slots = self.segments.slots(located.entry);
        let (at, generation) = (slots.offset(), located.entry.generation());
        let written = taking.written.get(&at);
        let is_written = |slot: u32| written.is_some_and(|written| written.contains(slot as usize));
        let (mut all, mut one, mut live) = (Vec::new(), Vec::new(), Vec::new());
        if taking.rest_of != Some((at, generation)) {
            taking.rest.clear();
            slots.read_all(&mut all)?;
            let is_first = taking.next.borrow() <= located.start.borrow();
            for record in slots.whole_records::<K>(&all) {
                let slot = record.as_ref().map_or_else(|damaged| damaged.slot, |record| record.slot);
                match record {
                    _ if is_written(slot) => {}
                    Ok(record) if record.key.borrow() >= taking.next.borrow() => live.push(record),
                    Ok(_) => {}
                    Err(damaged) => leaves_out(damaged, is_first)?,
                }
            }
            self.segments.sort_and_dedup(&mut live);
        }
        let mut live = live.into_iter();
        while let Some(record) = live.next() {
            if out.len() >= most {
                taking.next = record.key.borrow().to_owned();
                taking.rest_of = Some((at, generation));
                taking.rest.extend(live.rev().map(|record| record.slot));
                taking.rest.push(record.slot);
                self.taking = Some(taking);
                return Ok(());
            }
            self.take_record(&slots, &record, &mut leaves_out, out)?;
        }
        // A segment takes several steps where its values are long, and only the first of these
        // looks at all of its slots.
        while let Some(slot) = taking.rest.pop() {
            if is_written(slot) {
                continue;
            }
            slots.read_slot(slot, &mut one)?;
            match slots.whole_record::<K>(slot, &one) {
                // The slot was freed since, and has a later record of a key that was passed.
                Ok(Some(record)) if record.key.borrow() < taking.next.borrow() => {}
                Ok(Some(record)) if out.len() >= most => {
                    taking.next = record.key.borrow().to_owned();
                    taking.rest.push(slot);
                    self.taking = Some(taking);
                    return Ok(());
                }
                Ok(Some(record)) => self.take_record(&slots, &record, &mut leaves_out, out)?,
                Ok(None) => {}
                Err(damaged) => leaves_out(damaged, true)?,
            }
        }
        if let Some(end) = located.end {
            taking.written.remove(&at);
            taking.next = end;
            self.taking = Some(taking);
        }
        Ok(())
    }

    /// Appends a record, or has it left out if its value is damaged.
    fn take_record(
        &self,
        slots: &Slots<'_, M>,
        &WholeRecord { slot, word, key, value }: &WholeRecord<'_, K>,
        leaves_out: &mut impl FnMut(DamagedRecord, bool) -> Result<(), TableError>,
        out: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        match self.append_record(key.borrow(), word.version(), &value, out) {
            Err(TableError::Corrupt(Corrupt { offset, why, .. })) => {
                let why = format!("of its value at offset {offset}, {why}");
                let mut damaged = slots.damaged_record::<K>(slot, word, Some(key), why);
                if let Stored::External(extent) = value {
                    // Its slot is whole, and may be another one tomorrow.
                    damaged.identity = (offset, extent.checksum);
                }
                leaves_out(damaged, true)
            }
            appended => appended,
        }
    }

    /// About how many bytes all records take as [`take_records`](Self::take_records) gives them.
    pub(crate) fn records_bytes(&self) -> u64 {
        let each = LENGTH_BYTES + VERSION_BYTES + self.segments.geometry.shape.body_bytes();
        self.segments.keys * each as u64 + self.values.counted.bytes
    }

    /// Bytes that all records take at least as [`take_records`](Self::take_records) gives them.
    pub(crate) fn least_records_bytes(&self) -> u64 {
        let shape = self.segments.geometry.shape;
        let here = u64::from(shape.key_bytes.unwrap_or(0)) + u64::from(shape.value_bytes.unwrap_or(0));
        let each = (LENGTH_BYTES + VERSION_BYTES + shape.head_bytes()) as u64 + here;
        self.segments.keys * each + self.values.counted.bytes
    }

    /// Appends one record as snapshots have it.
    pub(super) fn append_record(
        &self,
        key: &K::Key,
        version: u32,
        value: &Stored<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let mut long = Vec::new();
        let value = match value {
            Stored::Here(value) => value,
            Stored::External(extent) => {
                read_value(&*self.segments.region, extent, &mut long)?;
                &long[..]
            }
        };
        let (shape, stored) = (self.segments.geometry.shape, Stored::Here(value));
        let record_bytes = VERSION_BYTES + shape.used(K::encoded_len(key), &stored);
        // A value has at most 16 MiB.
        out.extend((record_bytes as u32).to_le_bytes());
        out.extend(version.to_le_bytes());
        let at = out.len();
        out.resize(at + record_bytes - VERSION_BYTES, 0);
        shape.fill::<K>(&mut out[at..], key, &stored);
        Ok(())
    }

    /// Puts a record back with the version it had, or removes it.
    pub(crate) fn put_back(
        &mut self,
        key: &K::Key,
        version: u32,
        value: Option<&[u8]>,
    ) -> Result<(), TableError> {
        let kind = if value.is_some() { WriteKind::Put } else { WriteKind::Delete };
        let value = value.unwrap_or(&[]);
        let operation =
            WriteOperation { kind, key, hint: None, expected: Default::default(), value: Sent::Here(value) };
        loop {
            match self.decide(&operation, None)? {
                Decision::Reply(_) => return Ok(()),
                Decision::Mutate(mutation) => {
                    // It may have made a slot free before it has ended.
                    self.give_up_search();
                    let mutation = SlotMutation { version, ..mutation };
                    let place = self.segments.geometry.shape.place(K::encoded_len(key), value.len());
                    let value = match place {
                        Some(ValuePlace::External) if kind == WriteKind::Put => {
                            Stored::External(self.room.write_value(&self.segments, value)?)
                        }
                        _ => Stored::Here(value),
                    };
                    self.accept(&mutation);
                    self.perform(&mutation, &value)?;
                    return Ok(());
                }
                Decision::Full => drop(self.make_room(key)?),
                Decision::Damaged(segment, slot) => {
                    return Err(self.segments.damage(&segment, slot)?.into());
                }
            }
        }
    }

    /// Performs a logged mutation again, on the slot it was decided for. It makes no difference
    /// whether that slot was changed before, wholly or in part; the count of records is left to the
    /// caller.
    pub(crate) fn redo(
        &mut self,
        kind: MutationKind,
        at: (u64, u32, u16),
        key: &K::Key,
        version: u32,
        value: &Stored<'_>,
    ) -> Result<Option<fpcache::message::WriteReply>, TableError> {
        let (offset, generation, slot) = at;
        let Some((segment, shared)) = self.segments.directory.find_shared(key) else { return Ok(None) };
        let segment = *segment;
        let is_same = segment.address().offset() == offset && segment.generation() == generation;
        if !is_same || slot >= segment.model().cap {
            return Ok(None);
        }
        if let Stored::External(extent) = value {
            // Where the slot names it already, it was claimed with all that slots name.
            let memory = memory_of(extent);
            let end = memory.offset.saturating_add(memory.len);
            if !self.room.space.reach(end)
                || (self.room.space.overlaps(memory) && !self.room.space.claim(memory))
            {
                return Ok(None);
            }
        }
        let x = segment.coordinate(key, shared, &self.segments.encoders);
        let (slot, hash, predicted) = (u32::from(slot), K::hash(key), segment.model().predict(x));
        let slots = self.segments.slots(&segment);
        let marks = match kind {
            // Readers may have the table as it was before it was damaged, by which the slot was
            // chosen.
            MutationKind::Insert if !slots.has_whole_table(&mut Vec::new())? => {
                slots.mark_all()?;
                NO_MARKS
            }
            MutationKind::Insert => slots.to_mark(&segment.model(), (x, hash), slot)?,
            MutationKind::Update | MutationKind::Remove => NO_MARKS,
        };
        let mutation = SlotMutation { kind, segment, slot, predicted, key, hash, version, marks };
        // Records are counted again once everything is done.
        self.segments.keys += u64::from(kind == MutationKind::Remove);
        self.accept(&mutation);
        Ok(Some(self.perform(&mutation, value)?))
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Sorts records of a segment by their keys, and keeps one of each. Of one whose fingerprint
    /// was damaged when its key was written, the disk has had what came before.
    fn sort_and_dedup(&self, live: &mut Vec<WholeRecord<'_, K>>) {
        live.sort_unstable_by_key(|record| record.key);
        let age_of = |record: &WholeRecord<'_, K>| age(record.word.version(), self.next_version);
        live.dedup_by(|later, kept| {
            let is_one = later.key == kept.key;
            if is_one && age_of(later) < age_of(kept) {
                *kept = *later;
            }
            is_one
        });
    }
}
