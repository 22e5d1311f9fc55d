//! Group lookups of any number of keys, with answers in arrays.

use std::time::Duration;

use fpcache::key_space::{BuildKeys, U64Keys};
use fpcache::read::Wanted;

use super::{Connector, Core, Held};
use crate::error::ClientError;

/// Keys that are looked up together: enough for their waits for memory to overlap, few enough for
/// what they read to stay in the first-level cache until it is looked at.
const GROUP: usize = 32;

impl<T: Connector> Core<U64Keys, T> {
    /// Puts the values of `keys`, which have eight bytes, and whether they are there into arrays of
    /// the same length; how many are there.
    pub(crate) fn multi_get_u64(
        &self,
        held: &mut Held<U64Keys, T>,
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
        let (mut total, mut odd) = (0, None);
        let groups = keys.chunks(GROUP).zip(values.chunks_mut(GROUP)).zip(found.chunks_mut(GROUP));
        for ((keys, values), found) in groups {
            total += self.lookup(held, (keys.iter(), Wanted::Value), within, |scratch| {
                let mut there = 0;
                for ((value, found), (_, bytes)) in values.iter_mut().zip(&mut *found).zip(scratch.outcomes())
                {
                    (*value, *found) = match bytes.map(<[u8; 8]>::try_from) {
                        Some(Ok(bytes)) => (u64::from_le_bytes(bytes), true),
                        None => (0, false),
                        Some(Err(_)) => {
                            odd = bytes.map(<[u8]>::len);
                            (0, false)
                        }
                    };
                    there += usize::from(*found);
                }
                there
            })?;
        }
        match odd {
            None => Ok(total),
            // The table was recreated with another shape since its shape was read.
            Some(bytes) => Err(ClientError::NotWords { value_bytes: u32::try_from(bytes).ok() }),
        }
    }
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Puts whether each key is there into an array of as many; how many are there.
    pub(crate) fn multi_contains<'k>(
        &self,
        held: &mut Held<K, T>,
        keys: impl ExactSizeIterator<Item = &'k K::Key> + Clone,
        found: &mut [bool],
        within: Duration,
    ) -> Result<usize, ClientError> {
        check_lengths(keys.len(), None, found.len())?;
        let (mut total, mut rest) = (0, keys);
        for found in found.chunks_mut(GROUP) {
            let keys = rest.clone().take(found.len());
            total += self.lookup(held, (keys, Wanted::Presence), within, |scratch| {
                let answers = found.iter_mut().zip(scratch.outcomes());
                answers
                    .map(|(found, (outcome, _))| {
                        *found = outcome.version.is_some();
                        usize::from(*found)
                    })
                    .sum::<usize>()
            })?;
            rest.nth(found.len() - 1);
        }
        Ok(total)
    }
}

fn check_lengths(keys: usize, values: Option<usize>, found: usize) -> Result<(), ClientError> {
    match found == keys && values.is_none_or(|values| values == keys) {
        true => Ok(()),
        false => Err(ClientError::ArrayLengths { keys, values, found }),
    }
}
