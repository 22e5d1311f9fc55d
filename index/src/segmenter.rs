//! The segmenter, which cuts an ascending stream of coordinates into pieces.

use crate::plr::{Fitter, Slope};
use thiserror::Error;

/// How segments are cut and filled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SegmentOptions {
    /// Largest distance of a key's slot from its prediction, in slots; at most 65,535. A window has
    /// 2ε + 1 slots.
    pub epsilon: u32,
    /// Least ε that is stored with a segment, where [`Self::epsilon`] is not below it: the keys'
    /// true ε leaves windows only as wide as the keys at hand need, and later keys find them full.
    pub least_epsilon: u32,
    /// Share of a new segment's slots that hold keys, above 0 and at most 1; the rest is free for
    /// inserts.
    pub fill: f64,
    /// Most slots a segment may have.
    pub max_slots: u16,
    /// Spread keys evenly over the slots, as far as their windows allow, instead of putting as many
    /// as possible into the slots their predictions name.
    pub spread: bool,
}

impl Default for SegmentOptions {
    /// ε 32, stored no wider than the keys need, fill 0.85, at most 4,096 slots.
    fn default() -> Self {
        Self { epsilon: 32, least_epsilon: 0, fill: 0.85, max_slots: 4096, spread: false }
    }
}

impl SegmentOptions {
    /// Checks every option.
    ///
    /// # Errors
    /// The first option out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.epsilon > u32::from(u16::MAX) {
            return Err(OptionsError::Epsilon { epsilon: self.epsilon });
        }
        if !(self.fill > 0.0 && self.fill <= 1.0) {
            return Err(OptionsError::Fill { fill: self.fill });
        }
        if self.max_keys() == 0 {
            return Err(OptionsError::MaxSlots { max_slots: self.max_slots, fill: self.fill });
        }
        Ok(())
    }

    /// Most keys a new segment may hold: `floor(max_slots * fill)`.
    pub fn max_keys(&self) -> usize {
        // Float-to-integer casts saturate and take NaN to 0.
        (f64::from(self.max_slots) * self.fill).min(f64::from(self.max_slots)) as usize
    }
}

/// A segment option is out of range.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// ε does not fit a model.
    #[error("epsilon {epsilon} does not fit a segment model; choose one of at most 65535")]
    Epsilon {
        /// The ε asked for.
        epsilon: u32,
    },
    /// The fill is no share.
    #[error("fill {fill} is not a share of the slots; choose one above 0 and at most 1")]
    Fill {
        /// The fill asked for.
        fill: f64,
    },
    /// No key fits a segment.
    #[error("a segment of {max_slots} slots at fill {fill} holds no key; raise the slots or the fill")]
    MaxSlots {
        /// The cap asked for.
        max_slots: u16,
        /// The fill asked for.
        fill: f64,
    },
}

/// A key is not above the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "key {key} at position {position} does not ascend (the key before it is {previous}); sort the keys and \
     resolve duplicates first"
)]
pub struct NotAscending {
    /// Position of the offending key in the stream, from 0.
    pub position: u64,
    /// The key before it.
    pub previous: u64,
    /// The offending key.
    pub key: u64,
}

/// Consecutive keys whose ranks one line predicts within ε: what a [`Segmenter`] cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Number of keys, from where the piece before ended.
    pub keys: usize,
    /// First key.
    pub first: u64,
    /// Slopes of the two extreme lines that serve the keys, in ranks per unit; every slope between
    /// them has a line.
    pub(crate) flattest: Slope,
    pub(crate) steepest: Slope,
}

impl Piece {
    /// Its first keys alone, at most as many as it has: a line that serves all of them serves
    /// these.
    #[must_use]
    pub fn shortened(self, keys: usize) -> Self {
        Self { keys: keys.min(self.keys), ..self }
    }

    /// The piece of keys `2^shift` times as far apart, the first of which is `first`; runs beyond
    /// 64 bits become flatter.
    #[must_use]
    pub fn stretched(self, first: u64, shift: u32) -> Self {
        let stretch = |slope: Slope| {
            let run = u128::from(slope.run) << shift.min(64);
            Slope { run: u64::try_from(run).unwrap_or(u64::MAX), ..slope }
        };
        Self { first, flattest: stretch(self.flattest), steepest: stretch(self.steepest), ..self }
    }
}

/// Cuts an ascending stream of coordinates into the minimum number of pieces, in one pass.
///
/// A piece is closed when no line predicts the ranks of its keys and the next one within ε, or when
/// it holds [`SegmentOptions::max_keys`]. O(1) amortised per key; memory is O(keys of the open
/// piece) at worst, a few dozen points on real keys. About 26 ns per key at ε 64 on keys like `fb`;
/// 34 ns on uniform keys, whose pieces have longer hulls (`benches/segments.rs`). Source: O'Rourke
/// (CACM 24(9), 1981) and Xie et al. (VLDB Journal 23(6), 2014).
#[derive(Clone, Debug)]
pub struct Segmenter {
    fitter: Fitter,
    max_keys: u64,
    order: OrderCheck,
}

