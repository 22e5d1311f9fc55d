//! Throughput over the stream, and the effect of a moving hotspot.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A stretch of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Lookups since the pass began, at this point's end.
    pub lookups: u64,
    /// Lookups per second within the point, all threads together.
    pub ops_per_s: f64,
    /// Share of the point's lookups that the hot cache answered; null without one.
    pub hit_rate: Option<f64>,
}

/// What a shift of the popular keys did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// The lookup at which the popular keys moved.
    pub at: u64,
    /// Lookups per second before: the median over the second half of the time since the shift
    /// before.
    pub steady_ops_per_s: f64,
    /// Lookups per second of the worst point until throughput was back.
    pub worst_ops_per_s: f64,
    /// By what share the worst point lies below the steady rate; 0 if it does not.
    pub dip: f64,
    /// Lookups from the shift to the end of the first point from which throughput is within 5 % of
    /// steady again; null if it was not before the next shift.
    pub recovered_after: Option<u64>,
}

/// What one thread saw of a point: how many lookups it did from when to when, and the hot cache's
/// hits at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub lookups: u64,
    pub start: Instant,
    pub end: Instant,
    /// Of all threads, since the table was opened; only the first thread asks.
    pub hits: Option<u64>,
}

/// Puts the threads' views together. Threads run through the same points side by side but not in
/// step: a point lasts from the end of the one before until its last thread has ended it, so that
/// the times of all points add up to the pass's, and its hits are those that all threads had while
/// the first one was in it. `hits_before` are the hits at the beginning.
pub(super) fn together(threads: &[Vec<Seen>], hits_before: Option<u64>) -> Vec<TimelinePoint> {
    let count = threads.iter().map(Vec::len).max().unwrap_or(0);
    let mut points = Vec::with_capacity(count);
    let (mut done, mut hits) = (0, hits_before);
    let mut before: Option<Instant> = None;
    for at in 0..count {
        let seen = || threads.iter().filter_map(|thread| thread.get(at)).filter(|seen| seen.lookups > 0);
        let lookups: u64 = seen().map(|seen| seen.lookups).sum();
        let Some(end) = seen().map(|seen| seen.end).max() else { continue };
        // A short point may be of threads alone that were ahead of others in the one before.
        let begin = before.filter(|before| *before < end).or_else(|| seen().map(|seen| seen.start).min());
        before = before.max(Some(end));
        let elapsed = begin.map_or(Duration::ZERO, |begin| end.saturating_duration_since(begin));
        done += lookups;
        let hits_now = seen().find_map(|seen| seen.hits);
        let hit_rate = hits_now.zip(hits).map(|(now, before)| {
            // Other threads may be a little ahead.
            (now.saturating_sub(before) as f64 / lookups.max(1) as f64).min(1.0)
        });
        hits = hits_now.or(hits);
        points.push(TimelinePoint {
            lookups: done,
            ops_per_s: lookups as f64 / elapsed.as_secs_f64().max(1e-9),
            hit_rate,
        });
    }
    points
}

/// Points that must be back on average before throughput counts as back: one alone may be luck.
const CONFIRMED_BY: usize = 3;
/// Back is what lies within this share of the steady rate.
const NEARLY: f64 = 0.95;

/// What each shift did, for popular keys that move every `every` lookups. Shifts without a point on
/// either side are left out.
pub fn shifts(points: &[TimelinePoint], every: u64) -> Vec<Shift> {
    let last = points.last().map_or(0, |point| point.lookups);
    let times = last.checked_div(every).unwrap_or(0);
    (1..=times).filter_map(|time| shift(points, time * every, every)).collect()
}

