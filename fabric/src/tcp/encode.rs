//! The encoding of batches as frames.

use zerocopy::IntoBytes;

use super::frame::{
    CHANGE_BYTES, Change, HEAD_BYTES, Kind, Limits, QUESTION_SUM_BYTES, READ_BYTES, ReadEntry, RequestHead,
    checksum, padding,
};
use crate::verbs::{Batch, PostedVerb, Verb};

/// Writes batches as frames: one, unless it would exceed the limits.
#[derive(Debug)]
pub(super) struct Encoder {
    limits: Limits,
    tag: u16,
}

/// An encoded batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Encoded {
    /// Frames, each of which has a reply.
    pub(super) frames: u32,
    /// Words of all replies.
    pub(super) words: usize,
}

/// A frame that is being written.
struct Frame<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    kind: Kind,
    entries: u32,
    /// Bytes of its reply.
    reply: usize,
}

impl Frame<'_> {
    /// Bytes after its head.
    fn body(&self) -> usize {
        self.out.len() - self.start - HEAD_BYTES
    }
}

impl Encoder {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, tag: 0 }
    }

    /// Appends the first requests of a batch, which were found good. No records are longer than a
    /// reply may be.
    pub(super) fn encode(&mut self, batch: &Batch, requests: usize, out: &mut Vec<u8>) -> Encoded {
        if let Some(question) = batch.question {
            return self.encode_question(batch, batch.bytes(question), out);
        }
        let kind = if batch.tally.changes() > 0 { Kind::Changes } else { Kind::Reads };
        let mut encoded = Encoded { frames: 0, words: 0 };
        let mut frame = Self::begin(out, kind);
        for posted in batch.requests.iter().take(requests) {
            let mut done = 0;
            loop {
                let len = self.piece(posted, posted.len as usize - done, &frame);
                let Some(len) = len else {
                    self.close(&mut frame, &mut encoded);
                    frame = Self::begin(out, kind);
                    continue;
                };
                append(&mut frame, batch, posted, done, len);
                done += len;
                if done >= posted.len as usize {
                    break;
                }
            }
        }
        self.close(&mut frame, &mut encoded);
        encoded
    }

    /// Appends a question, which was found to be alone and not too long.
    fn encode_question(&mut self, batch: &Batch, question: &[u8], out: &mut Vec<u8>) -> Encoded {
        let words = batch.requests.first().map_or(0, |posted| posted.len as usize / 8);
        let head = RequestHead {
            // Within the limits, which are 32 bits.
            bytes: (QUESTION_SUM_BYTES + question.len()) as u32,
            entries: words as u32,
            tag: self.tag,
            kind: Kind::Question,
        };
        self.tag = self.tag.wrapping_add(1);
        out.extend_from_slice(&head.encode());
        out.extend_from_slice(&checksum(question).to_le_bytes());
        out.extend_from_slice(question);
        Encoded { frames: 1, words }
    }

    fn begin(out: &mut Vec<u8>, kind: Kind) -> Frame<'_> {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        Frame { out, start, kind, entries: 0, reply: 0 }
    }

    fn close(&mut self, frame: &mut Frame<'_>, encoded: &mut Encoded) {
        // Within the limit, which is 32 bits.
        let head = RequestHead {
            bytes: frame.body() as u32,
            entries: frame.entries,
            tag: self.tag,
            kind: frame.kind,
        };
        frame.out[frame.start..frame.start + HEAD_BYTES].copy_from_slice(&head.encode());
        self.tag = self.tag.wrapping_add(1);
        encoded.frames += 1;
        encoded.words += frame.reply / 8;
    }

    /// How much of a request's last `left` bytes the frame takes; `None` if it takes nothing of it,
    /// which a new one never does, whatever the limits are.
    fn piece(&self, posted: &PostedVerb, left: usize, frame: &Frame<'_>) -> Option<usize> {
        let entry = if frame.kind == Kind::Reads { READ_BYTES } else { CHANGE_BYTES };
        let is_new = frame.entries == 0;
        let body_room = match (self.limits.batch_bytes as usize).checked_sub(frame.body() + entry) {
            None if !is_new => return None,
            room => room.unwrap_or(0),
        };
        let reply_room = (self.limits.reply_bytes as usize).saturating_sub(frame.reply);
        match posted.verb {
            Verb::Read => {
                let fits = left.next_multiple_of(8) <= reply_room;
                let stride = (posted.stride as usize * 8).max(8);
                match fits {
                    true => Some(left),
                    // Whole records, or whole words, as many as a frame takes.
                    false if is_new => Some((reply_room / stride * stride).max(stride).min(left)),
                    false => None,
                }
            }
            Verb::Write if left + padding(left) <= body_room => Some(left),
            Verb::Write if is_new => Some((body_room / 8 * 8).max(8).min(left)),
            Verb::Write => None,
            Verb::CompareSwap => (is_new || body_room >= 16 && reply_room >= 8).then_some(left),
        }
    }
}

