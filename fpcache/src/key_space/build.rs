//! The building of a table's segments from keys: the memory node's side of a key space.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use fpcache_index::strings::{self, KeyEncoder, StringsError, Training, partition};
use fpcache_index::{NotAscending, OptionsError, PlacedSegment, SegmentOptions, Segmenter};

use super::{ByteKeys, ByteTail, KeyEncoders, KeySpace, U64Keys};

/// A segment cut from a stream of keys.
#[derive(Clone, Debug)]
pub struct CutSegment<K: KeySpace> {
    /// First key of its range, which ends where the next segment's begins.
    pub start: K::Owned,
    /// The data that coordinates depend on beside the key.
    pub tail: K::Tail,
    /// Its model, and the slots of its keys, which are the next of the stream.
    pub placed: PlacedSegment,
}

/// Neighbouring keys whose segments have the same tail.
#[derive(Clone, Debug)]
pub struct Division<K: KeySpace> {
    /// The keys, by their place among all.
    pub keys: Range<usize>,
    /// Where their range begins.
    pub start: K::Owned,
    /// The tail of their segments.
    pub tail: K::Tail,
}

/// Two neighbouring segments that are planned, between which a boundary is wanted.
#[derive(Clone, Copy, Debug)]
pub struct BoundaryRequest<'a, K: KeySpace> {
    /// First coordinate of the second one.
    pub x: u64,
    /// The last key below, or the beginning of the first one's range if it has none: the boundary
    /// must lie above.
    pub below: &'a K::Key,
    /// The first key after that has their tail, if there is one: the boundary must not lie above.
    pub next: Option<&'a K::Key>,
    /// Where the range ends of segments that have their tail: the boundary must lie below.
    pub end: Option<&'a K::Key>,
    /// Where in between.
    pub wanted: Boundary,
    /// The tail of both.
    pub tail: K::Tail,
}

/// Where between two keys a boundary is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Wherever it is shortest.
    Anywhere,
    /// Right after the key below: what lies between the keys is the second segment's.
    RightAfter,
    /// At its coordinate: slots of one of the segments are kept for keys to come.
    AtCoordinate,
}