fn shift(points: &[TimelinePoint], at: u64, every: u64) -> Option<Shift> {
    let rates = |from: u64, to: u64| -> Vec<(u64, f64)> {
        let inside = points.iter().filter(|point| point.lookups > from && point.lookups <= to);
        inside.map(|point| (point.lookups, point.ops_per_s)).collect()
    };
    let steady = median(rates(at - every.div_ceil(2), at).into_iter().map(|(_, rate)| rate))?;
    let after = rates(at, at.saturating_add(every));
    let nearly = NEARLY * steady;
    let is_back = |i: usize| {
        let next = after[i..].iter().take(CONFIRMED_BY).map(|(_, rate)| *rate);
        after[i].1 >= nearly && median(next).is_some_and(|rate| rate >= nearly)
    };
    let back = (0..after.len()).find(|&i| is_back(i));
    let until = back.map_or(after.len(), |i| i + 1);
    let worst = after[..until].iter().map(|(_, rate)| *rate).reduce(f64::min)?;
    Some(Shift {
        at,
        steady_ops_per_s: steady,
        worst_ops_per_s: worst,
        dip: (1.0 - worst / steady.max(f64::MIN_POSITIVE)).max(0.0),
        recovered_after: back.map(|i| after[i].0 - at),
    })
}

/// The median, the lower one of two.
pub fn median(rates: impl Iterator<Item = f64>) -> Option<f64> {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rates: &[f64]) -> Vec<TimelinePoint> {
        let point = |(i, &rate): (usize, &f64)| TimelinePoint {
            lookups: 10 * (i as u64 + 1),
            ops_per_s: rate,
            hit_rate: None,
        };
        rates.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_dip_and_its_end_are_found() {
        // The popular keys move at 60; the point at 90 alone does not undo the recovery of 80.
        let points = points(&[50., 90., 100., 101., 99., 100., 80., 97., 85., 96., 100., 100.]);
        let found = shifts(&points, 60);
        assert_eq!(found.len(), 1);
        let Shift { at, steady_ops_per_s, worst_ops_per_s, dip, recovered_after } = found[0];
        assert_eq!((at, steady_ops_per_s, worst_ops_per_s), (60, 100.0, 80.0));
        assert!((dip - 0.2).abs() < 1e-12);
        assert_eq!(recovered_after, Some(20));
    }

    #[test]
    fn one_lucky_point_is_no_recovery_and_none_is_null() {
        let lucky = points(&[100., 100., 100., 100., 70., 99., 71., 72.]);
        assert_eq!(shifts(&lucky, 40)[0].recovered_after, None);
        let none = points(&[100., 100., 60., 60.]);
        let shift = shifts(&none, 20)[0];
        assert_eq!((shift.recovered_after, shift.worst_ops_per_s), (None, 60.0));
    }

    #[test]
    fn without_a_point_after_it_a_shift_is_left_out() {
        assert_eq!(shifts(&points(&[100., 100.]), 20), []);
        assert_eq!(shifts(&[], 20), []);
        assert_eq!(shifts(&points(&[1.0; 4]), 1_000), []);
    }

    #[test]
    fn a_point_lasts_until_its_last_thread_has_ended_it_and_hits_are_differences() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let seen = |from, to, hits| Seen { lookups: 100, start: at(from), end: at(to), hits };
        let threads = [
            vec![seen(0, 100, Some(150)), seen(100, 300, Some(350))],
            vec![seen(0, 50, None), seen(50, 150, None)],
        ];
        let points = together(&threads, Some(50));
        assert_eq!(points.iter().map(|point| point.lookups).collect::<Vec<_>>(), [200, 400]);
        let rates = |points: &[TimelinePoint]| points.iter().map(|p| p.ops_per_s).collect::<Vec<_>>();
        assert_eq!(rates(&points), [2_000.0, 1_000.0]);
        assert_eq!((points[0].hit_rate, points[1].hit_rate), (Some(0.5), Some(1.0)));
        assert_eq!(together(&threads, None)[0].hit_rate, None);
        // One core for two threads: each does a hundred in the tenth of a second that it has.
        let turns = [vec![seen(0, 100, None)], vec![seen(100, 200, None)]];
        assert_eq!(rates(&together(&turns, None)), [1_000.0]);
        // The second thread has no part in the last point, and was behind in the one before.
        let none = Seen { lookups: 0, ..seen(400, 400, None) };
        let behind = [vec![seen(0, 100, None), seen(100, 200, None)], vec![seen(0, 400, None), none]];
        assert_eq!(rates(&together(&behind, None)), [500.0, 1_000.0]);
    }
}
