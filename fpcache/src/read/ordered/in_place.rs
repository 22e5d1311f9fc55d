//! Searches for neighbours over memory looked at in place: the short way, for those it leads to.

use std::borrow::Borrow;

use fpcache_fabric::InPlace;

use super::Side;
use super::scratch::{NearestResult, NearestScratch};
use super::short::{DirectSearch, NearestRecord, NearestWindow, ShortScratch};
use crate::key_space::KeySpace;
use crate::matching::{Kernels, WithKernels};
use crate::read::ReadError;
use crate::read::lookup::TOGETHER;
use crate::table_view::TableView;

/// The short way for one key.
pub(super) struct OneInPlace<'a, K: KeySpace, L> {
    pub(super) look: L,
    pub(super) view: &'a TableView<K>,
    pub(super) buffers: &'a mut ShortScratch,
    pub(super) side: Side,
    pub(super) key: &'a K::Key,
}

impl<K: KeySpace, L: InPlace> WithKernels for OneInPlace<'_, K, L> {
    type Output = Result<Option<NearestRecord>, ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { look, view, buffers, side, key } = self;
        let mut short = DirectSearch { look, view, side, kernels };
        let Some(place) = short.locate(key) else { return Ok(None) };
        let found = short.find(&place, buffers)?;
        if let Some(NearestRecord { cost, .. }) = &found {
            short.look.count(cost.round_trips, cost.reads, cost.bytes)?;
        }
        Ok(found)
    }
}

/// The short way for those of a group that it leads to, in turns: some are located and their lines
/// fetched before the first of them is looked at. The others are put off.
pub(super) struct GroupInPlace<'a, K: KeySpace, L, I> {
    pub(super) look: L,
    pub(super) view: &'a TableView<K>,
    pub(super) scratch: &'a mut NearestScratch<K>,
    pub(super) side: Side,
    pub(super) keys: I,
}

impl<'k, K: KeySpace, L: InPlace, I: Iterator<Item = &'k K::Key>> WithKernels for GroupInPlace<'_, K, L, I> {
    type Output = Result<(), ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { look, view, scratch, side, mut keys } = self;
        let mut short = DirectSearch { look, view, side, kernels };
        let mut some = [(K::lowest(), None); TOGETHER];
        loop {
            let mut count = 0;
            for (place, key) in some.iter_mut().zip(keys.by_ref()) {
                *place = (key, short.locate(key));
                if let (_, Some(place)) = place {
                    short.prefetch(place);
                }
                count += 1;
            }
            let first = scratch.answers.len();
            if let Err(error) = Self::take(&mut short, scratch, &some[..count]) {
                // What the memory node may have left behind is no answer.
                scratch.answers[first..].iter_mut().for_each(|answer| answer.is_answered = false);
                return Err(error);
            }
            if count < TOGETHER {
                return Ok(());
            }
        }
    }
}

impl<'k, K: KeySpace, L: InPlace, I> GroupInPlace<'_, K, L, I> {
    /// Answers keys that were located, as far as the short way leads to their neighbours, and sees
    /// after that that the memory node is there.
    #[inline(always)]
    fn take<M: Kernels>(
        short: &mut DirectSearch<'_, K, L, M>,
        scratch: &mut NearestScratch<K>,
        some: &[(&'k K::Key, Option<NearestWindow<K>>)],
    ) -> Result<(), ReadError> {
        let (mut trips, mut reads, mut bytes) = (0, 0, 0);
        for (key, place) in some {
            let found = match place.as_ref().map(|place| short.find(place, &mut scratch.short)).transpose() {
                Ok(found) => found.flatten(),
                // For the search over doorbell batches to find out.
                Err(ReadError::Stale) => None,
                Err(error) => return Err(error),
            };
            let record = found.as_ref().and_then(|found| Some((found, scratch.short.record::<K>(found)?)));
            let Some((NearestRecord { version, cost, .. }, (key, value))) = record else {
                scratch.postpone(key);
                continue;
            };
            trips = cost.round_trips.max(trips);
            reads += cost.reads;
            bytes += cost.bytes;
            let start = scratch.values.len();
            scratch.values.extend_from_slice(value);
            let key = K::keep(key.borrow(), &mut scratch.arena);
            let found = Some((key, *version, start..scratch.values.len()));
            scratch.answers.push(NearestResult { found, cost: *cost, is_answered: true });
        }
        Ok(short.look.count(trips, reads, bytes)?)
    }
}
