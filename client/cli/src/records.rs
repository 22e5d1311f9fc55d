//! Records that tables are filled with, and what they come from.

use fpcache_client::{KeySpace, RecordShape};

use crate::keys::{KeyLengths, Keys};
use crate::parameters::Parameters;
use crate::progress::Bar;

/// What records of one's own come from, in a word.
pub(crate) const FILE: &str = "file";

/// Takes records, one after the other.
pub(crate) type Take<'t, K> = dyn FnMut(&<K as KeySpace>::Key, &[u8]) -> anyhow::Result<()> + 't;

/// Records to fill a table with.
pub(crate) trait Records<K: Keys> {
    /// The name of what they come from.
    fn name(&self) -> &str;

    /// What that is: `file`, `generated` and the like.
    fn source(&self) -> &str;

    /// How many are known already: all, unless they are more than are kept in memory.
    fn known(&self) -> usize;

    /// The key of the `i`-th of these, in ascending order.
    fn key(&self, i: usize) -> K::Owned;

    /// A sample of their keys, in order, to train the encoders on, if that is of use.
    fn sample(&self) -> Vec<K::Owned>;

    /// The lengths of their keys.
    fn lengths(&self) -> KeyLengths;

    /// The length of their values, if all have the same.
    fn value_bytes(&self) -> Option<u32>;

    /// Passes all on, once: each key once, in ascending order.
    fn each(&mut self, take: &mut Take<'_, K>) -> anyhow::Result<()>;
}

/// What records come from.
pub(crate) trait Source<K: Keys> {
    type Records: Records<K>;

    /// The parameters of a table that is created for them, where they are not given.
    fn completed(&self, given: Parameters) -> Parameters {
        given
    }

    /// The lengths of keys of which none was read yet.
    fn lengths(&self) -> KeyLengths {
        K::LENGTHS
    }

    /// Reads or generates them, for a table with records of this shape.
    fn open(&self, shape: &RecordShape, bar: &Bar) -> anyhow::Result<Self::Records>;
}
