//! Groups whose reads take more than waiting for a socket, as readers of threads make them.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;
use fpcache::read::{LookupScratch, Side, Wanted};

use super::group::{Answer, Group, Kind, Part};
use crate::client::{Record, TableClient, with_core};
use crate::core::{Connector, Core, Held};
use crate::empty::first_parameters;
use crate::error::ClientError;
use crate::pool::{Pool, PoolHeld};

/// What reads groups for one thread at a time: a table of one memory node, or of several.
pub(super) trait Reads<K: BuildKeys> {
    /// What a reader holds.
    type Held;

    fn look_up<'k>(
        &self,
        held: &mut Self::Held,
        keys: (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        take: impl FnMut(&mut LookupScratch<K>),
    ) -> Result<(), ClientError>;

    fn search(
        &self,
        held: &mut Self::Held,
        side: Side,
        keys: &[K::Owned],
        within: Duration,
    ) -> Result<Vec<Option<Record<K>>>, ClientError>;

    /// How the record of a key lies in its slot.
    fn shape_of(
        &self,
        held: &mut Self::Held,
        key: &K::Key,
        within: Duration,
    ) -> Result<RecordShape, ClientError>;

    /// The first part of a scan.
    fn scan_part_of(
        &self,
        held: &mut Self::Held,
        span: (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
    ) -> Result<Part<K>, ClientError>;
}

impl<K: BuildKeys, T: Connector> Reads<K> for Core<K, T> {
    type Held = Held<K, T>;

    fn look_up<'k>(
        &self,
        held: &mut Self::Held,
        keys: (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        take: impl FnMut(&mut LookupScratch<K>),
    ) -> Result<(), ClientError> {
        self.lookup(held, keys, within, take)
    }

    fn search(
        &self,
        held: &mut Self::Held,
        side: Side,
        keys: &[K::Owned],
        within: Duration,
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let mut records = vec![None; keys.len()];
        self.nearest(held, side, keys.iter().map(Borrow::borrow), within, |found| {
            for (record, (found, _)) in records.iter_mut().zip(found.answers()) {
                *record = found.map(|found| (found.key.to_owned(), found.value.to_vec()));
            }
        })?;
        Ok(records)
    }

    fn shape_of(
        &self,
        held: &mut Self::Held,
        _: &K::Key,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        self.shape_by(held, within)
    }

    fn scan_part_of(
        &self,
        held: &mut Self::Held,
        span: (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
    ) -> Result<Part<K>, ClientError> {
        let part = self.scan_part(held, span, limit, within, |scan| Part::of(scan, limit))?;
        Ok(part.unwrap_or_default())
    }
}

impl<K: BuildKeys> Reads<K> for Pool<K> {
    type Held = PoolHeld<K>;

    fn look_up<'k>(
        &self,
        held: &mut Self::Held,
        keys: (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        take: impl FnMut(&mut LookupScratch<K>),
    ) -> Result<(), ClientError> {
        self.lookup(held, keys, within, take)
    }

    fn search(
        &self,
        held: &mut Self::Held,
        side: Side,
        keys: &[K::Owned],
        within: Duration,
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let found = self.nearest_to_each(held, side, keys.iter().map(Borrow::borrow), within)?;
        Ok(found.into_iter().map(|(found, _)| found).collect())
    }

    fn shape_of(
        &self,
        _: &mut Self::Held,
        key: &K::Key,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        self.shape_at(key, within)
    }

    fn scan_part_of(
        &self,
        held: &mut Self::Held,
        span: (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
    ) -> Result<Part<K>, ClientError> {
        let (part, end) = self.scan_part(held, span, limit, within, |scan| Part::of(scan, limit))?;
        let Part { records, next } = part.unwrap_or_default();
        // One that is full goes on within the range, if there is another key.
        Ok(Part { records, next: next.or(end) })
    }
}

impl<K: BuildKeys> Group<K> {
    /// Makes the reads with what the calling thread holds of a client, and answers them.
    pub(super) fn read_by(mut self, client: &TableClient<K>) {
        let within = self.until().saturating_duration_since(Instant::now());
        with_core!(client, core => core.here(|held| self.read_with(&**core, held, within)));
    }

    /// Makes the reads with what a reader holds, and answers them.
    pub(super) fn read_with<S: Reads<K>>(&mut self, source: &S, held: &mut S::Held, within: Duration) {
        if let Err(error) = self.try_to_read(source, held, within) {
            self.fail(&error);
        }
    }

    fn try_to_read<S: Reads<K>>(
        &mut self,
        source: &S,
        held: &mut S::Held,
        within: Duration,
    ) -> Result<(), ClientError> {
        match self.kind {
            Kind::Value | Kind::Presence => {
                let shape = self.shape(source, held, within)?;
                // An attempt that fails has answered nothing.
                let mut calls = std::mem::take(&mut self.asked);
                let (kind, wanted) = (self.kind, self.wanted());
                let asked = Self { kind, asked: std::mem::take(&mut calls) };
                let keys: Vec<K::Owned> = asked.keys().map(ToOwned::to_owned).collect();
                self.asked = asked.asked;
                source.look_up(held, (keys.iter().map(Borrow::borrow), wanted), within, |found| {
                    self.looked_up(&shape, found.outcomes());
                })
            }
            Kind::Nearest(side) => {
                let keys: Vec<K::Owned> = self.keys().map(ToOwned::to_owned).collect();
                let found = source.search(held, side, &keys, within)?;
                self.found_nearest(found.into_iter());
                Ok(())
            }
            Kind::Scan => {
                let Some((start, end, limit)) = self.scan() else { return Ok(()) };
                let part = source.scan_part_of(held, (start, end), limit, within)?;
                self.scanned(part);
                Ok(())
            }
        }
    }

    /// How the table's records lie in slots, if that matters to an answer.
    fn shape<S: Reads<K>>(
        &self,
        source: &S,
        held: &mut S::Held,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        let first = || first_parameters::<K>([]).shape;
        if !self.asked.iter().any(|asked| matches!(asked.answer, Answer::Versioned(_))) {
            return Ok(first());
        }
        // Of ranges that have one it is the same; nothing is found in one that has none.
        for key in self.keys() {
            match source.shape_of(held, key, within) {
                Err(error) if error.is_of_empty_table() => {}
                shape => return shape,
            }
        }
        Ok(first())
    }
}