/// Keys that cannot be taken as the next ones of a load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Integers out of order.
    #[error(transparent)]
    Integers(#[from] NotAscending),
    /// Byte strings out of order, or of a length that no key has.
    #[error(transparent)]
    Strings(#[from] StringsError),
}

/// A key space whose tables can be built.
pub trait BuildKeys: KeySpace {
    /// Cuts an ascending stream of keys into segments.
    type Cutter: Debug + Send;

    /// A cutter without keys.
    ///
    /// # Errors
    /// An option out of range.
    fn cutter(options: SegmentOptions, encoders: &Self::Encoders) -> Result<Self::Cutter, OptionsError>;

    /// Adds the next key. Segments that are complete now are appended to `cut`.
    ///
    /// # Errors
    /// [`OrderError`]; the cutter is as if the key had not been pushed.
    fn push(
        cutter: &mut Self::Cutter,
        key: &Self::Key,
        cut: &mut Vec<CutSegment<Self>>,
    ) -> Result<(), OrderError>;

    /// Cuts the keys that are left.
    fn finish(cutter: &mut Self::Cutter, cut: &mut Vec<CutSegment<Self>>);

    /// Divides the ascending keys of a range that begins with `start` into such as can have
    /// segments of one tail. There is at least one division; the first begins with `start` and may
    /// hold no keys.
    fn divide(
        keys: &[&Self::Key],
        start: &Self::Key,
        encoders: &Self::Encoders,
        epsilon: u32,
    ) -> Vec<Division<Self>>;

    /// The first and the last coordinate that keys of a range can have which share what segments of
    /// this tail skip.
    fn coordinates_of(
        start: &Self::Key,
        end: Option<&Self::Key>,
        tail: Self::Tail,
        encoders: &Self::Encoders,
    ) -> (u64, u64);

    /// Where the range of the second of two segments begins. `None` if nothing parts them, which
    /// cannot be if a key lies on either side.
    fn boundary(between: &BoundaryRequest<'_, Self>, encoders: &Self::Encoders) -> Option<Self::Owned>;

    /// The encoder for a table of `table_keys` keys of which these are a sample, in order; 0: these
    /// are all.
    fn train<'k>(sample: impl IntoIterator<Item = &'k Self::Key>, table_keys: u64) -> Self::Encoders;

    /// The encoders of a table of about `table_keys` keys and another one, trained on these runs of
    /// neighbouring keys, which must be in order; `None` if the newest there is makes hardly more
    /// segments of them, or there is no room for more. Some milliseconds for ten thousand keys.
    fn learn(
        encoders: &Self::Encoders,
        runs: &[Vec<Self::Owned>],
        options: SegmentOptions,
        table_keys: u64,
    ) -> Option<Self::Encoders> {
        let _ = (encoders, runs, options, table_keys);
        None
    }

    /// Whether the table's encoders were made for its keys.
    fn is_trained(encoders: &Self::Encoders) -> bool {
        let _ = encoders;
        true
    }

    /// Whether segments may have been built with another encoder than the newest.
    fn has_outdated(encoders: &Self::Encoders) -> bool {
        let _ = encoders;
        false
    }

    /// Whether segments of this tail were built with another encoder than the newest.
    fn is_outdated(encoders: &Self::Encoders, tail: Self::Tail) -> bool {
        let _ = (encoders, tail);
        false
    }

    /// Whether a key can be in a table of this key space.
    ///
    /// # Errors
    /// In words, why not.
    fn check(key: &Self::Key) -> Result<(), String>;
}

/// Cuts integers.
#[derive(Debug)]
pub struct IntegerCutter {
    segmenter: Segmenter,
    options: SegmentOptions,
    xs: Vec<u64>,
    is_first: bool,
}

impl IntegerCutter {
    fn place(&mut self, piece: &fpcache_index::Piece, cut: &mut Vec<CutSegment<U64Keys>>) {
        let mut first = 0;
        for placed in piece.place(&self.xs, &self.options) {
            // The first segment owns every key below its own, too.
            let start = if std::mem::take(&mut self.is_first) { 0 } else { self.xs[first] };
            first += placed.keys;
            cut.push(CutSegment { start, tail: (), placed });
        }
        self.xs.clear();
    }
}

impl BuildKeys for U64Keys {
    type Cutter = IntegerCutter;

    fn cutter(options: SegmentOptions, (): &()) -> Result<IntegerCutter, OptionsError> {
        Ok(IntegerCutter { segmenter: Segmenter::new(options)?, options, xs: Vec::new(), is_first: true })
    }

    #[inline]
    fn push(
        cutter: &mut IntegerCutter,
        key: &u64,
        cut: &mut Vec<CutSegment<Self>>,
    ) -> Result<(), OrderError> {
        if let Some(piece) = cutter.segmenter.push(*key)? {
            cutter.place(&piece, cut);
        }
        cutter.xs.push(*key);
        Ok(())
    }

    fn finish(cutter: &mut IntegerCutter, cut: &mut Vec<CutSegment<Self>>) {
        if let Some(piece) = cutter.segmenter.finish() {
            cutter.place(&piece, cut);
        }
    }

    fn divide(keys: &[&u64], start: &u64, (): &(), _: u32) -> Vec<Division<Self>> {
        vec![Division { keys: 0..keys.len(), start: *start, tail: () }]
    }

    fn coordinates_of(start: &u64, end: Option<&u64>, (): (), (): &()) -> (u64, u64) {
        (*start, end.map_or(u64::MAX, |end| end - 1))
    }

    fn boundary(between: &BoundaryRequest<'_, Self>, (): &()) -> Option<u64> {
        Some(between.x)
    }

    fn train<'k>(_: impl IntoIterator<Item = &'k u64>, _: u64) {}

    fn check(_: &u64) -> Result<(), String> {
        Ok(())
    }
}

/// A string after `prefix` whose coordinate is `x` or little less, the prefix skipped; `None` if no
/// string's is so great. A few microseconds.
fn string_at(x: u64, prefix: &[u8], encoder: &KeyEncoder) -> Option<Vec<u8>> {
    /// Bytes after the prefix: more than coordinates take.
    const MOST: usize = 16;
    let skip = prefix.len();
    let most = (skip + MOST).min(ByteKeys::MAX_KEY_BYTES);
    let mut string = prefix.to_vec();
    while x <= KeyEncoder::MAX_CODE && string.len() < most && encoder.code(&string, skip) < x {
        let at = string.len();
        string.push(0);
        // Coordinates do not decrease with the last byte: the greatest that does not go beyond.
        let (mut fits, mut beyond) = (None, 256);
        while fits.map_or(0, |byte| byte + 1) < beyond {
            let byte = (fits.map_or(0, |byte| byte + 1) + beyond) / 2;
            string[at] = byte as u8;
            if encoder.code(&string, skip) <= x { fits = Some(byte) } else { beyond = byte }
        }
        match fits {
            Some(byte) => string[at] = byte as u8,
            None => {
                string.pop();
                break;
            }
        }
    }
    (x <= KeyEncoder::MAX_CODE).then_some(string)
}

/// Cuts byte strings.
#[derive(Debug)]
pub struct StringCutter {
    cutter: strings::Cutter,
    encoder: u8,
}

impl StringCutter {
    fn take(&mut self, cut: &mut Vec<CutSegment<ByteKeys>>) {
        let encoder = self.encoder;
        cut.extend(self.cutter.drain().map(|segment| CutSegment {
            start: segment.start.into_vec(),
            tail: ByteTail { skip: segment.skip, encoder },
            placed: segment.placed,
        }));
    }
}

impl BuildKeys for ByteKeys {
    type Cutter = StringCutter;

