//! A stand-in for `wiki_ts_200M_uint64`: the times of Wikipedia's edits, in unix seconds, with
//! their duplicates.
//!
//! A cascade over time. All keys lie under a root interval of 2^28 seconds; a node's keys fall into
//! its halves binomially, in proportion to the expected numbers of edits there, disturbed by noise
//! of each scale, down to single seconds. Expected numbers come from a growth curve (one value per
//! quarter year, interpolated in the logarithm) and a daily and weekly cycle; noise is a relative
//! disturbance per scale, and now and then one half has no edits at all, as when the site was down.
//! Growth, cycle and outages are rounded rates of edits over time, and the noise was adjusted
//! until, at 200 M keys and seed 42, the numbers of distinct keys and of optimal segments came
//! within 15 % of those published of the file; other seeds were not tried.
//!
//! Fewer keys are the same process thinned, which is what a uniform sample of the file is. Subtrees
//! without keys are not walked, so the cost is that of the keys: a few tens of nanoseconds each.

use super::binomial::binomial;
use crate::random::Random;

/// The first second of the file: in January 2001.
const START: u64 = 979_586_833;
const DAY: u64 = 86_400;
/// Whole days of edits, to July 2008.
const DAYS: usize = 2_738;
/// Relative edits per day at intervals of [`KNOT_DAYS`] from the start, the last one beyond the
/// end.
const GROWTH: [f64; 32] = [
    0.04, 0.06, 0.13, 0.5, 1.3, 1.25, 2.0, 4.0, 4.0, 4.5, 6.0, 7.5, 12.0, 19.0, 26.0, 34.0, 39.0, 50.0, 73.0,
    98.0, 141.0, 188.0, 213.0, 237.0, 265.0, 300.0, 275.0, 267.0, 276.0, 285.0, 280.0, 260.0,
];
const KNOT_DAYS: f64 = 90.0;
/// Relative edits by hour of the day, UTC.
const HOURS: [f64; 24] = [
    1.11, 1.05, 0.98, 0.90, 0.82, 0.76, 0.72, 0.69, 0.68, 0.71, 0.75, 0.83, 0.92, 1.02, 1.09, 1.16, 1.22,
    1.24, 1.26, 1.28, 1.27, 1.24, 1.20, 1.14,
];
/// Relative edits by day of the week, from Thursday on, the first day of unix time.
const WEEKDAYS: [f64; 7] = [0.995, 0.93, 0.965, 1.025, 1.055, 1.05, 1.0];

/// log₂ of the root interval's seconds.
const ROOT_LEVEL: u32 = 28;
/// Below this level the expected rate is taken as even: it changes by under 1 % in 1024 seconds.
const EVEN_LEVEL: u32 = 10;

/// Relative standard deviation of the noise between the halves of an interval of 2^level seconds,
/// from level 1.
const NOISE: [f64; 18] = [
    0.0, 0.0, 0.0, 0.0, 0.0, 0.02, 0.02, 0.02, 0.025, 0.03, 0.035, 0.04, 0.043, 0.043, 0.043, 0.04, 0.03,
    0.02,
];
/// Probability that one half of an interval of 2^level seconds has no edits, from level 8 to 14.
const OUTAGES: [f64; 7] = [0.0003, 0.0006, 0.001, 0.0012, 0.001, 0.0008, 0.0005];
const OUTAGE_LEVEL: u32 = 8;

const PURPOSE: u64 = 0x3141;

/// The edit times of the stand-in: ascending, with duplicates.
#[derive(Clone, Debug)]
pub struct WikiTimes {
    random: Random,
    expected: Expected,
    /// Intervals yet to be walked, the nearest last.
    pending: Vec<Node>,
    /// The second being given out, and how often it remains to be.
    second: u64,
    repeats: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    level: u32,
    /// Seconds after [`START`].
    from: u64,
    keys: u64,
}

