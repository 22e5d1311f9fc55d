//! Calls in parts, each of one range.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;

use super::range::Ranges;
use super::tries::Tries;
use super::{Pool, PoolHeld};
use crate::direct::{Direct, with_place};
use crate::error::ClientError;

impl<K: BuildKeys> Pool<K> {
    /// Reads of one range of a map, which is connected now if it is not. `false` if there is a newer
    /// map, by which the read has to begin again.
    pub(crate) fn at_range(
        &self,
        ranges: &Ranges<K>,
        index: usize,
        within: Duration,
        read: impl FnOnce(&Direct<K>, Duration) -> Result<(), ClientError>,
    ) -> Result<bool, ClientError> {
        let mut tries = Tries::begun(within);
        let core = ranges.core(index, &self.config, within);
        match core.and_then(|core| read(core, tries.left())) {
            Ok(()) => Ok(true),
            Err(error) => self.get_over(ranges, index, error, &mut tries).map(|()| false),
        }
    }

    /// As [`Core::count_part`](crate::core::Core::count_part), of the range that has `start`, after
    /// which the next one follows.
    pub(crate) fn count_part(
        &self,
        held: &mut PoolHeld<K>,
        (start, end): (&K::Key, Option<&K::Key>),
        within: Duration,
    ) -> Result<(u64, Option<K::Owned>), ClientError> {
        self.at_key(held, start, within, |ranges, index, place, left| {
            let before = ranges.end_before(index, end);
            let span = (start, before.map(Borrow::borrow).or(end));
            let (count, next) = with_place!(place, (core, own) => core.count_part(own, span, left))?;
            Ok((count, next.or_else(|| before.cloned())))
        })
    }
}
