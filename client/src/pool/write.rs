//! Changes, each sent to the memory node that owns its key.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteOperation, WriteReply};

use super::Pool;
use super::map_retries::Tries;
#[cfg(feature = "tokio")]
use crate::changes::Changes;
use crate::core::{MeantTable, is_another_table, misfit};
use crate::error::ClientError;
use crate::one_node::with_direct;
use crate::outcomes::{ChangeResult, ChangeResults};

impl<K: BuildKeys> Pool<K> {
    /// Makes one change.
    pub(crate) fn write_one(
        &self,
        operation: WriteOperation<'_, &K::Key>,
        within: Duration,
    ) -> Result<WriteReply, ClientError> {
        self.at_range_of(operation.key, within, |ranges, index, tries| {
            let core = ranges.core(index, &self.config, tries)?;
            with_direct!(core, core => core.write_one(operation, tries.left()))
        })
    }

    /// Makes changes, those of each range in their order, and appends how each ended. Nothing is
    /// sent if one of them cannot be the table's. After another error, of one range, later changes
    /// of other ranges may have been made: then it is
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown).
    pub(crate) fn write<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        _meant: MeantTable,
        within: Duration,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        let all = self.write_ranges(&operations.collect::<Vec<_>>(), within, true);
        let mut outcomes = ChangeResults::of(all);
        outcomes.tell(replies);
        outcomes.end()
    }

    /// Makes changes of several callers, those of each range in their order, and says how each
    /// ended: what goes wrong with one range keeps those of others from nothing. Nothing is sent if
    /// one of them cannot be the table's.
    #[cfg(feature = "tokio")]
    pub(crate) fn write_each<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        within: Duration,
    ) -> Vec<ChangeResult> {
        let all = self.write_ranges(&operations.collect::<Vec<_>>(), within, false);
        all.into_iter().flatten().collect()
    }

    /// The error of the first change of a call that cannot be the table's, by the shape of the
    /// range of some of them; `None` also if that is not to be had.
    #[cfg(feature = "tokio")]
    pub(crate) fn misfit_of(
        &self,
        own: &Changes<K>,
        whole: &Changes<K>,
        within: Duration,
    ) -> Option<ClientError> {
        self.misfit_at(own.first_key()?, whole.operations(), &mut Tries::begun(within))
    }

    /// The error of the first change that cannot be the table's, by the shape of the range of this
    /// key; `None` also if that is not to be had. What does not fit a table that was dropped is
    /// looked at by the shape of the one that has its name, while there is time.
    fn misfit_at<'v>(
        &self,
        key: &K::Key,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        tries: &mut Tries,
    ) -> Option<ClientError> {
        loop {
            let ranges = self.ranges();
            let index = ranges.index_of(key);
            let shape = self.shape_of(&ranges, index, tries.left()).ok()?;
            let misfit = misfit::<K>(operations.clone(), &shape)?;
            if tries.left().is_zero() {
                return Some(misfit);
            }
            let core = ranges.core(index, &self.config, tries).ok()?;
            match with_direct!(core, core => core.leave_if_dropped(tries.left())) {
                Ok(true) => {}
                Err(error) if Self::is_gone(&error) => {
                    if let Err(error) = self.recover_range(&ranges, index, error, tries) {
                        return Some(error);
                    }
                }
                _ => return Some(misfit),
            }
        }
    }

    /// How each change ended, by its place; `None` if it was not sent, as another range's failed
    /// before. After a range's error all that are left of it end with that.
    fn write_ranges(
        &self,
        operations: &[WriteOperation<'_, &K::Key>],
        within: Duration,
        stops_at_error: bool,
    ) -> Vec<Option<ChangeResult>> {
        let mut all: Vec<Option<ChangeResult>> = vec![None; operations.len()];
        // Each request has the call's time for itself, as at one memory node: the first one of a
        // range together with the connection to it.
        let mut tries = Tries::begun(within);
        if let Some(first) = operations.first() {
            // Ranges that have parameters have them alike.
            if let Some(misfit) = self.misfit_at(first.key, operations.iter().copied(), &mut tries) {
                all.fill(Some(Err(misfit)));
            }
        }
        // Of the table that the first of them were made in.
        let mut creation = None;
        while let Some(next) = all.iter().position(Option::is_none) {
            let ranges = self.ranges();
            if stops_at_error && creation.is_some_and(|creation| creation != ranges.map.creation) {
                all[next] = Some(Err(is_another_table()));
                break;
            }
            let index = ranges.index_of(operations[next].key);
            let of_range = |at: &usize| all[*at].is_none() && ranges.index_of(operations[*at].key) == index;
            let places: Vec<usize> = (next..operations.len()).filter(of_range).collect();
            let wanted = places.iter().map(|at| operations[*at]);
            let mut done = Vec::with_capacity(places.len());
            let core = ranges.core(index, &self.config, &tries);
            let written = core.and_then(|core| {
                let times = (tries.left(), within);
                with_direct!(core, core => core.write_begun(wanted.clone(), MeantTable::Any, times, &mut done))
            });
            let made = done.len();
            if made > 0 {
                creation = Some(ranges.map.creation);
                // What failed is a later request, or there is none left.
                tries = Tries::begun(within);
            }
            for (at, reply) in places.iter().copied().zip(done) {
                all[at] = Some(Ok(reply));
            }
            let ended = match written {
                Ok(()) => continue,
                Err(error) => self.recover_range(&ranges, index, error, &mut tries),
            };
            if let Err(error) = ended {
                for at in places.into_iter().skip(made) {
                    all[at] = Some(Err(error.clone()));
                }
                if stops_at_error {
                    break;
                }
                tries = Tries::begun(within);
            }
        }
        all
    }
}
