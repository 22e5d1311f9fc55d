//! Long groups of keys, looked up while there is time.

use std::cell::Cell;

use fpcache::read::ReadError;

use super::flat::GROUP;

/// Keys that are looked up between two looks at the clock: a tenth of a millisecond's.
pub(super) const UNTIMED_KEYS: usize = 1 << 10;

/// Hands out keys while a call has time for them.
pub(super) struct Timed<'t, I, F> {
    keys: I,
    has_time: F,
    handed: &'t Cell<usize>,
    is_over: &'t Cell<bool>,
}

/// What became of a group of keys.
#[derive(Default)]
pub(super) struct Timing {
    handed: Cell<usize>,
    is_over: Cell<bool>,
}

impl Timing {
    /// Hands out `keys`, as long as `has_time` says so.
    pub(super) fn of<I, F>(&self, keys: I, has_time: F) -> Timed<'_, I, F> {
        Timed { keys, has_time, handed: &self.handed, is_over: &self.is_over }
    }

    /// Fails if there was no time for all keys.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        let round_trips = (self.handed.get() / GROUP) as u32;
        if self.is_over.get() { Err(ReadError::Unfinished { round_trips }) } else { Ok(()) }
    }
}

impl<I: Iterator, F: Fn() -> bool> Iterator for Timed<'_, I, F> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        let handed = self.handed.get();
        if handed > 0 && handed.is_multiple_of(UNTIMED_KEYS) && !(self.has_time)() {
            self.is_over.set(true);
            return None;
        }
        self.handed.set(handed + 1);
        self.keys.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.keys.size_hint()
    }
}
