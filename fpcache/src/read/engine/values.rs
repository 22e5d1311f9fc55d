//! External values.

use zerocopy::IntoBytes;

use super::{AwaitedValue, Engine, Probe, Source, Stage};
use crate::key_space::KeySpace;
use crate::layout::ValueExtent;
use crate::matching::Kernels;
use crate::read::external::{Extents, GROUP_BYTES};
use crate::read::outcome::Outcome;
use crate::read::{ReadError, Wanted};

impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    /// Asks for the value of a key whose slot was found, if it is wanted: else the key is done.
    #[cold]
    pub(super) fn ask_value(
        &mut self,
        version: u32,
        extent: ValueExtent,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) {
        match self.wanted {
            Wanted::Value => {}
            Wanted::Presence => return probe.stage = Stage::Done,
            Wanted::InSlot => {
                outcome.is_external = true;
                return probe.stage = Stage::Done;
            }
        }
        let place = self.lists.values.len();
        self.lists.values.push(AwaitedValue { version, extent, asked: None });
        self.ask_awaited(place, probe, outcome);
    }

    /// Asks for the value in this place of the list, or puts it off once more.
    fn ask_awaited(&mut self, place: usize, probe: &mut Probe, outcome: &mut Outcome) {
        let extent = self.lists.values[place].extent;
        let Some((from, bytes)) = Extents::of(self.view()).place(extent) else {
            return self.read_again_for_value(probe, outcome);
        };
        outcome.cost.round_trips += 1;
        let is_put_off = self.value_bytes > 0 && self.value_bytes + bytes as u64 > GROUP_BYTES;
        if !is_put_off {
            self.value_bytes += bytes as u64;
            outcome.cost.reads += 1;
            outcome.cost.bytes += bytes as u64;
            self.lists.values[place].asked = Some(self.source.ask(from.offset, bytes));
        }
        // A group has fewer keys than 2^32.
        probe.stage = Stage::Value(place as u32);
    }

    /// Takes a value that has come, or asks for one that was put off.
    #[cold]
    pub(super) fn take_value(
        &mut self,
        place: u32,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let AwaitedValue { version, extent, asked } = &self.lists.values[place as usize];
        let (version, extent) = (*version, *extent);
        let Some(asked) = asked else {
            self.ask_awaited(place as usize, probe, outcome);
            return Ok(());
        };
        probe.stage = Stage::Done;
        let words = self.source.words(asked)?;
        let count = words.len();
        let room = self.records.room(count);
        room.iter_mut().zip(words).for_each(|(word, read)| *word = read);
        let length = extent.bytes as usize;
        match Extents::of(self.table.view()).proves(extent, room.as_bytes()) {
            true => {
                // Another of the key's slots may have been found since the one that named this
                // value.
                outcome.version = Some(version);
                outcome.value = self.records.keep(count, 0..length);
            }
            false => self.read_again_for_value(probe, outcome),
        }
        Ok(())
    }

    /// Reads the slots again of a key whose value was not where its slot said.
    fn read_again_for_value(&mut self, probe: &mut Probe, outcome: &mut Outcome) {
        outcome.version = None;
        self.fall_back(probe, outcome);
    }
}
