//! The range of keys that a memory node owns of a table over several; requests for other keys are
//! refused.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::map::{MappedRange, RangeMap, key_of_bytes};
use fpcache::message::{ErrorCode, Refusal};

/// The keys of a range.
#[derive(Clone, Debug)]
pub(crate) struct Owned<K: BuildKeys> {
    start: K::Owned,
    end: Option<K::Owned>,
    /// The version of the map that says so.
    version: u32,
}

impl<K: BuildKeys> Owned<K> {
    /// The keys of a range of this map; `None` if its bounds are no keys of this kind.
    pub(super) fn of(map: &RangeMap, range: &MappedRange) -> Option<Self> {
        let end = match &range.end {
            Some(end) => Some(key_of_bytes::<K>(end)?),
            None => None,
        };
        Some(Self { start: key_of_bytes::<K>(&range.start)?, end, version: map.version })
    }

    /// Whether a key is one of them.
    pub(super) fn has(&self, key: &K::Key) -> bool {
        key >= self.start.borrow() && self.end.as_ref().is_none_or(|end| key < end.borrow())
    }

    /// What is said of a key that is none of them.
    #[cold]
    pub(super) fn refusal(&self, key: &K::Key) -> Refusal {
        let version = self.version;
        let end = self.end.as_ref().map_or("the end".to_owned(), |end| K::show(end.borrow()));
        let why = format!(
            "the key {} is outside this range of the table, which is {} to {end} in version {version} of its map: fetch a map \
             at least as new, and ask the memory node that it names",
            K::show(key),
            K::show(self.start.borrow())
        );
        Refusal::new(ErrorCode::WrongRange { version }, why)
    }
}
