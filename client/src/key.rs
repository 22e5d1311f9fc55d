//! What stands for a key in calls.

use fpcache::key_space::{ByteKeys, KeySpace, U64Keys};

/// Whatever can be passed as a key of a table: a `u64` where keys are integers; anything that is bytes, such as `&[u8]`,
/// `&str`, `String` or an array, where they are byte strings. [`encode`](mod@crate::encode) makes byte strings of integers and
/// tuples that sort as these do. Where the kind of keys is a parameter, [`KeyRef`] stands for a key of any kind.
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
