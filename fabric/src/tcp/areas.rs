//! The execution of batches on the node's memory.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use zerocopy::IntoBytes;

use super::frame::{
    Change, Changes, DAMAGED, FrameError, NOT_ANSWERED, QUESTION_SUM_BYTES, READ_BYTES, ReadEntry, ReplyHead,
    RequestHead, SERVED, checksum,
};
use crate::memory::{Access, PREFETCH_PER_READ, SharedMemory, read_ahead};
use crate::region_questions::{Answered, Answers, ThreadMemory};

/// The area that clients may change, where there is one.
pub(super) const SCRATCH: u8 = 2;

/// The areas that a client may address.
#[derive(Clone, Debug)]
pub(super) struct Areas {
    /// Area 0, for reading.
    pub(super) region: Arc<SharedMemory>,
    /// The same as it is mapped for the memory node's network card, if it has one.
    pub(super) for_card: Arc<SharedMemory>,
    /// From where on its bytes hold nothing: they are zeros, and are not touched.
    pub(super) backed_end: Arc<AtomicU64>,
    /// The word of the region that is loaded after the READs of a frame.
    pub(super) watched: Option<u64>,
    /// How long network cards may believe it.
    pub(super) lease: Duration,
    /// Area 2, which clients may change.
    pub(super) scratch: Option<Arc<SharedMemory>>,
    /// The code that answers questions about the region, as long as the service offers that.
    pub(super) answers: Option<Weak<dyn Answers>>,
}

/// Replies that are to be sent, as words: landing buffers are words too.
#[derive(Debug, Default)]
pub(super) struct Output {
    words: Vec<u64>,
    used: usize,
}

impl Output {
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.used * 8
    }

    /// The bytes that wait.
    pub(super) fn bytes(&self) -> &[u8] {
        self.words[..self.used].as_bytes()
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Gives room back that is rarely needed.
    pub(super) fn shrink_to(&mut self, words: usize) {
        if self.words.len() > words && self.used <= words {
            self.words.truncate(words);
            self.words.shrink_to_fit();
        }
    }

    /// The next `words` words, which hold parts of earlier replies, to whatever client: all of them
    /// are written before they are sent.
    fn take(&mut self, words: usize) -> &mut [u64] {
        let (start, end) = (self.used, self.used + words);
        if end > self.words.len() {
            self.words.resize(end.next_power_of_two().max(512), 0);
        }
        self.used = end;
        &mut self.words[start..end]
    }

    /// Appends a reply without a batch.
    pub(super) fn push(&mut self, head: ReplyHead, body: &[u8]) {
        let padded = body.len().div_ceil(8);
        let words = self.take(2 + padded);
        words[..2].copy_from_slice(&head.encode());
        if let Some(last) = words[2..].last_mut() {
            *last = 0;
        }
        words[2..].as_mut_bytes()[..body.len()].copy_from_slice(body);
    }
}

impl Areas {
    /// Executes a batch of READs and appends the reply.
    ///
    /// The watched word is loaded after the copies with an acquire fence between, as
    /// [`Endpoint::load_after_reads`](crate::Endpoint::load_after_reads) asks.
    pub(super) fn read(
        &self,
        head: &RequestHead,
        body: &[u8],
        reply_bytes: u32,
        out: &mut Output,
    ) -> Result<(), FrameError> {
        let entries = || body.as_chunks::<READ_BYTES>().0.iter().map(ReadEntry::decode);
        let words: u64 = entries().map(|entry| entry.words() as u64).sum();
        if words * 8 > u64::from(reply_bytes) {
            return Err(FrameError::REPLY);
        }
        let before = out.used;
        // Within `reply_bytes`.
        let reply = out.take(2 + words as usize);
        let mut landing = &mut reply[2..];
        let outcome = read_ahead(
            entries(),
            |next| self.prefetch(next),
            |entry| {
                let (into, rest) = std::mem::take(&mut landing).split_at_mut(entry.words());
                landing = rest;
                self.copy(&entry, into)
            },
        );
        if outcome.is_err() {
            out.used = before;
            return outcome;
        }
        let word = self.watched_word();
        let bytes = (words * 8) as u32;
        reply[..2].copy_from_slice(&ReplyHead { bytes, tag: head.tag, status: SERVED, word }.encode());
        Ok(())
    }

