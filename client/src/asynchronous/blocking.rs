//! Groups whose reads take more than waiting for a socket, as readers of threads make them.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;

use super::group::{Answer, Group, Kind, Part};
use crate::core::{Connector, Core, Held};
use crate::empty::first_parameters;
use crate::error::ClientError;

impl<K: BuildKeys> Group<K> {
    /// Makes the reads with what a reader holds, and answers them, each by its deadline.
    pub(super) fn read_with<T: Connector>(&mut self, core: &Core<K, T>, held: &mut Held<K, T>) {
        let within = self.until().saturating_duration_since(Instant::now());
        if let Err(error) = self.try_to_read(core, held, within) {
            self.fail(&error);
        }
    }

    /// As [`read_with`](Self::read_with). After an error nothing is answered.
    pub(super) fn try_to_read<T: Connector>(
        &mut self,
        core: &Core<K, T>,
        held: &mut Held<K, T>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let begun = Instant::now();
        match self.kind {
            Kind::Value | Kind::Presence => {
                let shape = self.shape(core, held, within)?;
                let within = within.saturating_sub(begun.elapsed());
                // An attempt that fails has answered nothing.
                let (keys, wanted) = (self.owned_keys(), self.wanted());
                core.lookup(held, (keys.iter().map(Borrow::borrow), wanted), within, |found| {
                    self.looked_up(&shape, found.outcomes());
                })
            }
            Kind::Nearest(side) => {
                let keys = self.owned_keys();
                core.nearest(held, side, keys.iter().map(Borrow::borrow), within, |found| {
                    self.searched(found);
                })
            }
            Kind::Scan => {
                let Some((start, end, limit)) = self.scan() else { return Ok(()) };
                let part = core.scan_part(held, (start, end), limit, within, |scan| Part::of(scan, limit))?;
                self.scanned(part.unwrap_or_default());
                Ok(())
            }
        }
    }

    fn owned_keys(&self) -> Vec<K::Owned> {
        self.keys().map(ToOwned::to_owned).collect()
    }

    /// How the table's records lie in slots, if that matters to an answer.
    fn shape<T: Connector>(
        &self,
        core: &Core<K, T>,
        held: &mut Held<K, T>,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        let is_versioned = self.asked.iter().any(|asked| matches!(asked.answer, Answer::Versioned(_)));
        match is_versioned.then(|| core.shape_by(held, within)) {
            Some(Err(error)) if !error.is_of_empty_table() => Err(error),
            Some(Ok(shape)) => Ok(shape),
            // Nothing is found in a table that has none.
            Some(Err(_)) | None => Ok(first_parameters::<K>([]).shape),
        }
    }
}
