//! The cutter, which cuts a stream of keys into segments.

use std::sync::Arc;

use thiserror::Error;

use super::KeyEncoder;
use super::prefix::{MAX_KEY_BYTES, common_prefix, separator};
use super::skip_runs::{Accept, Finder, Keys};
use crate::{Line, OptionsError, Piece, PlacedSegment, SegmentModel, SegmentOptions, Segmenter};

/// A segment of a byte-string table, ready to be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StringSegment {
    /// First string of its range, which ends where the next segment's begins.
    pub start: Box<[u8]>,
    /// Bytes of `start` that all its keys share and that are not coded.
    pub skip: u16,
    /// The model over coordinates `encoder.code(key, skip)`, and the slots of its keys.
    pub placed: PlacedSegment,
}

/// Why keys are refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StringsError {
    /// A key is not above the one before.
    #[error(
        "key \"{key}\" at position {position} does not ascend (the key before it is \"{previous}\"); sort the keys by \
         their bytes and resolve duplicates first"
    )]
    NotAscending {
        /// Position of the offending key in the stream, from 0.
        position: u64,
        /// The beginning of the key before it, escaped.
        previous: String,
        /// The beginning of the offending key, escaped.
        key: String,
    },
    /// A key is empty or too long.
    #[error("the key at position {position} has {bytes} bytes; keys have 1 to {MAX_KEY_BYTES}")]
    Length {
        /// Position of the offending key in the stream, from 0.
        position: u64,
        /// Its bytes.
        bytes: usize,
    },
}

/// Cuts an ascending stream of keys into the fewest segments whose lines predict ranks within ε,
/// and places their keys.
///
/// Segments come in key order and cover all strings; the first one's range begins with the empty
/// string. Where the keys share many bytes the first segment is an empty one, for the range below
/// them: it cannot skip what its separator lacks. The caller keeps the records: each segment takes
/// [`PlacedSegment::keys`] of them from where the one before ended.
///
/// Holds at most [`SegmentOptions::max_keys`] keys and as many again, or 1,024. About 100 ns per
/// key, the placement included, 150 for long keys (`benches/strings.rs`).
#[derive(Clone, Debug)]
pub struct Cutter {
    max_keys: usize,
    /// Keys that are not in a segment yet, one after the other, where each begins, and how many
    /// bytes it shares with the one before.
    bytes: Vec<u8>,
    starts: Vec<usize>,
    shared: Vec<u16>,
    /// Last key of the segments so far.
    last: Option<Vec<u8>>,
    position: u64,
    shaper: Shaper,
}

/// The part that makes segments of keys.
#[derive(Clone, Debug)]
struct Shaper {
    options: SegmentOptions,
    encoder: Arc<KeyEncoder>,
    finder: Finder,
    fit: Fit,
    segments: Vec<StringSegment>,
}

impl Cutter {
    /// A cutter without keys.
    ///
    /// # Errors
    /// An option out of range.
    pub fn new(options: SegmentOptions, encoder: Arc<KeyEncoder>) -> Result<Self, OptionsError> {
        let fit = Fit { segmenter: Segmenter::new(options)?, closed: None };
        Ok(Self {
            max_keys: options.max_keys(),
            bytes: Vec::new(),
            starts: Vec::new(),
            shared: Vec::new(),
            last: None,
            position: 0,
            shaper: Shaper {
                options,
                encoder,
                finder: Finder::new(0, options.epsilon),
                fit,
                segments: Vec::new(),
            },
        })
    }