    fn prefetch(&self, entry: &ReadEntry) {
        if entry.area == 0 {
            self.region.prefetch(entry.offset, (entry.len as usize).min(PREFETCH_PER_READ));
        }
    }

    /// Copies what one READ asks for.
    fn copy(&self, entry: &ReadEntry, out: &mut [u64]) -> Result<(), FrameError> {
        let memory = self.area(entry.area)?;
        let len = u64::from(entry.len);
        let end = entry.offset.checked_add(len).filter(|end| *end <= memory.len() as u64);
        let end = end.ok_or(FrameError::ACCESS)?;
        let backed_end = match entry.area {
            0 => self.backed_end.load(Ordering::Acquire),
            _ => u64::MAX,
        };
        if end > backed_end {
            return Self::copy_backed(memory, entry, backed_end, out);
        }
        Self::copy_from(memory, entry, out)
    }

    /// Copies what lies before the end of what is backed, and makes zeros of the rest; of records,
    /// of those that do not lie before it whole.
    #[cold]
    fn copy_backed(
        memory: &SharedMemory,
        entry: &ReadEntry,
        backed_end: u64,
        out: &mut [u64],
    ) -> Result<(), FrameError> {
        let unit = u64::from(entry.stride.max(1)) * 8;
        // Less than the entry's length.
        let len = (backed_end.saturating_sub(entry.offset) / unit * unit) as u32;
        let (backed, rest) = out.split_at_mut(len as usize / 8);
        rest.fill(0);
        if len == 0 { Ok(()) } else { Self::copy_from(memory, &ReadEntry { len, ..*entry }, backed) }
    }

    fn copy_from(memory: &SharedMemory, entry: &ReadEntry, out: &mut [u64]) -> Result<(), FrameError> {
        Ok(memory.read_landing(entry.offset, entry.len as usize, entry.stride as usize, out)?)
    }

    fn area(&self, area: u8) -> Result<&SharedMemory, FrameError> {
        match (area, &self.scratch) {
            (0, _) => Ok(&self.region),
            (SCRATCH, Some(scratch)) => Ok(scratch),
            _ => Err(FrameError::ACCESS),
        }
    }

    fn watched_word(&self) -> u64 {
        fence(Ordering::Acquire);
        // The export has seen that it lies in the region.
        self.watched.and_then(|offset| self.region.load_relaxed(offset).ok()).unwrap_or_default()
    }

    /// Has a question answered on this thread, appends the reply, and says what it cost, in bytes.
    pub(super) fn answer(
        &self,
        memory: &mut ThreadMemory,
        head: &RequestHead,
        body: &[u8],
        out: &mut Output,
    ) -> usize {
        let mut refuse = |status| {
            out.push(ReplyHead { bytes: 0, tag: head.tag, status, word: 0 }, &[]);
            0
        };
        let Some(answers) = self.answers.as_ref().and_then(Weak::upgrade) else {
            return refuse(NOT_ANSWERED);
        };
        let Some((sum, question)) = body.split_first_chunk::<QUESTION_SUM_BYTES>() else {
            return refuse(DAMAGED);
        };
        if checksum(question) != u64::from_le_bytes(*sum) {
            return refuse(DAMAGED);
        }
        // Within the limit of a reply.
        let (before, most) = (out.used, head.entries as usize);
        let reply = out.take(2 + most);
        let Answered { words, cost } = answers.answer(memory, question, &mut reply[2..]);
        let words = words.min(most);
        let bytes = (words * 8) as u32;
        let word = checksum(reply[2..2 + words].as_bytes());
        reply[..2].copy_from_slice(&ReplyHead { bytes, tag: head.tag, status: SERVED, word }.encode());
        out.used = before + 2 + words;
        cost
    }

    /// Executes a batch that may change memory, in order, and appends the reply. What came before
    /// an entry that cannot be executed has been.
    pub(super) fn change(
        &self,
        head: &RequestHead,
        body: &[u8],
        reply_bytes: u32,
        out: &mut Output,
    ) -> Result<(), FrameError> {
        let (mut changes, mut bytes) = (Changes::of(head, body), 0usize);
        while let Some(change) = changes.next()? {
            bytes = bytes.saturating_add(change.reply_bytes());
        }
        if bytes as u64 > u64::from(reply_bytes) {
            return Err(FrameError::REPLY);
        }
        let before = out.used;
        let reply = out.take(2 + bytes / 8);
        let outcome = self.change_all(Changes::of(head, body), &mut reply[2..]);
        // The next batch's READs must not be older than this one's WRITEs.
        fence(Ordering::SeqCst);
        match outcome {
            Ok(()) => {
                let word = self.watched_word();
                let head = ReplyHead { bytes: bytes as u32, tag: head.tag, status: SERVED, word };
                reply[..2].copy_from_slice(&head.encode());
                Ok(())
            }
            Err(error) => {
                out.used = before;
                Err(error)
            }
        }
    }

