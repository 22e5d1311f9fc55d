//! Lookups of one key or many, over memory looked at in place or in doorbell batches.
//!
//! Keys of a batch share their round trips. Where memory is mapped, a round trip is a wait for
//! memory, and keys share it by being taken in turns: all of a group are located, then all windows
//! are matched, then all slots are verified, each step with the next one's lines on their way.

pub mod at_node;
mod attempt;
mod batches;
mod in_place;
mod line;
mod question;
mod word;

pub(super) use attempt::TOGETHER;
pub use batches::Lookup;
use fpcache_fabric::{Endpoint, REGION};
pub(super) use line::LineFirst;

use super::outcome::Outcome;
use super::scratch::LookupScratch;
use super::{ReadError, Wanted, drive};
use crate::fingerprint::FingerprintWidth;
use crate::key_space::KeySpace;
use crate::table::Table;
use in_place::{Group, Single};
pub use word::WordAnswer;
use word::WordLookup;

/// Looks up one key and hands the answer, with its value if the key is there, to `take`.
///
/// # Errors
/// [`ReadError`].
#[inline]
pub fn look_up<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    look_for(endpoint, table, scratch, (key, Wanted::Value), take)
}

/// Looks up one key of a table of words, where memory is looked at in place and nothing rare comes
/// up: at a fraction of the instructions of [`look_up`], which is for what has no answer here.
#[inline(always)]
pub fn look_up_word<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
) -> Option<WordAnswer> {
    // The default first, by a comparison of its own.
    if table.word_width() == Some(FingerprintWidth::Bits16) {
        return look_up_word_of::<K, E, 2>(endpoint, table, scratch, key);
    }
    look_up_wide_word(endpoint, table, scratch, key)
}

/// [`look_up_word`] by fingerprints of other widths than the default.
#[inline(never)]
fn look_up_wide_word<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
) -> Option<WordAnswer> {
    match table.word_width()? {
        FingerprintWidth::Bits32 => look_up_word_of::<K, E, 4>(endpoint, table, scratch, key),
        FingerprintWidth::Bits64 => look_up_word_of::<K, E, 8>(endpoint, table, scratch, key),
        // No table of words has 8 bits, and 16 were seen to.
        FingerprintWidth::Bits8 | FingerprintWidth::Bits16 => None,
    }
}

/// Looks up one key of a table of words with fingerprints of this many bytes.
#[inline(always)]
fn look_up_word_of<K: KeySpace, E: Endpoint, const WIDTH: usize>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
) -> Option<WordAnswer> {
    let Ok(Some(look)) = endpoint.in_place(REGION) else { return None };
    scratch.matcher.call::<WordLookup<WIDTH>, _, _, _>(look, (table, key), &mut scratch.lists)
}

/// Whether one key is there, as the outcome that `take` gets has it. Costs what [`look_up`] does,
/// in round trips and bytes, but for an external value, which is not READ.
///
/// # Errors
/// As for [`look_up`].
#[inline]
pub fn contains<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
    take: impl FnOnce(&Outcome) -> R,
) -> Result<R, ReadError> {
    look_for(endpoint, table, scratch, (key, Wanted::Presence), |outcome, _| take(outcome))
}

/// Looks up a group of keys, of any number; their answers are [`LookupScratch::outcomes`], in their
/// order.
///
/// In a batch a group costs as many dependent round trips as its slowest key, two with two-stage
/// reads, for up to 65,536 READs and 64 MiB at a time of what is read of slots and fingerprints,
/// and as much of external values: other keys begin one round trip later, or several. Keys of which
/// several fingerprints match, and windows that are read after all, come on top.
///
/// # Errors
/// As for [`look_up`]; [`LookupScratch::answered`] says which keys have their answers all the same.
#[inline]
pub fn look_up_all<'k, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    keys: impl IntoIterator<Item = &'k K::Key>,
    wanted: Wanted,
) -> Result<(), ReadError> {
    scratch.clear_outcomes();
    look_up_more(endpoint, table, scratch, keys, wanted)
}

/// As [`look_up_all`], with the answers after those that are there, which may be those of other
/// keys.
///
/// # Errors
/// As for [`look_up_all`].
#[inline]
pub fn look_up_more<'k, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    keys: impl IntoIterator<Item = &'k K::Key>,
    wanted: Wanted,
) -> Result<(), ReadError> {
    scratch.group.begin_in_place();
    if let Some(look) = endpoint.in_place(REGION)? {
        let matcher = scratch.matcher;
        return matcher.run(Group { look, table, scratch, keys: keys.into_iter(), wanted });
    }
    let ways = table.ways(endpoint);
    drive(endpoint, &mut Lookup::more(table, scratch, keys).of(wanted).by(ways))
}

#[inline(always)]
fn look_for<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    (key, wanted): (&K::Key, Wanted),
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    if let Some(answer) = look_up_word(endpoint, table, scratch, key) {
        let outcome = answer.outcome();
        return Ok(answer.value_in(&table.view().geometry().shape, |value| take(&outcome, value)));
    }
    if let Some(look) = endpoint.in_place(REGION)? {
        let matcher = scratch.matcher;
        return matcher.run(Single { look, table, scratch, key, wanted, take });
    }
    let ways = table.ways(endpoint);
    drive(endpoint, &mut Lookup::new(table, scratch, [key]).of(wanted).by(ways))?;
    let (outcome, value) = scratch.outcomes().next().ok_or(ReadError::Stale)?;
    Ok(take(outcome, value))
}
