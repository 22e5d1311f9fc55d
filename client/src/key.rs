//! Types that calls accept as keys.

use fpcache::key_space::{ByteKeys, KeySpace, U64Keys};

/// A type that can be passed as a key: `u64` for integer keys; anything that is `AsRef<[u8]>`, such
/// as `&[u8]`, `&str`, `String` or an array, for byte strings. [`encode`](mod@crate::encode)
/// encodes integers and tuples as byte strings of the same order. Code that is generic over the
/// kind of keys passes a [`KeyRef`].
pub trait AsKey<K: KeySpace> {
    /// The key.
    fn as_key(&self) -> &K::Key;
}

impl AsKey<U64Keys> for u64 {
    #[inline]
    fn as_key(&self) -> &u64 {
        self
    }
}

impl AsKey<U64Keys> for &u64 {
    #[inline]
    fn as_key(&self) -> &u64 {
        self
    }
}

impl<T: AsRef<[u8]>> AsKey<ByteKeys> for T {
    #[inline]
    fn as_key(&self) -> &[u8] {
        self.as_ref()
    }
}

/// A borrowed key, for code that is generic over the kind of keys.
#[derive(Debug)]
pub struct KeyRef<'k, K: KeySpace>(pub &'k K::Key);

impl<K: KeySpace> Clone for KeyRef<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: KeySpace> Copy for KeyRef<'_, K> {}

impl<K: KeySpace> AsKey<K> for KeyRef<'_, K> {
    #[inline]
    fn as_key(&self) -> &K::Key {
        self.0
    }
}