    /// Adds the next key.
    ///
    /// # Errors
    /// A key that is not above the one before, empty, or longer than [`MAX_KEY_BYTES`]; the cutter
    /// is as if it had not been pushed.
    pub fn push(&mut self, key: &[u8]) -> Result<(), StringsError> {
        let position = self.position;
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(StringsError::Length { position, bytes: key.len() });
        }
        let before = match self.starts.last() {
            Some(start) => Some(&self.bytes[*start..]),
            None => self.last.as_deref(),
        };
        let shared = before.map_or(0, |before| common_prefix(before, key));
        if let Some(before) = before
            && before.get(shared) >= key.get(shared)
        {
            let (previous, key) = (excerpt(before), excerpt(key));
            return Err(StringsError::NotAscending { position, previous, key });
        }
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(key);
        // At most 4,096.
        self.shared.push(shared as u16);
        self.position += 1;
        if self.starts.len() > self.max_keys + self.max_keys.max(1024) {
            // With this many in reserve no segment ends for want of keys.
            self.cut(self.max_keys);
        }
        Ok(())
    }

    /// Cuts the keys that are left. The cutter starts afresh: any key may follow, for another
    /// table.
    pub fn finish(&mut self) {
        self.cut(0);
        self.last = None;
        self.position = 0;
    }

    /// Takes the segments that are ready, in key order.
    pub fn drain(&mut self) -> std::vec::Drain<'_, StringSegment> {
        self.shaper.segments.drain(..)
    }

    /// Cuts segments while more than `reserve` keys are left.
    fn cut(&mut self, reserve: usize) {
        let ends = self.starts.iter().skip(1).copied().chain([self.bytes.len()]);
        let slices: Vec<&[u8]> =
            self.starts.iter().zip(ends).map(|(start, end)| &self.bytes[*start..end]).collect();
        let keys = Keys { keys: &slices, shared: &self.shared };
        let mut cut = 0;
        let mut last = self.last.as_deref();
        while slices.len() - cut > reserve {
            cut += self.shaper.cut_one(last, keys.from(cut));
            last = Some(slices[cut - 1]);
        }
        self.last = last.map(<[u8]>::to_vec);
        let bytes = self.starts.get(cut).copied().unwrap_or(self.bytes.len());
        self.bytes.drain(..bytes);
        self.starts.drain(..cut);
        self.starts.iter_mut().for_each(|start| *start -= bytes);
        self.shared.drain(..cut);
    }
}

impl Shaper {
    /// Makes segments of the longest run from the first key on, after the key `last`; returns its
    /// keys.
    fn cut_one(&mut self, last: Option<&[u8]>, keys: Keys<'_>) -> usize {
        let (run, front) = match last {
            Some(_) => (self.finder.longest(keys, usize::MAX, &self.encoder, &mut self.fit), false),
            None => self.finder.first(keys, 0, &self.encoder, &mut self.fit),
        };
        if front {
            self.segments.push(StringSegment::empty(&self.options));
        }
        let lowest = last.is_none() && !front;
        let mut first = 0;
        for placed in run.found.place(&run.xs, &self.options) {
            let start = match (first, last) {
                (0, _) if lowest => &[],
                (0, _) => separator(last.unwrap_or_default(), keys.keys[0], run.skip),
                _ => separator(keys.keys[first - 1], keys.keys[first], run.skip),
            };
            first += placed.keys;
            // No longer than a key.
            self.segments.push(StringSegment { start: start.into(), skip: run.skip as u16, placed });
        }
        first
    }
}

impl StringSegment {
    /// A segment without keys for the range from the empty string on.
    fn empty(options: &SegmentOptions) -> Self {
        // At most 16, and all in reach of the first slot.
        let epsilon = options.epsilon.min(15) as u16;
        let cap = options.max_slots.min(epsilon + 1);
        let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap, epsilon };
        Self { start: Box::default(), skip: 0, placed: PlacedSegment { model, keys: 0, slots: Vec::new() } }
    }
}

/// Takes coordinates as long as a line serves them.
#[derive(Clone, Debug)]
struct Fit {
    segmenter: Segmenter,
    closed: Option<Piece>,
}

impl Accept for Fit {
    type Found = Piece;

    fn restart(&mut self) {
        self.segmenter.finish();
        self.closed = None;
    }

    #[inline]
    fn accept(&mut self, x: u64, equals: bool) -> bool {
        self.closed = self.segmenter.add_or_equal(x, equals);
        self.closed.is_none()
    }

    fn found(&mut self) -> Piece {
        let piece = self.closed.take().or_else(|| self.segmenter.finish());
        piece.expect("a run has a key")
    }
}

/// The beginning of a key, for people.
fn excerpt(key: &[u8]) -> String {
    const SHOWN: usize = 48;
    let more = if key.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", key[..key.len().min(SHOWN)].escape_ascii())
}
