//! Tests that frames are the drawn bytes, and others are refused.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { batch_bytes: 1 << 16, reply_bytes: 1 << 18, call_request: 1 << 20, call_reply: 1 << 20 };

#[test]
fn frames_have_the_documented_bytes() {
    let head = RequestHead { bytes: 0x20, entries: 2, tag: 0x0102, kind: Kind::Reads };
    assert_eq!(head.encode(), *b"\x20\0\0\0\x02\0\0\0\x02\x01\x01\0\0\0\0\0");
    let entry = ReadEntry { offset: 0x0102_0304_0506_0708, len: 0x1122, area: 2, stride: 5 };
    assert_eq!(entry.encode(), *b"\x08\x07\x06\x05\x04\x03\x02\x01\x22\x11\0\0\x02\x05\0\0");
    let reply = ReplyHead { bytes: 0x18, tag: 0x0102, status: 1, word: 0x0a0b };
    let words = reply.encode();
    assert_eq!(words, [0x0001_0102_0000_0018, 0x0a0b]);
    let mut bytes = Vec::new();
    Change::Write(ReadEntry { offset: 8, len: 3, area: 2, stride: 0 }, b"abc").encode(&mut bytes);
    assert_eq!(bytes, b"\x08\0\0\0\0\0\0\0\x03\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0abc\0\0\0\0\0");
}

#[test]
fn heads_that_cannot_be_are_refused() {
    let good = RequestHead { bytes: 32, entries: 2, tag: 1, kind: Kind::Reads };
    let decode = |change: &dyn Fn(&mut [u8; 16])| {
        let mut bytes = good.encode();
        change(&mut bytes);
        RequestHead::decode(&bytes, &LIMITS)
    };
    assert_eq!(decode(&|_| {}), Ok(good));
    assert_eq!(decode(&|bytes| bytes[10] = 9), Err(FrameError::KIND));
    assert_eq!(decode(&|bytes| bytes[15] = 1), Err(FrameError::RESERVED));
    assert_eq!(decode(&|bytes| bytes[0] = 33), Err(FrameError::LENGTH));
    assert_eq!(decode(&|bytes| bytes[..8].fill(0xff)), Err(FrameError::LENGTH));
    let call = |bytes| RequestHead { bytes, entries: 0, tag: 1, kind: Kind::Call };
    for (bytes, fits) in [(7, false), (8, true), (8 + (1 << 20), true), (9 + (1 << 20), false)] {
        assert_eq!(RequestHead::decode(&call(bytes).encode(), &LIMITS).is_ok(), fits, "{bytes}");
    }
}

fn entries() -> impl Strategy<Value = ReadEntry> {
    (any::<u64>(), 0u32..200, any::<u8>(), 0..=MAX_STRIDE).prop_map(|(offset, len, area, stride)| ReadEntry {
        offset,
        len,
        area,
        stride,
    })
}

proptest! {
    #[test]
    fn heads_and_entries_read_back(
        (bytes, tag, status, word) in any::<(u32, u16, u16, u64)>(), entry in entries()
    ) {
        let reply = ReplyHead { bytes, tag, status, word };
        let mut encoded = [0; 16];
        for (out, word) in encoded.chunks_exact_mut(8).zip(reply.encode()) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        prop_assert_eq!(ReplyHead::decode(&encoded), reply);
        prop_assert_eq!(ReadEntry::decode(&entry.encode()), entry);
    }

    #[test]
    fn changes_read_back(made in proptest::collection::vec((entries(), 0u8..3, any::<(u64, u64)>()), 0..20)) {
        let data = [7; 200];
        let changes: Vec<Change<'_>> = made.iter().map(|(entry, verb, (a, b))| match verb {
            0 => Change::Read(*entry),
            1 => Change::Write(*entry, &data[..entry.len as usize]),
            _ => Change::CompareSwap(*entry, *a, *b),
        }).collect();
        let mut body = Vec::new();
        changes.iter().for_each(|change| change.encode(&mut body));
        let entries = changes.len() as u32;
        let head = RequestHead { bytes: body.len() as u32, entries, tag: 0, kind: Kind::Changes };
        prop_assert_eq!(RequestHead::decode(&head.encode(), &LIMITS), Ok(head));
        let mut read = Changes::of(&head, &body);
        for change in &changes {
            prop_assert_eq!(read.next(), Ok(Some(*change)));
        }
        prop_assert_eq!(read.next(), Ok(None));
        body.push(0);
        let mut longer = Changes::of(&head, &body);
        let last = std::iter::repeat_with(|| longer.next()).find(|next| !matches!(next, Ok(Some(_))));
        prop_assert_eq!(last, Some(Err(FrameError::ENTRIES)));
    }
}