    fn change_all(&self, mut changes: Changes<'_>, mut landing: &mut [u64]) -> Result<(), FrameError> {
        while let Some(change) = changes.next()? {
            let (out, rest) = landing.split_at_mut(change.reply_bytes() / 8);
            match change {
                Change::Read(entry) => self.copy(&entry, out)?,
                Change::Write(entry, bytes) => {
                    // Changes take effect in posting order: a reader that sees this one sees those
                    // before.
                    fence(Ordering::Release);
                    self.changeable(&entry)?.write_bytes(entry.offset, bytes)?;
                }
                Change::CompareSwap(entry, expected, new) => {
                    out[0] = self.changeable(&entry)?.compare_exchange(entry.offset, expected, new)?;
                }
            }
            landing = rest;
        }
        Ok(())
    }

    fn changeable(&self, entry: &ReadEntry) -> Result<&SharedMemory, FrameError> {
        match entry.area {
            SCRATCH => self.area(SCRATCH).and_then(|memory| match memory.access() {
                Access::ReadWrite => Ok(memory),
                Access::ReadOnly => Err(FrameError::ACCESS),
            }),
            _ => Err(FrameError::ACCESS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::frame::Kind;

    fn areas() -> Areas {
        let region = Arc::new(SharedMemory::anonymous(4096).unwrap());
        region.write_words(0, &(0..512).collect::<Vec<u64>>()).unwrap();
        let backed_end = region.share_backed_end();
        Areas {
            for_card: Arc::clone(&region),
            region,
            backed_end,
            watched: Some(40),
            lease: Duration::ZERO,
            scratch: None,
            answers: None,
        }
    }

    fn read(areas: &Areas, entries: &[ReadEntry], out: &mut Output) -> Result<(), FrameError> {
        let body: Vec<u8> = entries.iter().flat_map(ReadEntry::encode).collect();
        let entries = entries.len() as u32;
        areas.read(
            &RequestHead { bytes: body.len() as u32, entries, tag: 3, kind: Kind::Reads },
            &body,
            256,
            out,
        )
    }

    #[test]
    fn reads_land_one_after_another_with_the_watched_word_in_the_head() {
        let (areas, mut out) = (areas(), Output::default());
        let entry = |offset, len| ReadEntry { offset, len, area: 0, stride: 0 };
        read(&areas, &[entry(8, 8), entry(16, 3), entry(80, 16)], &mut out).unwrap();
        let head = ReplyHead { bytes: 32, tag: 3, status: SERVED, word: 5 };
        let expected = [&head.encode()[..], &[1, 2, 10, 11]].concat();
        assert_eq!(out.bytes(), expected.as_bytes());
        // A refused batch leaves no trace, and the buffer's old contents do not show.
        for bad in [entry(4096, 1), entry(u64::MAX, 8), entry(0, 264), ReadEntry { area: 1, ..entry(0, 8) }] {
            assert!(read(&areas, &[entry(0, 8), bad], &mut out).is_err());
            assert_eq!(out.len(), expected.len() * 8);
        }
        out.clear();
        read(&areas, &[ReadEntry { stride: 2, ..entry(8, 32) }, entry(0, 0)], &mut out).unwrap();
        assert_eq!(out.bytes()[16..], [1u64, 2, 3, 4].as_bytes()[..]);
        out.clear();
        out.push(head, b"abc");
        assert_eq!(out.bytes()[16..], *b"abc\0\0\0\0\0");
    }

    /// As memory is reused: the word first, then a fence, then what lies there. A client over a
    /// socket sees too few moments to find the order out.
    #[test]
    fn the_watched_word_is_loaded_after_the_reads_of_its_frame() {
        use std::sync::atomic::AtomicBool;
        let (areas, done) = (areas(), AtomicBool::new(false));
        let region = &areas.region;
        region.store_relaxed(2048, 0).unwrap();
        region.store_relaxed(40, 0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1u64.. {
                    region.store_relaxed(40, round).unwrap();
                    fence(Ordering::Release);
                    region.store_relaxed(2048, round).unwrap();
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let mut out = Output::default();
            let entry = ReadEntry { offset: 2048, len: 8, area: 0, stride: 0 };
            let too_early = (0..100_000).find_map(|_| {
                out.clear();
                read(&areas, &[entry], &mut out).ok()?;
                (out.words[1] < out.words[2]).then_some((out.words[1], out.words[2]))
            });
            // Also before the test fails.
            done.store(true, Ordering::Relaxed);
            assert_eq!(too_early, None, "the word was loaded before what was read");
        });
    }

    #[test]
    fn what_is_not_backed_is_zeros() {
        let (areas, mut out) = (areas(), Output::default());
        let entry = |offset, len, stride| ReadEntry { offset, len, area: 0, stride };
        // Records of two words are whole or zeros.
        let asked = [entry(56, 24, 0), entry(64, 8, 0), entry(60, 3, 0), entry(40, 32, 2), entry(24, 40, 0)];
        let words =
            |out: &Output| out.bytes()[16..].as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
        let read_up_to = |end, out: &mut Output| -> Vec<u64> {
            areas.region.set_backed_end(end);
            out.clear();
            read(&areas, &asked, out).unwrap();
            words(out)
        };
        assert_eq!(read_up_to(64, &mut out), [7, 0, 0, 0, 0, 5, 6, 0, 0, 3, 4, 5, 6, 7]);
        assert_eq!(read_up_to(0, &mut out), [0; 14]);
        assert_eq!(read_up_to(u64::MAX, &mut out)[..3], [7, 8, 9]);
        areas.region.set_backed_end(64);
        assert!(read(&areas, &[entry(4096, 8, 0)], &mut out).is_err(), "past the region is past the region");
    }

    /// The words of an earlier reply, to another client, were sent instead.
    #[test]
    fn records_that_no_guard_proves_show_nothing_of_earlier_replies() {
        const OLD: u64 = 0x01d0_1d01_d01d_01d0;
        let (areas, mut out) = (areas(), Output::default());
        let entry = |offset, stride| ReadEntry { offset, len: 32, area: 0, stride };
        let mut shows_old = |entry: ReadEntry, answer: &dyn Fn(&mut Output)| {
            out.clear();
            out.push(
                ReplyHead { bytes: 256, tag: 2, status: SERVED, word: OLD },
                &OLD.to_le_bytes().repeat(32),
            );
            out.clear();
            answer(&mut out);
            assert_eq!(out.len(), 6 * 8, "{entry:?}");
            out.words[..6].contains(&OLD)
        };
        for entry in [entry(4, 3), entry(8, 3), entry(4, 1 << 23), entry(4, 0)] {
            let reads = |out: &mut Output| read(&areas, &[entry], out).unwrap();
            assert!(!shows_old(entry, &reads), "{entry:?}");
            let mut body = Vec::new();
            Change::Read(entry).encode(&mut body);
            let head = RequestHead { bytes: body.len() as u32, entries: 1, tag: 3, kind: Kind::Changes };
            let changes = |out: &mut Output| areas.change(&head, &body, 256, out).unwrap();
            assert!(!shows_old(entry, &changes), "{entry:?} among changes");
        }
    }

    #[test]
    fn a_region_is_not_changed_and_what_came_before_has_run() {
        let scratch = Arc::new(SharedMemory::anonymous(4096).unwrap());
        let areas = Areas { scratch: Some(Arc::clone(&scratch)), ..areas() };
        let entry = |area| ReadEntry { offset: 8, len: 8, area, stride: 0 };
        let mut body = Vec::new();
        Change::CompareSwap(entry(SCRATCH), 0, 7).encode(&mut body);
        Change::CompareSwap(entry(0), 1, 7).encode(&mut body);
        let head = RequestHead { bytes: body.len() as u32, entries: 2, tag: 3, kind: Kind::Changes };
        let mut out = Output::default();
        assert_eq!(areas.change(&head, &body, 256, &mut out), Err(FrameError::ACCESS));
        assert_eq!((scratch.load_relaxed(8), areas.region.load_relaxed(8), out.len()), (Ok(7), Ok(1), 0));
    }
}