impl WikiTimes {
    /// The stand-in of `count` keys, duplicates counted.
    pub fn new(count: u64, seed: u64) -> Self {
        let root = Node { level: ROOT_LEVEL, from: 0, keys: count };
        let pending = vec![root];
        Self { random: Random::new(seed, PURPOSE), expected: Expected::new(), pending, second: 0, repeats: 0 }
    }

    /// Gives the node's keys to its halves; returns the left one and defers the right one.
    #[inline]
    fn split(&mut self, node: Node) -> Node {
        let level = node.level - 1;
        let middle = node.from + (1 << level);
        let share = self.left_share(node, middle);
        let left = binomial(&mut self.random, node.keys, share);
        if left < node.keys {
            self.pending.push(Node { level, from: middle, keys: node.keys - left });
        }
        Node { level, from: node.from, keys: left }
    }

    #[inline]
    fn left_share(&mut self, node: Node, middle: u64) -> f64 {
        let (mut left, mut right) = (1.0, 1.0);
        if node.level > EVEN_LEVEL {
            let [from, at, to] =
                [node.from, middle, node.from + (1 << node.level)].map(|t| self.expected.until(t));
            (left, right) = (at - from, to - at);
        }
        let noise = NOISE.get(node.level as usize - 1).copied().unwrap_or(0.0);
        if noise > 0.0 {
            // Uniform of standard deviation 1; it stays within ±1.73, so that no weight turns
            // negative.
            let tilt = noise * (2.0 * self.random.open_fraction() - 1.0) * 1.732_050_807_568_877_2;
            left *= 1.0 + tilt;
            right *= 1.0 - tilt;
        }
        let outage = node.level.checked_sub(OUTAGE_LEVEL).and_then(|i| OUTAGES.get(i as usize)).copied();
        if let Some(probability) = outage {
            let draw = self.random.open_fraction();
            // Keys must not be driven beyond the end, where nothing is expected.
            if draw < probability && left > 0.0 && right > 0.0 {
                return if draw < probability / 2.0 { 0.0 } else { 1.0 };
            }
        }
        left / (left + right)
    }
}

impl Iterator for WikiTimes {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        while self.repeats == 0 {
            let mut node = self.pending.pop()?;
            while node.level > 0 && node.keys > 0 {
                node = self.split(node);
            }
            (self.second, self.repeats) = (START + node.from, node.keys);
        }
        self.repeats -= 1;
        Some(self.second)
    }
}

/// The expected number of edits up to a second, in arbitrary units.
#[derive(Clone, Debug)]
struct Expected {
    /// Up to each day's start, and the end of the last.
    days: Vec<f64>,
    /// Of a day, up to each hour's start, and its end: 1.
    hours: [f64; 25],
}

impl Expected {
    fn new() -> Self {
        let mut days = Vec::with_capacity(DAYS + 1);
        let mut sum = 0.0;
        for day in 0..DAYS {
            days.push(sum);
            let knot = day as f64 / KNOT_DAYS;
            let (i, part) = (knot as usize, knot - libm::floor(knot));
            let growth = libm::exp((1.0 - part) * libm::log(GROWTH[i]) + part * libm::log(GROWTH[i + 1]));
            sum += growth * WEEKDAYS[(START / DAY + day as u64) as usize % WEEKDAYS.len()];
        }
        days.push(sum);
        let total: f64 = HOURS.iter().sum();
        let mut hours = [0.0; 25];
        for (i, hour) in HOURS.iter().enumerate() {
            hours[i + 1] = hours[i] + hour / total;
        }
        Self { days, hours }
    }

    /// Up to `seconds` after [`START`]; days are counted from midnight, so the first one is cut.
    fn until(&self, seconds: u64) -> f64 {
        let since_midnight = START % DAY + seconds;
        let day = (since_midnight / DAY) as usize;
        let Some(growth) = self.days.get(day + 1).map(|next| next - self.days[day]) else {
            return self.days[DAYS];
        };
        let (hour, second) = ((since_midnight % DAY / 3_600) as usize, since_midnight % 3_600);
        let part = second as f64 / 3_600.0;
        self.days[day] + growth * (self.hours[hour] * (1.0 - part) + self.hours[hour + 1] * part)
    }
}
