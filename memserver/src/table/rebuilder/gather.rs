//! Gathered records: the live records of segments that are replaced, in key order.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::SLOT_WORD_BYTES;
use fpcache::models::Segment;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;

use super::super::error::TableError;
use super::super::segments::Segments;
use super::super::segments::copied::WholeRecord;
use crate::versions::age;

/// Most bytes of slots that a step of the background gathers, but for those of a single segment:
/// long slots are few, so that other tables wait no longer for one such step than for another.
pub(crate) const MOST_GATHERED_BYTES: usize = 2 << 20;

/// The live records of the segments that are to be replaced.
#[derive(Debug)]
pub(crate) struct Gathering<K: BuildKeys> {
    /// In key order.
    pub(crate) records: Vec<GatheredRecord<K>>,
    /// The bytes of keys that have any.
    pub(crate) keys: Vec<u8>,
    /// The segments' slots, one segment after the other.
    pub(crate) slots: Vec<u8>,
    order: Order<K>,
    pub(crate) xs: Vec<u64>,
    pub(crate) ages: Vec<u32>,
    /// Records in the slot their prediction names.
    pub(crate) at_home: u64,
    /// Records that are left out because there is a newer one of their key.
    pub(crate) outdated: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GatheredRecord<K: BuildKeys> {
    pub(crate) key: K::Kept,
    pub(crate) version: u32,
    /// Where its body begins in the slots; [`INCOMING`] for a record that is still to come.
    pub(crate) body: u32,
}

/// No body begins there: a segment's are far below 4 GiB.
pub(crate) const INCOMING: u32 = u32::MAX;

/// Buffers for bringing the records of a segment into key order.
#[derive(Debug)]
struct Order<K: BuildKeys> {
    /// In slot order, with the slot that the model predicts.
    found: Vec<(u32, GatheredRecord<K>)>,
    /// By prediction: how many have it, and then where the next one of them goes.
    places: Vec<usize>,
}

/// Neighbouring segments that are to be replaced together, and the range they own.
#[derive(Debug)]
pub(crate) struct ReplacedRun<K: BuildKeys> {
    pub(crate) start: K::Owned,
    /// First key after them; `None` at the table's end.
    pub(crate) end: Option<K::Owned>,
    pub(crate) segments: Vec<Segment<K>>,
}

impl<K: BuildKeys> Order<K> {
    /// Begins a segment of `cap` slots.
    fn begin(&mut self, cap: u16) {
        self.found.clear();
        self.places.clear();
        self.places.resize(usize::from(cap), 0);
    }

    fn add(&mut self, predicted: u32, record: GatheredRecord<K>) {
        self.places[predicted as usize] += 1;
        self.found.push((predicted, record));
    }

    /// Appends the records in key order. Predictions do not fall as keys rise, so that only records
    /// of one prediction, mostly one or two, are left to be sorted. Whether two are of one key.
    fn append_to(&mut self, records: &mut Vec<GatheredRecord<K>>, keys: &[u8]) -> bool {
        let Some(&(_, any)) = self.found.first() else { return false };
        let first = records.len();
        let mut next = first;
        for place in &mut self.places {
            next += std::mem::replace(place, next);
        }
        records.resize(next, any);
        for (predicted, record) in &self.found {
            let place = &mut self.places[*predicted as usize];
            records[*place] = *record;
            *place += 1;
        }
        let (mut begin, mut has_two_of_one) = (first, false);
        for &end in &self.places {
            if end - begin > 1 {
                let among = &mut records[begin..end];
                among.sort_unstable_by(|a, b| K::kept(&a.key, keys).cmp(K::kept(&b.key, keys)));
                has_two_of_one |=
                    among.windows(2).any(|two| K::kept(&two[0].key, keys) == K::kept(&two[1].key, keys));
            }
            begin = end;
        }
        has_two_of_one
    }
}

impl<K: BuildKeys> Default for Gathering<K> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            keys: Vec::new(),
            slots: Vec::new(),
            order: Order { found: Vec::new(), places: Vec::new() },
            xs: Vec::new(),
            ages: Vec::new(),
            at_home: 0,
            outdated: 0,
        }
    }
}

impl<K: BuildKeys> Gathering<K> {
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
        self.slots.clear();
        // A single segment may have more; what is kept until the next time is bounded.
        self.slots.shrink_to(MOST_GATHERED_BYTES);
        self.at_home = 0;
        self.outdated = 0;
    }

    /// Adds a record that is still to come, unless there is one of its key.
    pub(crate) fn add_incoming(&mut self, key: &K::Key) {
        let keys = &self.keys;
        if let Err(at) = self.records.binary_search_by(|record| K::kept(&record.key, keys).cmp(key)) {
            let key = K::keep(key, &mut self.keys);
            self.records.insert(at, GatheredRecord { key, version: 0, body: INCOMING });
        }
    }

    /// Leaves the newest record of every key: one whose fingerprint was damaged when its key was
    /// written is older than what was written then.
    #[cold]
    fn leave_out_outdated(&mut self, next_version: u32) {
        let Self { records, keys, .. } = self;
        let before = records.len();
        records.dedup_by(|later, kept| {
            let is_one = K::kept(&later.key, keys) == K::kept(&kept.key, keys);
            if is_one && age(later.version, next_version) < age(kept.version, next_version) {
                *kept = *later;
            }
            is_one
        });
        self.outdated += (before - records.len()) as u64;
    }

    /// Reads the live records of a segment, and adds them after those before.
    ///
    /// # Errors
    /// [`Damaged`](TableError::Damaged) if one is damaged: in a new segment it would have a
    /// checksum that matches.
    pub(crate) fn add_segment<M: NodeMemory>(
        &mut self,
        segments: &Segments<K, M>,
        start: &K::Key,
        segment: &Segment<K>,
    ) -> Result<(), TableError> {
        let slots = segments.slots(segment);
        let Gathering { records, keys, slots: bytes, order, at_home, .. } = self;
        let before = bytes.len();
        slots.append_all(bytes)?;
        let model = segment.model();
        order.begin(model.cap);
        for record in slots.whole_records::<K>(&bytes[before..]) {
            let record = match record {
                Err(damaged) if segments.breaks(Sabotage::CopiesUnproven) => {
                    slots.unproven_record::<K>(damaged.slot, &bytes[before..]).ok_or(damaged)
                }
                record => record,
            };
            let WholeRecord { slot, word, key, .. } = record?;
            let key = key.borrow();
            let predicted = model.predict(segment.coordinate(key, K::shared(key, start), &segments.encoders));
            *at_home += u64::from(predicted == slot);
            // All slots of a few segments are far below 4 GiB.
            let body = (before + slot as usize * segments.geometry.slot_bytes + SLOT_WORD_BYTES) as u32;
            let record = GatheredRecord { key: K::keep(key, keys), version: word.version(), body };
            order.add(predicted, record);
        }
        if order.append_to(records, keys) {
            self.leave_out_outdated(segments.next_version);
        }
        Ok(())
    }
}