    fn cutter(options: SegmentOptions, encoders: &KeyEncoders) -> Result<StringCutter, OptionsError> {
        let number = encoders.newest();
        let encoder = encoders.get(number).cloned().unwrap_or_else(|| Arc::new(KeyEncoder::plain()));
        Ok(StringCutter { cutter: strings::Cutter::new(options, encoder)?, encoder: number })
    }

    fn push(
        cutter: &mut StringCutter,
        key: &[u8],
        cut: &mut Vec<CutSegment<Self>>,
    ) -> Result<(), OrderError> {
        cutter.cutter.push(key)?;
        cutter.take(cut);
        Ok(())
    }

    fn finish(cutter: &mut StringCutter, cut: &mut Vec<CutSegment<Self>>) {
        cutter.cutter.finish();
        cutter.take(cut);
    }

    fn divide(keys: &[&[u8]], start: &[u8], encoders: &KeyEncoders, epsilon: u32) -> Vec<Division<Self>> {
        let encoder = encoders.newest();
        let Some(by) = encoders.get(encoder) else {
            return vec![Division {
                keys: 0..keys.len(),
                start: start.to_vec(),
                tail: ByteTail { skip: 0, encoder },
            }];
        };
        let parts = partition(keys, start, by, epsilon);
        let division = |part: strings::SkipPart| Division {
            keys: part.keys,
            start: part.start.into_vec(),
            tail: ByteTail { skip: part.skip, encoder },
        };
        parts.into_iter().map(division).collect()
    }

    fn coordinates_of(
        start: &[u8],
        end: Option<&[u8]>,
        tail: ByteTail,
        encoders: &KeyEncoders,
    ) -> (u64, u64) {
        let skip = usize::from(tail.skip);
        let Some(encoder) = encoders.get(tail.encoder) else { return (0, u64::MAX) };
        let end = end.filter(|end| strings::common_prefix(start, end) >= skip);
        (encoder.code(start, skip), end.map_or(KeyEncoder::MAX_CODE, |end| encoder.code(end, skip)))
    }

    fn boundary(between: &BoundaryRequest<'_, Self>, encoders: &KeyEncoders) -> Option<Vec<u8>> {
        let BoundaryRequest { x, below, next, end, wanted, tail } = *between;
        let skip = usize::from(tail.skip);
        let limit = next.or(end);
        if limit.is_some_and(|limit| limit <= below) {
            return None;
        }
        let shortest = || next.map(|next| strings::separator(below, next, skip).to_vec());
        match wanted {
            Boundary::Anywhere => shortest(),
            Boundary::RightAfter => Self::successor(below),
            Boundary::AtCoordinate => {
                let at =
                    encoders.get(tail.encoder).and_then(|encoder| string_at(x, below.get(..skip)?, encoder));
                let parts =
                    |at: &Vec<u8>| at.as_slice() > below && limit.is_none_or(|limit| at.as_slice() < limit);
                at.filter(parts).or_else(shortest)
            }
        }
    }

    fn train<'k>(sample: impl IntoIterator<Item = &'k [u8]>, table_keys: u64) -> KeyEncoders {
        KeyEncoders::of(KeyEncoder::train(sample, &Training { table_keys, ..Training::default() }))
    }

    fn learn(
        encoders: &KeyEncoders,
        runs: &[Vec<Vec<u8>>],
        options: SegmentOptions,
        table_keys: u64,
    ) -> Option<KeyEncoders> {
        let sample = runs.iter().flatten().map(Vec::as_slice);
        let more =
            encoders.and(KeyEncoder::train(sample, &Training { table_keys, ..Training::default() }))?;
        let (before, after) = (segments_of(runs, options, encoders)?, segments_of(runs, options, &more)?);
        (after * 4 <= before * 3).then_some(more)
    }

    fn is_trained(encoders: &KeyEncoders) -> bool {
        encoders.get(encoders.newest()).is_some_and(|newest| newest.encode() != KeyEncoder::plain().encode())
    }

    fn has_outdated(encoders: &KeyEncoders) -> bool {
        encoders.len() > 1
    }

    fn is_outdated(encoders: &KeyEncoders, tail: ByteTail) -> bool {
        tail.encoder != encoders.newest()
    }

    fn check(key: &[u8]) -> Result<(), String> {
        match key.len() {
            1..=Self::MAX_KEY_BYTES => Ok(()),
            len => Err(format!("a key of {len} bytes: keys have 1 to {}", Self::MAX_KEY_BYTES)),
        }
    }
}

/// Segments that the newest encoder makes of runs of keys; `None` if one is not in order.
fn segments_of(runs: &[Vec<Vec<u8>>], options: SegmentOptions, encoders: &KeyEncoders) -> Option<usize> {
    let mut segments = 0;
    for run in runs {
        let (mut cutter, mut cut) = (ByteKeys::cutter(options, encoders).ok()?, Vec::new());
        for key in run {
            ByteKeys::push(&mut cutter, key, &mut cut).ok()?;
        }
        ByteKeys::finish(&mut cutter, &mut cut);
        segments += cut.len();
    }
    Some(segments)
}

#[cfg(test)]
mod tests;
