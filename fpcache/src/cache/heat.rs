//! The heat of segments: decayed counts of sampled accesses (FPCache, §3.3).

use std::collections::TryReserveError;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU64};

use super::exact_allocation::collected;
use super::handle::CacheHandle;
use super::probe::CacheProbe;

/// One access in this many is counted.
const SAMPLING: u64 = 16;
/// Samples a handle takes between two ticks of the clock.
const SAMPLES_PER_TICK: u32 = 256;
/// Samples per counter in an epoch; counts halve from one epoch to the next, so a segment of
/// average heat has about twice as many.
const SAMPLES_PER_EPOCH: u64 = 8;
/// Bits of a counter below its epoch.
const COUNT_BITS: u32 = 12;
/// The greatest count in them.
const MAX_COUNT: u32 = (1 << COUNT_BITS) - 1;
/// Segments of some 170 short records are about this power of two long, in bytes.
const TYPICAL_SEGMENT_BITS: u32 = 12;
/// Fixed-point bits of logarithms.
const FRACTION_BITS: u32 = 8;
/// A factor of two in the logarithms heat is told in.
pub(super) const OCTAVE: i64 = 1 << FRACTION_BITS;
/// Bits of the running mean below those: it forgets over 256 of the misses it samples.
const MEAN_BITS: u32 = 8;

/// Decayed access counts per segment: 4 bits of epoch above 12 bits of count.
///
/// A counter found in an earlier epoch has lost half its count for every epoch since, up to 15; one
/// left untouched for longer looks younger than it is, which costs an admission at most. Where
/// there are more segments than counters, neighbours in the region share one, since hot segments
/// often lie together. Counts are stored, not added atomically: where two threads count at once,
/// one sample is lost.
#[derive(Debug)]
pub(super) struct SegmentHeat {
    counters: Box<[AtomicU16]>,
    ticks_per_epoch: u64,
    /// Segments whose addresses agree above this bit share a counter.
    neighbours: u32,
    pulse: Pulse,
}

/// Counters that all handles write now and then, away from what they read all the time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Pulse {
    /// Samples of all handles, in ticks.
    ticks: AtomicU64,
    /// Running mean of the logarithm of what was learned, fixed point; 0 before the first.
    mean: AtomicU64,
}

impl SegmentHeat {
    /// Bytes of `counters` counters.
    pub(super) const fn size(counters: usize) -> usize {
        counters * size_of::<AtomicU16>()
    }

    /// `counters` counters for a table of `segments` segments.
    pub(super) fn new(counters: usize, segments: u64) -> Result<Self, TryReserveError> {
        let crowd = (segments / (counters as u64).max(1)).max(1).ilog2();
        // An address has 64 bits.
        let crowded = (TYPICAL_SEGMENT_BITS + crowd).min(u64::BITS - 1);
        let samples = counters as u64 * SAMPLES_PER_EPOCH;
        Ok(Self {
            counters: collected(counters, AtomicU16::default)?,
            ticks_per_epoch: (samples / u64::from(SAMPLES_PER_TICK)).max(1),
            neighbours: if segments > counters as u64 { crowded } else { 0 },
            pulse: Pulse::default(),
        })
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        Self::size(self.counters.len())
    }

    /// Counts an access to the key's segment, if chance picks it. Nothing without counters.
    #[inline]
    pub(super) fn touch(&self, probe: &CacheProbe, handle: &mut CacheHandle, chance: u64) {
        if chance.is_multiple_of(SAMPLING) && !self.counters.is_empty() {
            self.sample(probe, handle);
        }
    }

    #[inline(never)]
    fn sample(&self, probe: &CacheProbe, handle: &mut CacheHandle) {
        handle.samples += 1;
        if handle.samples >= SAMPLES_PER_TICK {
            handle.samples = 0;
            self.pulse.ticks.fetch_add(1, Relaxed);
        }
        let Some(counter) = self.counter(probe) else { return };
        let epoch = self.epoch();
        let count = decayed(counter.load(Relaxed), epoch);
        let step = step(count);
        if count + step <= MAX_COUNT && handle.bits() >> 32 & u64::from(step - 1) == 0 {
            counter.store((epoch << COUNT_BITS | (count + step)) as u16, Relaxed);
        }
    }

    /// How a miss's heat compares with that of misses in general, as the logarithm of their
    /// quotient: decayed count of the segment times `miss_bytes`. The mean is of logarithms,
    /// because a few segments are much hotter than all others, and of misses, because what is
    /// cached already needs no comparison. 0 without counters.
    #[inline]
    pub(super) fn warmth(&self, probe: &CacheProbe, miss_bytes: u32, chance: u64) -> i64 {
        let Some(counter) = self.counter(probe) else { return 0 };
        let count = decayed(counter.load(Relaxed), self.epoch());
        let heat = log2(u64::from(count + 1) * u64::from(miss_bytes.max(1)));
        let mean = self.pulse.mean.load(Relaxed);
        if mean == 0 || chance.is_multiple_of(SAMPLING) {
            let moved = if mean == 0 { heat << MEAN_BITS } else { mean - (mean >> MEAN_BITS) + heat };
            self.pulse.mean.store(moved, Relaxed);
        }
        // Both below 2^24 but for hostile contents, which may say what they like.
        (heat as i64).wrapping_sub((mean >> MEAN_BITS) as i64)
    }

