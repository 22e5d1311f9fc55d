//! A table's records in key order, segment by segment, while it changes; and records put back by key.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{SLOT_WORD_BYTES, SlotState, SlotWord};
use fpcache::message::{WriteKind, WriteOperation};
use fpcache_fabric::NodeMemory;

use super::slots::Slots;
use super::write::{Decision, Effect, EffectKind};
use super::{Table, TableError};
use crate::front::Front;

/// Bytes of a version before the slot's body in a record of a snapshot.
pub(crate) const VERSION_BYTES: usize = 4;

impl<K: BuildKeys> Table<K> {
    /// Bytes of a record as [`records_from`](Self::records_from) gives it: version, and what its slot holds.
    pub(crate) fn record_bytes(&self) -> usize {
        VERSION_BYTES + self.geometry.shape.body_bytes()
    }

    /// Appends the records of one segment, from `from` on and in key order, to `out`; returns the first key behind the
    /// segment, if there is one.
    pub(crate) fn records_from<M: NodeMemory>(
        &self,
        front: &Front<K, M>,
        from: &K::Key,
        out: &mut Vec<u8>,
    ) -> Result<Option<K::Owned>, TableError> {
        let Some(located) = self.directory.locate(from) else { return Ok(None) };
        let slots = Slots::of(&*front.region, self.geometry, located.entry);
        let mut bytes = Vec::new();
        slots.read_all(&mut bytes)?;
        let mut live = Vec::new();
        for slot in bytes.chunks_exact(self.geometry.slot_bytes) {
            let Some((word, body)) = slot.split_first_chunk::<SLOT_WORD_BYTES>() else { continue };
            let word = SlotWord::from_bits(u64::from_le_bytes(*word));
            if word.state() == SlotState::Live
                && let Some(key) = self.geometry.shape.parts::<K>(body).and_then(|parts| K::view(parts.key))
                && key.borrow() >= from
            {
                live.push((key, word.version(), body));
            }
        }
        live.sort_unstable_by_key(|(key, _, _)| *key);
        for (_, version, body) in live {
            out.extend(version.to_le_bytes());
            out.extend_from_slice(body);
        }
        Ok(located.hi)
    }

    /// Puts a record back with the version it had, or removes it.
    pub(crate) fn put_back<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        key: &K::Key,
        version: u32,
        value: Option<&[u8]>,
    ) -> Result<(), TableError> {
        let kind = if value.is_some() { WriteKind::Put } else { WriteKind::Delete };
        let value = value.unwrap_or(&[]);
        let operation = WriteOperation { kind, key, hint: None, expected: Default::default(), value };
        loop {
            match self.decide(front, &operation)? {
                Decision::Reply(_) => return Ok(()),
                Decision::Change(effect) => {
                    let effect = Effect { version, ..effect };
                    self.accept(&effect);
                    self.perform(front, &effect, value)?;
                    return Ok(());
                }
                Decision::Full => self.make_room(front, key)?,
            }
        }
    }

    /// Does again what was written down before the process ended, to the slot it was decided for. Whether the slot was
    /// changed then, wholly or in part, makes no difference; the count of records is left to the caller.
    pub(crate) fn redo<M: NodeMemory>(
        &mut self,
        front: &Front<K, M>,
        kind: EffectKind,
        at: (u64, u32, u16),
        key: &K::Key,
        version: u32,
        value: &[u8],
    ) -> Result<Option<fpcache::message::WriteReply>, TableError> {
        let (offset, generation, slot) = at;
        let Some((segment, shared)) = self.directory.find_shared(key) else { return Ok(None) };
        let segment = *segment;
        let is_same = segment.address().offset() == offset && segment.generation() == generation;
        if !is_same || slot >= segment.model().cap {
            return Ok(None);
        }
        let predicted = segment.model().predict(segment.coordinate(key, shared, &self.coders));
        let (slot, hash) = (u32::from(slot), K::hash(key));
        let effect = Effect { kind, segment, slot, predicted, key, hash, version };
        // Counts are made anew once everything is done.
        self.keys += u64::from(kind == EffectKind::Remove);
        self.accept(&effect);
        Ok(Some(self.perform(front, &effect, value)?))
    }
}
