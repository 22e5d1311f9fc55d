//! The keys inside this crate. Origin and licence: `data/README.md`.

use std::io::Read;

use crate::bytes::arena::KeyArena;
use crate::content::ZstdReader;

/// Range starts as differences, LEB128, zstd.
const IPV4: &[u8] = include_bytes!("../data/ipv4-range-starts.delta-leb128.zst");

/// Words, each as the length of what it shares with the one before, its other bytes and a newline,
/// zstd.
const WORDS: &[u8] = include_bytes!("../data/words.front-coded.zst");

/// Decompresses what is compiled in.
fn content(compressed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    ZstdReader::new(compressed).read_to_end(&mut content).expect("compiled in, and tests decode it");
    content
}

/// The English words: 663,473 distinct ascending keys of 1 to 60 bytes. Decoding takes some tens of
/// milliseconds.
pub(crate) fn words() -> KeyArena {
    let encoded = content(WORDS);
    let mut words = KeyArena::new();
    let mut word = Vec::new();
    let mut rest = &encoded[..];
    while let [shared, tail @ ..] = rest {
        let end = tail.iter().position(|&byte| byte == b'\n').unwrap_or(tail.len());
        word.truncate(usize::from(*shared));
        word.extend_from_slice(&tail[..end]);
        words.push(&word);
        rest = tail.get(end + 1..).unwrap_or_default();
    }
    words
}

/// The IPv4 range starts: 385,602 distinct ascending keys. Decoding takes some milliseconds.
pub(crate) fn ipv4() -> Vec<u64> {
    let mut keys = Vec::new();
    let (mut key, mut difference, mut shift) = (0u64, 0u64, 0);
    for byte in content(IPV4) {
        difference |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            key += difference;
            keys.push(key);
            (difference, shift) = (0, 0);
        }
    }
    keys
}