    /// Puts what `bits` gives in place of all counts.
    pub(super) fn fill(&self, mut bits: impl FnMut() -> u64) {
        self.counters.iter().for_each(|counter| counter.store(bits() as u16, Relaxed));
        self.pulse.mean.store(bits() >> 40, Relaxed);
    }

    #[inline]
    fn counter(&self, probe: &CacheProbe) -> Option<&AtomicU16> {
        // Fibonacci hashing: segments lie at multiples of eight, a few kilobytes apart.
        let scattered = (probe.slots >> self.neighbours).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (u128::from(scattered) * self.counters.len() as u128) >> 64;
        self.counters.get(index as usize)
    }

    #[inline]
    fn epoch(&self) -> u32 {
        (self.pulse.ticks.load(Relaxed) / self.ticks_per_epoch) as u32 & 15
    }
}

/// The step added to a count, with probability 1/step: a 16th to a 32nd of it, so that the counters
/// of hot segments are seldom written.
#[inline]
fn step(count: u32) -> u32 {
    1 << (count >> 4).max(1).ilog2()
}

/// A counter's count in `epoch`.
#[inline]
fn decayed(counter: u16, epoch: u32) -> u32 {
    let (then, count) = (u32::from(counter) >> COUNT_BITS, u32::from(counter) & MAX_COUNT);
    count >> (epoch.wrapping_sub(then) & 15)
}

/// log2 in fixed point, linear between powers of two: 0.09 too low at most. 0 for 0.
#[inline]
fn log2(x: u64) -> u64 {
    let whole = 63 - x.max(1).leading_zeros();
    let fraction = x.max(1) << (63 - whole) << 1 >> (64 - FRACTION_BITS);
    u64::from(whole) << FRACTION_BITS | fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_index::Window;

    fn cache_probe(segment: u64) -> CacheProbe {
        let window = Window { first: 0, last: 9 };
        CacheProbe { hash: 0, key: 0, predicted: 0, window, slots: segment * 5_000, slot_bytes: 24 }
    }

    #[test]
    fn logarithms_are_a_tenth_of_an_octave_right() {
        assert_eq!([1, 2, 4, 1 << 40].map(log2), [0, 256, 512, 40 << 8]);
        assert_eq!(log2(0), 0);
        for x in [3, 5, 7, 1_000, 544 * 4096, u64::MAX] {
            let exact = (x as f64).log2();
            let error = exact - log2(x) as f64 / OCTAVE as f64;
            assert!((0.0..0.1).contains(&error), "{x}: {error}");
        }
    }

    #[test]
    fn counts_halve_with_every_epoch() {
        let at = |epoch: u32, count: u32| (epoch << COUNT_BITS | count) as u16;
        assert_eq!(decayed(at(3, 800), 3), 800);
        assert_eq!(decayed(at(3, 800), 5), 200);
        assert_eq!(decayed(at(15, 800), 0), 400);
        assert_eq!(decayed(at(0, MAX_COUNT), 15), 0);
    }

    #[test]
    fn a_hot_segment_is_warmer_and_cools_when_accesses_move_on() {
        let heat = SegmentHeat::new(1_000, 1_000).expect("memory");
        let mut handle = CacheHandle::default();
        let warmth = |segment| heat.warmth(&cache_probe(segment), 544, 1);
        (0..20_000).for_each(|i| {
            heat.touch(&cache_probe(i % 1_000), &mut handle, 0);
            heat.touch(&cache_probe(7), &mut handle, 0);
            heat.warmth(&cache_probe(i % 1_000), 544, 0);
        });
        assert!(warmth(7) > 4 * OCTAVE, "{}", warmth(7));
        assert!(warmth(8).abs() < 2 * OCTAVE, "{}", warmth(8));
        assert!(
            heat.warmth(&cache_probe(8), 544 * 8, 1) > warmth(8) + 2 * OCTAVE,
            "bytes count as accesses do"
        );
        (0..80_000).for_each(|i| heat.touch(&cache_probe(i % 1_000), &mut handle, 0));
        assert!(warmth(7) < 2 * OCTAVE, "{}", warmth(7));
    }

    #[test]
    fn without_counters_nothing_is_warm_or_cold() {
        let heat = SegmentHeat::new(0, 1_000).expect("memory");
        heat.touch(&cache_probe(1), &mut CacheHandle::default(), 0);
        assert_eq!((heat.warmth(&cache_probe(1), 544, 0), heat.bytes()), (0, 0));
    }

    #[test]
    fn however_many_segments_share_a_counter_every_address_has_one() {
        let powers = || (0..u64::BITS).map(|bit| 1u64 << bit).chain([u64::MAX]);
        for counters in [0, 1, 2, 3, 1 << 10] {
            for segments in powers().chain([0, 3]) {
                let heat = SegmentHeat::new(counters, segments).expect("memory");
                let mut handle = CacheHandle::default();
                for slots in powers().chain([0]) {
                    let probe = CacheProbe { slots, ..cache_probe(0) };
                    assert_eq!(heat.counter(&probe).is_some(), counters > 0);
                    heat.touch(&probe, &mut handle, 0);
                    heat.warmth(&probe, u32::MAX, 0);
                }
            }
        }
    }
}