fn append(frame: &mut Frame<'_>, batch: &Batch, posted: &PostedVerb, done: usize, len: usize) {
    let (word, stride) = (posted.word as usize, posted.stride);
    // Pieces are shorter than the request, whose length fits; areas were found among those there
    // are.
    let entry =
        ReadEntry { offset: posted.offset + done as u64, len: len as u32, area: posted.area.0 as u8, stride };
    frame.entries += 1;
    if frame.kind == Kind::Reads {
        frame.out.extend_from_slice(&entry.encode());
        frame.reply += entry.words() * 8;
        return;
    }
    let change = match posted.verb {
        Verb::Read => Change::Read(entry),
        Verb::Write => {
            let start = word * 8 + done;
            Change::Write(entry, &batch.buffer.as_bytes()[start..start + len])
        }
        Verb::CompareSwap => Change::CompareSwap(entry, batch.buffer[word + 1], batch.buffer[word + 2]),
    };
    change.encode(frame.out);
    frame.reply += change.reply_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::RemoteAddr;

    const LIMITS: Limits = Limits { batch_bytes: 96, reply_bytes: 64, call_request: 8, call_reply: 8 };

    /// The frames of a batch: entries, and the reply's bytes.
    fn frames(batch: &Batch) -> (Encoded, Vec<Vec<ReadEntry>>) {
        let mut out = Vec::new();
        let encoded = Encoder::new(LIMITS).encode(batch, batch.len(), &mut out);
        let (mut rest, mut frames) = (out.as_slice(), Vec::new());
        while let Some((head, after)) = rest.split_first_chunk::<16>() {
            let head = RequestHead::decode(head, &LIMITS).expect("within the limits");
            assert_eq!(usize::from(head.tag), frames.len());
            let (body, after) = after.split_at(head.bytes as usize);
            frames.push(body.as_chunks::<16>().0.iter().map(ReadEntry::decode).collect());
            rest = after;
        }
        (encoded, frames)
    }

    #[test]
    fn a_batch_is_one_frame_unless_it_is_too_long() {
        let mut batch = Batch::new();
        assert_eq!(frames(&batch), (Encoded { frames: 1, words: 0 }, vec![vec![]]));
        batch.read(RemoteAddr::region(8), 20);
        batch.read(RemoteAddr::region(80), 40);
        let lens = |frames: &[Vec<ReadEntry>]| -> Vec<Vec<(u64, u32)>> {
            frames.iter().map(|frame| frame.iter().map(|read| (read.offset, read.len)).collect()).collect()
        };
        let (encoded, made) = frames(&batch);
        assert_eq!((encoded, lens(&made)), (Encoded { frames: 1, words: 8 }, vec![vec![(8, 20), (80, 40)]]));
        // The reply would be too long, then the request is.
        batch.read(RemoteAddr::region(800), 150);
        for _ in 0..7 {
            batch.read(RemoteAddr::region(0), 0);
        }
        let (encoded, made) = frames(&batch);
        let nothing = |count| vec![(0, 0); count];
        let last = [vec![(928, 22)], nothing(5)].concat();
        let expected = vec![vec![(8, 20), (80, 40)], vec![(800, 64)], vec![(864, 64)], last, nothing(2)];
        assert_eq!((encoded, lens(&made)), (Encoded { frames: 5, words: 27 }, expected));
    }

    #[test]
    fn what_no_frame_has_room_for_ends_all_the_same() {
        let mut batch = Batch::new();
        batch.read_records(RemoteAddr::region(0), 240, 120);
        batch.read(RemoteAddr::region(0), 3);
        let tight = Limits { batch_bytes: 4, reply_bytes: 4, ..LIMITS };
        let mut out = Vec::new();
        let Encoded { frames, .. } = Encoder::new(tight).encode(&batch, batch.len(), &mut out);
        assert_eq!(frames, 3, "one for each record, and one");
    }

    #[test]
    fn records_are_not_cut() {
        let mut batch = Batch::new();
        batch.read_records(RemoteAddr::region(0), 120, 24);
        let (encoded, made) = frames(&batch);
        let lens: Vec<u32> = made.iter().flatten().map(|read| read.len).collect();
        assert_eq!((encoded.words, lens), (15, vec![48, 48, 24]));
        assert!(made.iter().flatten().all(|read| read.stride == 3));
    }
}
