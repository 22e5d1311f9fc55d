//! The records of a range, whatever their number.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use fpcache_client::{KeyRef, TableClient};

use crate::keys::Keys;

/// Keys per call, of keys alone.
const PAGE: u64 = 10_000;

/// A range of keys.
#[derive(Debug)]
pub(crate) struct KeyBounds<K: Keys> {
    pub(crate) from: K::Owned,
    pub(crate) to: Bound<K::Owned>,
}

/// Passes up to `limit` records of a range to `take`, in key order or against it, until that one
/// wants no more. They are passed as they come: values may be long.
pub(crate) fn walk<K: Keys>(
    client: &TableClient<K>,
    KeyBounds { from, to }: KeyBounds<K>,
    is_reverse: bool,
    limit: u64,
    mut take: impl FnMut(&K::Key, &[u8]) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut taken = Ok(true);
    let take = |key: K::View<'_>, value: &[u8]| {
        taken = take(key.borrow(), value);
        if matches!(taken, Ok(true)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let (from, limit) = (KeyRef::<K>(from.borrow()), usize::try_from(limit).unwrap_or(usize::MAX));
    let scanned = match (&to, is_reverse) {
        (Bound::Excluded(to), false) => client.scan_range(from, KeyRef::<K>(to.borrow()), limit, take),
        (_, false) => client.scan_with(from, limit, take),
        (Bound::Excluded(to), true) => client.scan_range_back(from, KeyRef::<K>(to.borrow()), limit, take),
        (Bound::Included(to), true) => client.scan_back_with(KeyRef::<K>(to.borrow()), limit, take),
        (Bound::Unbounded, true) => client.scan_back_to(from, limit, take),
    };
    taken?;
    scanned?;
    Ok(())
}

/// As [`walk`], of keys alone: values that lie outside slots are not read.
pub(crate) fn walk_keys<K: Keys>(
    client: &TableClient<K>,
    bounds: KeyBounds<K>,
    is_reverse: bool,
    limit: u64,
    mut take: impl FnMut(&K::Key) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (mut left, mut rest) = (limit, Some(bounds));
    while let Some(KeyBounds { from, to }) = rest.take().filter(|_| left > 0) {
        let wanted = left.min(PAGE);
        let (start, end) = (KeyRef::<K>(from.borrow()), to.as_ref().map(|to| KeyRef::<K>(to.borrow())));
        let keys = match (is_reverse, end) {
            (true, end) => client.scan_keys_back((Bound::Included(start), end), wanted as usize)?,
            (false, Bound::Excluded(end)) => client.scan_range_keys(start, end, wanted as usize)?,
            (false, _) => client.scan_keys(start, wanted as usize)?,
        };
        for key in &keys {
            if !take(key.borrow())? {
                return Ok(());
            }
        }
        left -= wanted;
        let last = keys.into_iter().nth(wanted as usize - 1);
        rest = last.and_then(|last| match is_reverse {
            true => Some(KeyBounds { from, to: Bound::Excluded(last) }),
            false => K::successor(last.borrow()).map(|from| KeyBounds { from, to }),
        });
    }
    Ok(())
}
