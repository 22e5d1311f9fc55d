//! Records that tables are filled with, and what they come from.

use anyhow::{bail, ensure};
use fpcache_client::{KeySpace, RecordShape};
use fpcache_datasets::Bar;

use crate::keys::{KeyLengths, Keys};
use crate::output::counted;
use crate::parameters::Parameters;

/// What records of one's own come from, in a word.
pub(crate) const FILE: &str = "file";

/// Takes records, one after the other.
pub(crate) type Take<'t, K> = dyn FnMut(&<K as KeySpace>::Key, &[u8]) -> anyhow::Result<()> + 't;

/// Records to fill a table with.
pub(crate) trait RecordSet<K: Keys> {
    /// The name of what they come from.
    fn name(&self) -> &str;

    /// What that is: `file`, `generated` and the like.
    fn source(&self) -> &str;

    /// How many are known already: all, unless they are more than are kept in memory.
    fn known(&self) -> usize;

    /// Whether these are all.
    fn are_all_known(&self) -> bool {
        true
    }

    /// The key of the `i`-th of these, in ascending order.
    fn key(&self, i: usize) -> K::Owned;

    /// Where the record of that key is, for people.
    fn place(&self, i: usize) -> String;

    /// A sample of their keys, in order, to train the encoders on, if that is of use.
    fn sample(&self) -> Vec<K::Owned>;

    /// The lengths of their keys.
    fn lengths(&self) -> KeyLengths;

    /// The length of their values, if all have the same.
    fn value_bytes(&self) -> Option<u32>;

    /// Refuses records that slots of this shape have no room for, before any is passed on: of those
    /// that are known. The others are refused when they come.
    fn check(&mut self, shape: &RecordShape) -> anyhow::Result<()>;

    /// Passes all on, once: each key once, in ascending order.
    fn each(&mut self, take: &mut Take<'_, K>) -> anyhow::Result<()>;
}

/// What records come from.
pub(crate) trait RecordSource<K: Keys> {
    type Records: RecordSet<K>;

    /// The parameters of a table that is created for them, where they are not given.
    fn completed(&self, given: Parameters) -> Parameters {
        given
    }

    /// The lengths of keys of which none was read yet.
    fn lengths(&self) -> KeyLengths {
        K::LENGTHS
    }

    /// How many there are, if that is known before they are read, and all slots for them have one
    /// length.
    fn expected(&self) -> Option<u64> {
        None
    }

    /// Reads or generates them, for a table with records of this shape.
    fn open(&self, shape: &RecordShape, bar: &Bar) -> anyhow::Result<Self::Records>;
}

/// Refuses a key that has not the length of every key, if they have one.
pub(crate) fn check_key(key_bytes: usize, shape: &RecordShape) -> anyhow::Result<()> {
    let every = shape.key_bytes.map_or(key_bytes, usize::from);
    ensure!(
        key_bytes == every,
        "the key has {}, but all keys of this table have {every}",
        counted(key_bytes as u64, "byte")
    );
    Ok(())
}

/// Refuses a record that slots of this shape have no room for; its value has a length that the
/// table is for.
pub(crate) fn check_room(key_bytes: usize, value_bytes: usize, shape: &RecordShape) -> anyhow::Result<()> {
    if shape.fits(key_bytes, value_bytes) {
        return Ok(());
    }
    check_key(key_bytes, shape)?;
    let both = u32::try_from(key_bytes + value_bytes).unwrap_or(u32::MAX);
    let is_enough = |room: &u32| RecordShape { room: *room, ..*shape }.fits(key_bytes, value_bytes);
    let needs = (shape.room..both).find(is_enough).unwrap_or(both);
    bail!(
        "{} of key and {} of value need {needs} of a slot, but the slots of this table have room for {}: create one with \
         --slot-bytes {needs} or more",
        counted(key_bytes as u64, "byte"),
        counted(value_bytes as u64, "byte"),
        shape.room
    )
}
