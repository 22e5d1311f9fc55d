//! The interface that data sets of integers and of byte strings share.

use crate::{ByteDataset, Dataset};

/// Distinct ascending keys in memory, and the value of each; for code that serves either kind of
/// keys.
///
/// [`Dataset`] and [`ByteDataset`] have the same methods themselves, and say more about them.
pub trait KeySet: Sync {
    /// As it was asked for.
    fn name(&self) -> &str;

    /// Where the keys come from: `published (unverified)`, `stand-in`, `shipped`, `file` or
    /// `generated`.
    fn source(&self) -> &str;

    /// Things to announce.
    fn notes(&self) -> &[String];

    /// Number of distinct keys.
    fn len(&self) -> usize;

    /// Whether there are none; no spec gives such a data set.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number that the value of the `i`-th key is made from.
    ///
    /// # Panics
    /// If `i` is not below [`len`](Self::len), as indexing does.
    fn value(&self, i: usize) -> u64;
}

macro_rules! key_sets {
    ($($set:ty),*) => {$(
        impl KeySet for $set {
            fn name(&self) -> &str {
                self.name()
            }

            fn source(&self) -> &str {
                self.source()
            }

            fn notes(&self) -> &[String] {
                self.notes()
            }

            fn len(&self) -> usize {
                self.len()
            }

            #[inline]
            fn value(&self, i: usize) -> u64 {
                self.value(i)
            }
        }
    )*};
}

key_sets!(Dataset, ByteDataset);
