//! A key by reference, as calls of clients take it.

use std::fmt;

use fpcache_client::{AsKey, KeySpace};

/// A key of any key space by reference. Code that is generic over key spaces passes it where others pass a `u64` or a
/// string.
pub struct KeyRef<'a, K: KeySpace>(pub &'a K::Key);

impl<K: KeySpace> Clone for KeyRef<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: KeySpace> Copy for KeyRef<'_, K> {}

impl<K: KeySpace> fmt::Debug for KeyRef<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&K::show(self.0))
    }
}

impl<K: KeySpace> AsKey<K> for KeyRef<'_, K> {
    #[inline]
    fn as_key(&self) -> &K::Key {
        self.0
    }
}
