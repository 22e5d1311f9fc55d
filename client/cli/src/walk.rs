//! The records of a range, a page after the other, whatever their number.

use std::borrow::Borrow;
use std::ops::Bound;

use fpcache_client::{ClientError, KeyRef, TableClient};

use crate::keys::Keys;

/// Records per call, which bounds the memory of a long scan.
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
    span: KeyBounds<K>,
    is_reverse: bool,
    limit: u64,
    mut take: impl FnMut(&K::Key, &[u8]) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (mut left, mut span) = (limit, Some(span));
    while let Some(range) = span.take().filter(|_| left > 0) {
        let wanted = left.min(PAGE);
        let (mut count, mut last, mut goes_on) = (0, None, Ok(true));
        let scanned = page(client, &range, is_reverse, wanted as usize, |key, value| {
            if matches!(goes_on, Ok(true)) {
                goes_on = take(key, value);
            }
            count += 1;
            if count == wanted {
                last = Some(key.to_owned());
            }
        });
        if !goes_on? {
            return Ok(());
        }
        scanned?;
        left -= count.min(left);
        let Some(last) = last else { break };
        span = match is_reverse {
            true => Some(KeyBounds { to: Bound::Excluded(last), ..range }),
            false => K::successor(last.borrow()).map(|from| KeyBounds { from, ..range }),
        };
    }
    Ok(())
}

/// One call.
fn page<K: Keys>(
    client: &TableClient<K>,
    range: &KeyBounds<K>,
    is_reverse: bool,
    wanted: usize,
    mut take: impl FnMut(&K::Key, &[u8]),
) -> Result<(), ClientError> {
    let take = |key: K::View<'_>, value: &[u8]| take(key.borrow(), value);
    let from = KeyRef::<K>(range.from.borrow());
    let scanned = match (&range.to, is_reverse) {
        (Bound::Excluded(to), false) => client.scan_range(from, KeyRef::<K>(to.borrow()), wanted, take),
        (_, false) => client.scan_with(from, wanted, take),
        (Bound::Excluded(to), true) => client.scan_range_back(from, KeyRef::<K>(to.borrow()), wanted, take),
        (Bound::Included(to), true) => client.scan_back_with(KeyRef::<K>(to.borrow()), wanted, take),
        (Bound::Unbounded, true) => client.scan_back_to(from, wanted, take),
    };
    scanned.map(drop)
}
