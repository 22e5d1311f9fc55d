//! The records nearest to keys: any number of keys in the same doorbell batches.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache_fabric::{Batch, Endpoint};

use super::Side;
use super::place::Coming;
use super::seek::{Answer, Doorbell, Rule, Seek, Value};
use crate::key_space::KeySpace;
use crate::read::external::clear;
use crate::read::{Cost, Operation, ReadError, Step, drive_while};
use crate::table_view::TableView;

/// A record that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour<'a, K: KeySpace> {
    /// Its key.
    pub key: &'a K::Key,
    /// Its version.
    pub version: u32,
    /// Its value.
    pub value: &'a [u8],
}

/// Where a record that was found lies in the buffers.
#[derive(Clone, Debug)]
struct Kept<K: KeySpace> {
    key: K::Kept,
    version: u32,
    value: Range<usize>,
}

/// Buffers of searches for the nearest records, kept between calls. One thread's.
#[derive(Debug)]
pub struct NearestScratch<K: KeySpace> {
    batch: Batch,
    coming: Coming<K>,
    /// One for each key; more are kept from calls with more keys.
    seeks: Vec<Seek<K>>,
    /// The keys that were asked for, and those that were found, with their bytes if they have any.
    keys: Vec<K::Kept>,
    arena: Vec<u8>,
    found: Vec<Option<Kept<K>>>,
    values: Vec<u8>,
}

impl<K: KeySpace> Default for NearestScratch<K> {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            coming: Coming::default(),
            seeks: Vec::new(),
            keys: Vec::new(),
            arena: Vec::new(),
            found: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<K: KeySpace> NearestScratch<K> {
    /// The answers of the last finished [`Nearest`], in the order of its keys, and what each cost.
    pub fn answers(&self) -> impl ExactSizeIterator<Item = (Option<Neighbour<'_, K>>, Cost)> {
        self.found.iter().zip(&self.seeks).map(|(found, seek)| {
            let neighbour = found.as_ref().map(|found| Neighbour {
                key: K::kept(&found.key, &self.arena),
                version: found.version,
                value: &self.values[found.value.clone()],
            });
            (neighbour, seek.cost)
        })
    }
}

/// Finds the records nearest to a group of keys, as [`Nearest`] does; the answers are [`NearestScratch::answers`]. `goes_on` is asked
/// before each round trip but the first, of how many there were, whether to wait for more.
///
/// # Errors
/// [`ReadError`]; [`Unfinished`](ReadError::Unfinished) where `goes_on` said no. There are no answers then.
#[inline]
pub fn find_nearest<'k, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    view: &TableView<K>,
    scratch: &mut NearestScratch<K>,
    (side, keys): (Side, impl IntoIterator<Item = &'k K::Key>),
    goes_on: impl FnMut(u32) -> bool,
) -> Result<(), ReadError> {
    let is_guarded = endpoint.guards();
    drive_while(endpoint, &mut Nearest::new(view, scratch, side, keys, is_guarded), goes_on)
}

/// Finds, for each key of a group, the record with the greatest key not above it, or with the least key not below it. Each answer
/// was the nearest record at one instant of the call; no two need have been so at the same.
///
/// # Cost
/// One round trip, and the slots of the key's window with eight more: 27 for uniform keys, 76 at most at an ε of 32, in two READs at a segment's edge. One more round trip,
/// with the same bytes, where one of them was written to since its segment was loaded: the slots are read twice to prove that they
/// were all so at one instant, and again for as long as they change. One more in a few cases in a thousand, where the nearest
/// record lies further off, and some where many records in a row were deleted; one for a page of the directory that is not here; one for a
/// external value. The keys of a group share their round trips, for up to 64 MiB of slots and values at a time: where many
/// keys lie before a long run of slots that were emptied, some wait until others have done.
#[derive(Debug)]
pub struct Nearest<'a, K: KeySpace> {
    rule: Rule<'a, K>,
    scratch: &'a mut NearestScratch<K>,
    is_checked: bool,
}

impl<'a, K: KeySpace> Nearest<'a, K> {
    /// A search on one `side` of `keys`. `is_guarded` says whether the endpoint [guards](fpcache_fabric::Endpoint::guards) READs.
    #[inline]
    pub fn new<'k>(
        view: &'a TableView<K>,
        scratch: &'a mut NearestScratch<K>,
        side: Side,
        keys: impl IntoIterator<Item = &'k K::Key>,
        is_guarded: bool,
    ) -> Self {
        scratch.batch.clear();
        scratch.coming.clear();
        scratch.keys.clear();
        scratch.arena.clear();
        scratch.values.clear();
        scratch.found.clear();
        for key in keys {
            scratch.keys.push(K::keep(key, &mut scratch.arena));
            scratch.found.push(None);
            match scratch.seeks.get_mut(scratch.keys.len() - 1) {
                Some(seek) => seek.clear(),
                None => scratch.seeks.push(Seek::default()),
            }
        }
        let is_guarded = is_guarded && view.guards_slots();
        Self { rule: Rule { view, side, is_guarded }, scratch, is_checked: false }
    }

    /// Takes what has come for all keys.
    fn take(&mut self) -> Result<(), ReadError> {
        let NearestScratch { batch, coming, seeks, keys, arena, found, values } = &mut *self.scratch;
        for ((seek, wanted), found) in seeks.iter_mut().zip(&*keys).zip(found) {
            if seek.is_done() {
                continue;
            }
            let ended = seek.take(K::kept(wanted, arena), &self.rule, (batch, coming))?;
            let Some(Answer::Record(version, place)) = ended else { continue };
            // What was found is there.
            let Some((key, value)) = seek.record(self.rule.view) else { continue };
            let value = match place {
                Value::InSlot => value,
                Value::Landed(landing, bytes) => &batch.bytes(landing)[..bytes],
            };
            let start = values.len();
            values.extend_from_slice(value);
            let key = K::keep(key.borrow(), arena);
            *found = Some(Kept { key, version, value: start..values.len() });
        }
        clear(batch);
        coming.clear();
        Ok(())
    }

    /// Asks for what all keys need, as far as that may be under way at once. Whether one still waits for something.
    fn ask(&mut self) -> bool {
        let NearestScratch { batch, coming, seeks, keys, arena, .. } = &mut *self.scratch;
        let seeks = &mut seeks[..keys.len()];
        let kept = seeks.iter().map(Seek::kept).sum();
        let mut doorbell = Doorbell { batch, coming, kept };
        let mut waits = false;
        for (seek, wanted) in seeks.iter_mut().zip(&*keys) {
            if !seek.is_done() {
                seek.ask(K::kept(wanted, arena), &self.rule, &mut doorbell);
                waits = true;
            }
        }
        waits
    }
}

impl<K: KeySpace> Operation for Nearest<'_, K> {
    #[inline]
    fn step(&mut self) -> Result<Step, ReadError> {
        if !self.is_checked && !self.scratch.batch.is_empty() {
            // Nothing is taken of a batch before it is known that it may be believed.
            self.is_checked = true;
            return Ok(Step::Check(self.rule.view.holds_until()));
        }
        self.is_checked = false;
        loop {
            self.take()?;
            if !self.ask() {
                return Ok(Step::Done);
            }
            // What needs no READ, such as that there is no segment further on, is taken at once.
            if !self.scratch.batch.is_empty() {
                return Ok(Step::Post);
            }
        }
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }
}
