//! The keys inside this crate. Origin and licence: `data/README.md`.

use std::io::Read;

use crate::sosd::ZstdReader;

/// Range starts as differences, LEB128, zstd.
const IPV4: &[u8] = include_bytes!("../data/ipv4-range-starts.delta-leb128.zst");

/// The IPv4 range starts: 385,602 distinct ascending keys. Decoding takes some milliseconds.
pub(crate) fn ipv4() -> Vec<u64> {
    let mut encoded = Vec::new();
    ZstdReader::new(IPV4).read_to_end(&mut encoded).expect("compiled in, and a test decodes it");
    let mut keys = Vec::new();
    let (mut key, mut difference, mut shift) = (0u64, 0u64, 0);
    for byte in encoded {
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