impl Segmenter {
    /// A segmenter without keys.
    ///
    /// # Errors
    /// An option out of range.
    pub fn new(options: SegmentOptions) -> Result<Self, OptionsError> {
        options.validate()?;
        Ok(Self::with_limit(options.epsilon, options.max_keys() as u64))
    }

    pub(crate) fn with_limit(epsilon: u32, max_keys: u64) -> Self {
        Self { fitter: Fitter::new(epsilon), max_keys, order: OrderCheck::default() }
    }

    /// Adds the next key. A piece that is returned was closed *before* `x`, which opens the next
    /// one.
    ///
    /// # Errors
    /// [`NotAscending`]; the segmenter is as if the key had not been pushed.
    #[inline(always)]
    pub fn push(&mut self, x: u64) -> Result<Option<Piece>, NotAscending> {
        self.order.check(x)?;
        Ok(self.add(x))
    }

    /// Adds the next coordinate, which may equal the one before: coordinates of byte strings need
    /// not tell all keys apart. Costs a few nanoseconds more than [`Self::push`].
    ///
    /// Up to 2ε + 1 equal coordinates fit a piece, which may begin or end between two of them.
    ///
    /// # Errors
    /// [`NotAscending`], if `x` is *below* the one before; the segmenter is as if it had not been
    /// pushed.
    #[inline]
    pub fn push_or_equal(&mut self, x: u64) -> Result<Option<Piece>, NotAscending> {
        let equals = self.order.check_or_equal(x)?;
        Ok(self.add_or_equal(x, equals))
    }

    /// Adds a coordinate, not below the one before, and whether it equals that one.
    #[inline]
    pub(crate) fn add_or_equal(&mut self, x: u64, equals: bool) -> Option<Piece> {
        if !equals {
            return self.add(x);
        }
        let keys = self.fitter.keys();
        if keys != 0 && keys < self.max_keys && self.fitter.extend_equal(x) { None } else { self.reopen(x) }
    }

    /// Adds a key that is known to be above the one before.
    #[inline(always)]
    pub(crate) fn add(&mut self, x: u64) -> Option<Piece> {
        // The piece is returned through memory: inlined, keys that close none, nearly all, do
        // without.
        if self.grow(x) { None } else { self.reopen(x) }
    }

    /// Adds a key to the open piece, if there is one and it can take the key; says whether.
    #[inline(never)]
    fn grow(&mut self, x: u64) -> bool {
        let keys = self.fitter.keys();
        keys != 0 && keys < self.max_keys && self.fitter.extend(x)
    }

    #[cold]
    fn reopen(&mut self, x: u64) -> Option<Piece> {
        let closed = self.close();
        self.fitter.restart(x);
        closed
    }

    /// Closes the open piece; `None` if no key was pushed. The segmenter starts afresh: any key may
    /// follow.
    pub fn finish(&mut self) -> Option<Piece> {
        let closed = self.close();
        self.fitter.clear();
        self.order = OrderCheck::default();
        closed
    }

    fn close(&self) -> Option<Piece> {
        let (flattest, steepest) = self.fitter.slopes();
        // A piece's keys were counted one by one, so they fit the address space of a machine that
        // could push them.
        let keys = usize::try_from(self.fitter.keys()).unwrap_or(usize::MAX);
        (keys != 0).then(|| Piece { keys, first: self.fitter.first(), flattest, steepest })
    }
}

/// Watches that keys ascend.
#[derive(Clone, Copy, Default, Debug)]
struct OrderCheck {
    position: u64,
    previous: u64,
}

impl OrderCheck {
    #[inline]
    fn check(&mut self, key: u64) -> Result<(), NotAscending> {
        if key <= self.previous && self.position != 0 {
            return Err(NotAscending { position: self.position, previous: self.previous, key });
        }
        self.previous = key;
        self.position += 1;
        Ok(())
    }

    /// Whether the key equals the one before.
    #[inline]
    fn check_or_equal(&mut self, key: u64) -> Result<bool, NotAscending> {
        if key == self.previous && self.position != 0 {
            self.position += 1;
            return Ok(true);
        }
        self.check(key).map(|()| false)
    }
}

/// The minimum number of lines that predict the ranks of `xs` within `epsilon` ranks, without a cap
/// on a line's keys.
///
/// One pass, O(1) amortised per key: the measure by which key sets are called easy or hard.
///
/// # Errors
/// [`NotAscending`]: a key is not above the one before.
pub fn count_segments(xs: impl IntoIterator<Item = u64>, epsilon: u32) -> Result<u64, NotAscending> {
    let mut segmenter = Segmenter::with_limit(epsilon, u64::MAX);
    let mut segments = 0;
    for x in xs {
        segments += u64::from(segmenter.push(x)?.is_some());
    }
    Ok(segments + u64::from(segmenter.finish().is_some()))
}
