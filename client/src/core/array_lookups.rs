//! Group lookups of any number of keys, with answers in arrays.

use std::iter::Take;
use std::time::Duration;

use fpcache::key_space::{BuildKeys, U64Keys};
use fpcache::read::{LookupScratch, Wanted};

use super::pieces::keys_of_piece;
use super::{Connector, Core, HeldContext};
use crate::error::ClientError;

/// Keys that are looked up together over mapped memory: enough for their waits for memory to
/// overlap, few enough for what they read to stay in the first-level cache until it is looked at.
pub(super) const GROUP: usize = 32;

/// Keys that are looked up together: elsewhere as many as a piece of a group has, which share round
/// trips.
const fn group(is_mapped: bool) -> usize {
    if is_mapped { GROUP } else { keys_of_piece(false) }
}

impl<T: Connector> Core<U64Keys, T> {
    /// Puts the values of `keys`, which have eight bytes, and whether they are there into arrays of
    /// the same length; how many are there.
    pub(crate) fn multi_get_u64(
        &self,
        held: &mut HeldContext<U64Keys, T>,
        keys: &[u64],
        (values, found): (&mut [u64], &mut [bool]),
        within: Duration,
    ) -> Result<usize, ClientError> {
        check_lengths(keys.len(), Some(values.len()), found.len())?;
        let mut shape = match self.shape_by(held, within) {
            Err(error) if error.is_of_empty_table() => {
                values.fill(0);
                found.fill(false);
                return Ok(0);
            }
            shape => shape?,
        };
        if let (true, Some(key)) = (shape.value_bytes != Some(8), keys.first()) {
            // The table may be another by now, which a lookup finds out.
            self.lookup(held, (std::iter::once(key), Wanted::Presence), within, |_| ())?;
            shape = self.shape_by(held, within)?;
        }
        if shape.value_bytes != Some(8) {
            return Err(ClientError::NotWords { value_bytes: shape.value_bytes });
        }
        words(keys, (values, found), group(T::IS_MAPPED), |keys, take| {
            self.lookup(held, (keys.iter(), Wanted::Value), within, take)
        })
    }
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Puts whether each key is there into an array of as many; how many are there.
    pub(crate) fn multi_contains<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        keys: impl ExactSizeIterator<Item = &'k K::Key> + Clone,
        found: &mut [bool],
        within: Duration,
    ) -> Result<usize, ClientError> {
        presence(keys, found, group(T::IS_MAPPED), |keys, take| {
            self.lookup(held, (keys, Wanted::Presence), within, take)
        })
    }
}

/// Has keys looked up, `group` at a time, and puts their values and whether they are there into
/// arrays.
pub(crate) fn words(
    keys: &[u64],
    (values, found): (&mut [u64], &mut [bool]),
    group: usize,
    mut look_up: impl FnMut(&[u64], &mut dyn FnMut(&mut LookupScratch<U64Keys>)) -> Result<(), ClientError>,
) -> Result<usize, ClientError> {
    check_lengths(keys.len(), Some(values.len()), found.len())?;
    let (mut total, mut odd) = (0, None);
    let groups = keys.chunks(group).zip(values.chunks_mut(group)).zip(found.chunks_mut(group));
    for ((keys, values), found) in groups {
        look_up(keys, &mut |scratch| {
            for ((value, found), (_, bytes)) in values.iter_mut().zip(&mut *found).zip(scratch.outcomes()) {
                (*value, *found) = match bytes.map(<[u8; 8]>::try_from) {
                    Some(Ok(bytes)) => (u64::from_le_bytes(bytes), true),
                    None => (0, false),
                    Some(Err(_)) => {
                        odd = bytes.map(<[u8]>::len);
                        (0, false)
                    }
                };
                total += usize::from(*found);
            }
        })?;
    }
    match odd {
        None => Ok(total),
        // The table has another shape than was thought.
        Some(bytes) => Err(ClientError::NotWords { value_bytes: u32::try_from(bytes).ok() }),
    }
}

/// Has keys looked up, `group` at a time, and puts whether they are there into an array.
pub(crate) fn presence<'k, K: BuildKeys, I: ExactSizeIterator<Item = &'k K::Key> + Clone>(
    mut keys: I,
    found: &mut [bool],
    group: usize,
    mut look_up: impl FnMut(Take<I>, &mut dyn FnMut(&mut LookupScratch<K>)) -> Result<(), ClientError>,
) -> Result<usize, ClientError> {
    check_lengths(keys.len(), None, found.len())?;
    let mut total = 0;
    for found in found.chunks_mut(group) {
        look_up(keys.clone().take(found.len()), &mut |scratch| {
            for (found, (outcome, _)) in found.iter_mut().zip(scratch.outcomes()) {
                *found = outcome.version.is_some();
                total += usize::from(*found);
            }
        })?;
        keys.nth(found.len() - 1);
    }
    Ok(total)
}

/// Whether arrays for answers are as long as those keys are many.
pub(crate) fn check_lengths(keys: usize, values: Option<usize>, found: usize) -> Result<(), ClientError> {
    match found == keys && values.is_none_or(|values| values == keys) {
        true => Ok(()),
        false => Err(ClientError::ArrayLengths { keys, values, found }),
    }
}
