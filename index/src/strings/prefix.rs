//! Common prefixes of byte strings, and separators between them.

/// Most bytes of a key.
pub const MAX_KEY_BYTES: usize = 4096;

/// How many bytes two strings share at their beginning. Eight bytes a step.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    if let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u32::from_le_bytes(*x) ^ u32::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += 4;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

/// The shortest beginning of `next` that is above `previous`, or its first `at_least` bytes where
/// that is more: what parts a segment whose last key is `previous` from one whose first key is
/// `next`, and skips at most `at_least` bytes.
///
/// All of `next` if it is shorter than that, or not above `previous`.
pub fn separator<'a>(previous: &[u8], next: &'a [u8], at_least: usize) -> &'a [u8] {
    let len = (common_prefix(previous, next) + 1).max(at_least);
    &next[..len.min(next.len())]
}
