//! A table's records in key order, segment by segment, while it changes; and records put back by key.

use fpcache::key_space::KeySpace;
use fpcache::layout::{SLOT_WORD_BYTES, SlotState, SlotWord};
use fpcache::message::{WriteKind, WriteOperation};
use fpcache_fabric::NodeMemory;

use super::slots::Slots;
use super::write::{Decision, Effect, EffectKind};
use super::{Table, TableError};
use crate::front::Front;

/// Bytes of a version before key and value in a record of a snapshot.
pub(crate) const VERSION_BYTES: usize = 4;

impl<K: KeySpace> Table<K> {
    /// Bytes of a record as [`records_from`](Self::records_from) gives it: version, key, value.
    pub(crate) fn record_bytes(&self) -> usize {
        VERSION_BYTES + K::KEY_BYTES + self.value_bytes() as usize
    }

    /// Appends the records of one segment, from `from` on and in key order, to `out`; returns the first key behind the
    /// segment, if there is one.
    pub(crate) fn records_from<M: NodeMemory>(
        &self,
        front: &Front<K, M>,
        from: &K::Key,
        out: &mut Vec<u8>,
    ) -> Result<Option<K::Key>, TableError> {
        let Some(located) = self.directory.locate(from) else { return Ok(None) };
        let slots = Slots::of(&*front.region, self.geometry, located.entry);
        let mut bytes = Vec::new();
        slots.read_all(&mut bytes)?;
        let mut live = Vec::new();
        for slot in bytes.chunks_exact(self.geometry.slot_bytes) {
            let Some((word, body)) = slot.split_first_chunk::<SLOT_WORD_BYTES>() else { continue };
            let word = SlotWord::from_bits(u64::from_le_bytes(*word));
            if let (SlotState::Live, Some(key)) = (word.state(), K::decode(body))
                && key >= *from
            {
                live.push((key, word.version(), body));
            }
        }
        live.sort_unstable_by_key(|(key, _, _)| *key);
        for (_, version, body) in live {
            out.extend(version.to_le_bytes());
            out.extend_from_slice(&body[..K::KEY_BYTES + self.value_bytes() as usize]);
        }
        Ok(located.hi.copied())
    }

    /// Puts a record back with the version it had, or removes it.
    pub(crate) fn put_back<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        key: K::Key,
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
                Decision::Full => self.make_room(front, &key)?,
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
        key: K::Key,
        version: u32,
        value: &[u8],
    ) -> Result<Option<fpcache::message::WriteReply>, TableError> {
        let (offset, generation, slot) = at;
        let Some(segment) = self.directory.find(&key).copied() else { return Ok(None) };
        let is_same = segment.address().offset() == offset && segment.generation() == generation;
        if !is_same || slot >= segment.model().cap {
            return Ok(None);
        }
        let effect = Effect { kind, segment, slot: u32::from(slot), key, hash: K::hash(&key), version };
        // Counts are made anew once everything is done.
        self.keys += u64::from(kind == EffectKind::Remove);
        self.accept(&effect);
        Ok(Some(self.perform(front, &effect, value)?))
    }
}
