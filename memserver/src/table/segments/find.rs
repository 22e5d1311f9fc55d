//! A key's record as a writer sees it, and damaged slots that may be the key's.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::layout::{RecordToken, Stored};
use fpcache::matching::Fingerprints;
use fpcache::models::Segment;
use fpcache_fabric::{AccessError, NodeMemory};

use super::super::error::{DamagedRecord, TableError};
use super::copied::CopiedSlot;
use super::decide::WindowMatch;
use super::slots::{RecordPlace, SegmentPlace, Slots};
use super::{KeyWindow, Segments, WindowSearch};

impl WindowSearch {
    /// Whether one of the slots whose fingerprints are the key's, and which do not hold it, is
    /// damaged. Where no fingerprints are stored, every damaged slot of the window may be the
    /// key's.
    #[cold]
    pub(super) fn find_damaged<K: KeySpace, M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        place: &KeyWindow<K>,
        key: &K::Key,
    ) -> Result<WindowMatch, AccessError> {
        let (width, shape) = (slots.geometry.width, slots.geometry.shape);
        let Self { matcher, slots: candidates, body, fingerprints, .. } = self;
        if !slots.geometry.stores_fingerprints {
            candidates.clear();
            let spare = FingerprintWidth::SPARE;
            let all = Fingerprints::new(width, place.window.len() as usize, fingerprints);
            matcher.find(all, spare, place.window.first, candidates);
        }
        let mut found = WindowMatch::Nothing;
        for slot in &*candidates {
            if !matches!(slots.read_state::<K>(*slot, body)?, CopiedSlot::Damaged) {
                continue;
            }
            let held = shape.key::<K>(body).and_then(|key| K::view(key));
            if held.is_some_and(|held| held.borrow() == key) {
                return Ok(WindowMatch::DamagedRecord(*slot));
            }
            found = WindowMatch::Damaged(*slot);
        }
        Ok(found)
    }

    /// The token of the record in a live slot, which is left in the scratch body; `None` if its
    /// checksum does not match.
    pub(super) fn token<K: KeySpace, M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        slot: u32,
    ) -> Result<Option<RecordToken>, AccessError> {
        let word = slots.word(slot)?;
        let (body, shape) = (&mut self.body, slots.geometry.shape);
        body.resize(shape.body_bytes(), 0);
        slots.read_body(slot, body)?;
        if !word.is_proof_of(slots.generation, body) {
            return Ok(None);
        }
        let used = shape.parts::<K>(body).map(|parts| shape.used(parts.key.len(), &parts.value));
        Ok(used.map(|used| RecordToken::of(word.version(), &body[..used])))
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Reads a record the way a writer sees it, for clients that cannot read it one-sided.
    ///
    /// # Errors
    /// [`Damaged`](TableError::Damaged) if the key's record, or one that may be the key's, is
    /// damaged.
    pub(crate) fn get(&mut self, key: &K::Key) -> Result<Option<(RecordToken, Stored<'_>)>, TableError> {
        let Some(place) = self.place(key) else { return Ok(None) };
        let slots = Slots::of(&*self.region, self.geometry, &place.segment);
        let (slot, token) = match self.search.find(&slots, &place, key, K::hash(key), None)? {
            WindowMatch::Nothing => return Ok(None),
            WindowMatch::Record(slot) => (slot, self.search.token::<K, M>(&slots, slot)?),
            WindowMatch::DamagedRecord(slot) | WindowMatch::Damaged(slot) => (slot, None),
        };
        let Some(token) = token else { return Err(self.damage(&place.segment, slot)?.into()) };
        // A record with a token has parts.
        let parts = self.geometry.shape.parts::<K>(&self.search.body);
        Ok(parts.map(|parts| (token, parts.value)))
    }

    /// Where the record of a key lies, if there is one that is whole.
    pub(crate) fn where_is(&mut self, key: &K::Key) -> Result<Option<RecordPlace>, AccessError> {
        let Some(place) = self.place(key) else { return Ok(None) };
        let slots = Slots::of(&*self.region, self.geometry, &place.segment);
        Ok(match self.search.find(&slots, &place, key, K::hash(key), None)? {
            WindowMatch::Record(slot) => {
                self.search.token::<K, M>(&slots, slot)?.map(|_| slots.place_of(slot))
            }
            _ => None,
        })
    }

    /// Where the segment of a key lies.
    pub(crate) fn segment_of(&self, key: &K::Key) -> Option<SegmentPlace> {
        let segment = self.directory.find(key)?;
        Some(self.slots(segment).place())
    }

    /// What is wrong with a slot that was found damaged.
    #[cold]
    pub(crate) fn damage(&self, segment: &Segment<K>, slot: u32) -> Result<DamagedRecord, AccessError> {
        let slots = self.slots(segment);
        let mut body = vec![0; self.geometry.shape.body_bytes()];
        slots.read_body(slot, &mut body)?;
        Ok(slots.damaged_slot::<K>(slot, slots.word(slot)?, &body))
    }
}
