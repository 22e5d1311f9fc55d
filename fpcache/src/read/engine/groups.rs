//! Lookups by groups: the slots that a key's segment's table names, and tables that are not here
//! yet.

use std::sync::atomic::{Ordering, fence};

use zerocopy::IntoBytes;

use super::slots::SlotAnswer;
use super::{AwaitedTable, Engine, Probe, Requested, Source, Stage};
use crate::group_tables::{Known, SegmentName};
use crate::key_space::KeySpace;
use crate::layout::{SlotState, SlotWord};
use crate::matching::Kernels;
use crate::plan::Plan;
use crate::read::ReadError;
use crate::read::outcome::Outcome;
use crate::read::verify::{Rules, shown_word, shows};
use crate::sabotage::Sabotage;

/// Most tables that are asked for with one batch; keys of others ask when they come again.
const MOST_TABLES: usize = 64;

impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    /// Asks for the slots of a key's group, if it is known; if not, for the table that tells it to
    /// those who come after.
    #[inline]
    pub(super) fn ask_group(&mut self, probe: &mut Probe, outcome: &mut Outcome) -> bool {
        let Some(tables) = self.table.groups() else { return false };
        let segment = probe.target.name();
        match tables.find(&segment, probe.target.finest, probe.hash) {
            Known::Here((first, count)) if count > 0 => {
                outcome.plan = Plan::Groups;
                probe.asked = self.ask_slots(&probe.target, (first, count), outcome);
                probe.stage = Stage::Group(first, count);
                return true;
            }
            Known::Here(_) | Known::Nothing => {}
            Known::NotHere if tables.wants_table() => self.ask_table(segment, outcome),
            Known::NotHere => {}
        }
        false
    }

    /// Asks for a segment's table in the same round trip as what a key of it needs.
    #[cold]
    fn ask_table(&mut self, segment: SegmentName, outcome: &mut Outcome) {
        let awaited = &self.lists.tables;
        if awaited.len() >= MOST_TABLES || awaited.iter().any(|table| table.segment == segment) {
            return;
        }
        let (offset, len) = {
            let geometry = self.geometry();
            (geometry.table_offset(segment.cap) as u64, geometry.table_bytes(segment.cap))
        };
        outcome.cost.reads += 1;
        outcome.cost.bytes += len as u64;
        let asked = self.source.ask(segment.address + offset, len);
        self.lists.tables.push(AwaitedTable { segment, asked });
    }

    /// Keeps the tables that have come, before anything else is asked for.
    #[inline(always)]
    pub(in crate::read) fn take_tables(&mut self) -> Result<(), ReadError> {
        if self.lists.tables.is_empty() { Ok(()) } else { self.keep_tables() }
    }

    #[cold]
    fn keep_tables(&mut self) -> Result<(), ReadError> {
        let Some(tables) = self.table.groups() else { return Ok(()) };
        while let Some(AwaitedTable { segment, asked }) = self.lists.tables.pop() {
            self.source.words(&asked)?.copy_to(&mut self.lists.copy);
            let bytes = self.lists.copy.as_bytes();
            let len = self.table.view().geometry().table_bytes(segment.cap);
            tables.keep(&segment, bytes.get(..len).unwrap_or_default());
        }
        Ok(())
    }

    /// Looks for the key in its group's slots. One that no slot shows is absent, unless the group
    /// is marked: then it may lie elsewhere, which is for another plan to say.
    #[inline(always)]
    pub(super) fn take_group(
        &mut self,
        (_, count): (u32, u32),
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let (view, asked) = (self.table.view(), probe.asked);
        let slot = match shown_word(key, view) {
            Some(word) => {
                let words = self.source.words(&asked)?;
                let hits = self.kernels.key_hits_in(words, view.stride(), word, &mut self.lists.copy);
                if hits.frozen() && !view.breaks(Sabotage::GroupsPassFrozen) {
                    return Err(ReadError::Stale);
                }
                match hits.count() {
                    0 => None,
                    _ => Some(hits.first() as usize * 8),
                }
            }
            None => self.shown_at(count, key, probe)?,
        };
        match slot {
            Some(at) => {
                if let SlotAnswer::Found(found) = self.check(&asked, at, key, probe)? {
                    self.found(found, probe, outcome);
                    return Ok(());
                }
            }
            None if self.is_all(&asked)? => {
                self.unconfirmed.absent = true;
                probe.stage = Stage::Done;
                return Ok(());
            }
            None => {}
        }
        outcome.cost.round_trips += 1;
        self.ask(self.rule.choose(probe.target.window.len()), probe, outcome);
        Ok(())
    }

    /// Whether all records of the group whose slots were asked for have been in these.
    fn is_all(&mut self, asked: &Requested) -> Result<bool, ReadError> {
        let room = self.records.room(self.table.view().geometry().slot_bytes / 8);
        // After the others, where they are looked at in place: it says something of an earlier time
        // as well.
        fence(Ordering::Acquire);
        self.source.slot(asked, 0, room)?;
        let word = SlotWord::from_bits(room.first().copied().unwrap_or_default());
        Ok(match word.state() {
            SlotState::Free | SlotState::Live => !word.is_marked(),
            // Whether it was marked is not known.
            SlotState::Busy => false,
            SlotState::Frozen if self.table.view().breaks(Sabotage::GroupsPassFrozen) => true,
            SlotState::Frozen => return Err(ReadError::Stale),
        })
    }

    /// Where among `count` slots the first lies that shows the key, in bytes.
    fn shown_at(&mut self, count: u32, key: &K::Key, probe: &Probe) -> Result<Option<usize>, ReadError> {
        let (slot_bytes, rules) = (self.geometry().slot_bytes, Rules::of(self.table.view()));
        for at in 0..count as usize {
            let room = self.records.room(slot_bytes / 8);
            self.source.slot(&probe.asked, at * slot_bytes, room)?;
            if shows::<K>(room.as_bytes(), key, rules.shape) {
                return Ok(Some(at * slot_bytes));
            }
        }
        Ok(None)
    }
}
