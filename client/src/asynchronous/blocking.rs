//! Groups whose reads take more than waiting for a socket, as readers of threads make them.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;

use super::group::{Answer, Group, Kind, Part};
use crate::client::{Record, TableClient, with_core};
use crate::core::{Connector, Core, Held};
use crate::empty::first_parameters;
use crate::error::ClientError;

impl<K: BuildKeys> Group<K> {
    /// Makes the reads with what the calling thread holds of a client, and answers them.
    pub(super) fn read_by(mut self, client: &TableClient<K>) {
        let within = self.until().saturating_duration_since(Instant::now());
        with_core!(client, core => core.here(|held| self.read_with(core, held, within)));
    }

    /// Makes the reads with what a reader holds, and answers them.
    pub(super) fn read_with<T: Connector>(
        &mut self,
        core: &Core<K, T>,
        held: &mut Held<K, T>,
        within: Duration,
    ) {
        if let Err(error) = self.try_to_read(core, held, within) {
            self.fail(&error);
        }
    }

    fn try_to_read<T: Connector>(
        &mut self,
        core: &Core<K, T>,
        held: &mut Held<K, T>,
        within: Duration,
    ) -> Result<(), ClientError> {
        match self.kind {
            Kind::Value | Kind::Presence => {
                let shape = self.shape(core, held, within)?;
                // An attempt that fails has answered nothing.
                let mut calls = std::mem::take(&mut self.asked);
                let (kind, wanted) = (self.kind, self.wanted());
                let asked = Self { kind, asked: std::mem::take(&mut calls) };
                let keys: Vec<K::Owned> = asked.keys().map(ToOwned::to_owned).collect();
                self.asked = asked.asked;
                core.lookup(held, (keys.iter().map(Borrow::borrow), wanted), within, |found| {
                    self.looked_up(&shape, found.outcomes());
                })
            }
            Kind::Nearest(side) => {
                let keys: Vec<K::Owned> = self.keys().map(ToOwned::to_owned).collect();
                let keys = keys.iter().map(Borrow::borrow);
                core.nearest(held, side, keys, within, |found| self.searched(found))
            }
            Kind::Scan => self.scan_part(core, held, within),
        }
    }

    /// How the table's records lie in slots, if that matters to an answer.
    fn shape<T: Connector>(
        &self,
        core: &Core<K, T>,
        held: &mut Held<K, T>,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        let first = || first_parameters::<K>([]).shape;
        if !self.asked.iter().any(|asked| matches!(asked.answer, Answer::Versioned(_))) {
            return Ok(first());
        }
        match core.shape_by(held, within) {
            Err(error) if error.is_of_empty_table() => Ok(first()),
            shape => shape,
        }
    }

    fn scan_part<T: Connector>(
        &mut self,
        core: &Core<K, T>,
        held: &mut Held<K, T>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let Some((start, end, limit)) = self.scan() else { return Ok(()) };
        let mut records: Vec<Record<K>> = Vec::new();
        core.scan(held, (start, end), limit, within, |key, value| {
            records.push((key.borrow().to_owned(), value.to_vec()));
        })?;
        let next = match records.last() {
            Some((last, _)) if records.len() == limit => K::successor(last.borrow()),
            _ => None,
        };
        self.scanned(Part { records, next });
        Ok(())
    }
}
