//! The reserve of slots ahead of a run of inserts.
//!
//! The reserve is planned as if the expected keys were there already. Coordinates stand for them
//! while pieces are cut and slots assigned, and are then dropped. So the line covers the reserve,
//! and every slot of it is in the windows of the keys it is meant for. A run through empty space
//! gets reserved coordinates at its own pace. A run through older keys gets as many of them between
//! the older keys ahead of it as it left keys between those it has passed.

use std::ops::Range;

use super::gather::{Gathered, SMALL};
use super::options::{FillLimits, KEYS_AHEAD, Limits};
use super::runs::InsertRun;

/// Records that become segments of their own.
#[derive(Debug)]
pub(super) struct RunPart {
    /// The records.
    pub keys: Range<usize>,
    /// Last coordinate of their range.
    pub last_x: u64,
    /// How full and long their segments may be.
    pub room: FillLimits,
    /// Coordinates of the keys to come, none of them a record's.
    pub reserve: Vec<u64>,
}

/// Least reserved coordinates ahead of a run.
const LEAST_RESERVE: usize = 16;
/// Most of them, as a multiple of the run's records.
const GROWTH: usize = 2;
/// The same for a run that passes through older keys, at most as many as it left between those
/// behind it.
const GROWTH_AMONG_KEYS: usize = 16;

/// Divides the records at a run: in the direction of the run the old ones, those it left behind,
/// its head with those within the reserve, and those beyond. Parts of few records go with the head.
pub(super) fn divide(gathered: &Gathered<'_>, run: &InsertRun, limits: &Limits) -> Vec<RunPart> {
    let (xs, ascends) = (gathered.xs, run.ascends());
    let settled = limits.whole(limits.settled_fill);
    let mut old = if ascends { run.first } else { xs.len() - 1 - run.first };
    let mut behind = run.first.abs_diff(run.last);
    let mut head = 1;
    if behind < SMALL {
        head += behind;
        behind = 0;
        if old < SMALL {
            head += old;
            old = 0;
        }
    } else if old < SMALL {
        behind += old;
        old = 0;
    }
    let ahead = xs.len() - old - behind - head;
    let room = settled.max_keys().saturating_sub(head);
    let (reserve, within) = InsertSpace::of(gathered, run).reserve(run, room);
    let (head, beyond) =
        if ahead - within < SMALL { (head + ahead, 0) } else { (head + within, ahead - within) };

    let in_the_way = limits.of_keys(KEYS_AHEAD, limits.settled_fill);
    let mut lengths = [(old, settled), (behind, settled), (head, settled), (beyond, in_the_way)];
    if !ascends {
        lengths.reverse();
    }
    let head_at = if ascends { 2 } else { 1 };
    let mut parts = Vec::with_capacity(lengths.len());
    let mut reserve = Some(reserve);
    let mut end = 0;
    for (at, (length, room)) in lengths.into_iter().enumerate().filter(|(_, (length, _))| *length > 0) {
        let keys = end..end + length;
        end = keys.end;
        let last_x = match xs.get(end) {
            // Keys between two parts belong to the one that the run comes from.
            Some(next) if ascends => next.saturating_sub(1),
            Some(_) => xs[end - 1],
            None => gathered.last_x,
        };
        let reserve = if at == head_at { reserve.take() } else { None };
        parts.push(RunPart { keys, last_x, room, reserve: reserve.unwrap_or_default() });
    }
    parts
}

/// What lies ahead of a run, as distances from its youngest key, so that both directions are one.
struct InsertSpace<'a> {
    head: u64,
    ascends: bool,
    /// Records ahead, in ascending order.
    xs: &'a [u64],
    /// Greatest distance inside the range.
    farthest: u64,
}

impl<'a> InsertSpace<'a> {
    fn of(gathered: &Gathered<'a>, run: &InsertRun) -> Self {
        let (head, ascends) = (gathered.xs[run.last], run.ascends());
        let (before, after) = (&gathered.xs[..run.last], &gathered.xs[run.last + 1..]);
        if ascends {
            Self { head, ascends, xs: after, farthest: gathered.last_x.saturating_sub(head) }
        } else {
            Self { head, ascends, xs: before, farthest: head.saturating_sub(gathered.first_x) }
        }
    }

    /// Distance of the `n`-th record.
    fn record(&self, n: usize) -> Option<u64> {
        let x = if self.ascends { self.xs.get(n) } else { self.xs.iter().nth_back(n) };
        x.map(|x| x.abs_diff(self.head))
    }

    fn coordinate(&self, distance: u64) -> u64 {
        if self.ascends { self.head + distance } else { self.head - distance }
    }

    /// The coordinates of a reserve, and how many records lie among them; together at most `room`.
    fn reserve(&self, run: &InsertRun, room: usize) -> (Vec<u64>, usize) {
        // At least a fifth of what lies along the run is not its own.
        if run.others() * 4 >= run.keys {
            let most = run.keys.saturating_mul(GROWTH_AMONG_KEYS).max(LEAST_RESERVE);
            self.reserve_among_records(run, room, most)
        } else {
            let most = run.keys.saturating_mul(GROWTH).max(LEAST_RESERVE);
            self.reserve_at_pace(run, room, most)
        }
    }

    fn reserve_at_pace(&self, run: &InsertRun, room: usize, most: usize) -> (Vec<u64>, usize) {
        let (mut reserved, mut records) = (Vec::new(), 0);
        for n in 1.. {
            let at = run.ahead(n).filter(|at| *at <= self.farthest);
            let Some(at) = at.filter(|_| reserved.len() < most && reserved.len() + records < room) else {
                break;
            };
            let mut taken = false;
            while let Some(record) = self.record(records).filter(|record| *record <= at) {
                taken |= record == at;
                records += 1;
            }
            if !taken {
                reserved.push(self.coordinate(at));
            }
        }
        (reserved, records)
    }

    fn reserve_among_records(&self, run: &InsertRun, room: usize, most: usize) -> (Vec<u64>, usize) {
        let (mut reserved, mut records, mut at) = (Vec::new(), 0, 0);
        let mut owed = 0;
        while let Some(record) = self.record(records)
            && reserved.len() < most
            && reserved.len() + records < room
        {
            owed += run.keys;
            let gap = record - at;
            // Steps of at least one, so that all coordinates are distinct and none is a record.
            let here =
                ((owed / run.others().max(1)).min(most - reserved.len()) as u64).min(gap.saturating_sub(1));
            owed %= run.others().max(1);
            let step = |i: u64| (u128::from(gap) * u128::from(i) / u128::from(here + 1)) as u64;
            reserved.extend((1..=here).map(|i| self.coordinate(at + step(i))));
            records += 1;
            at = record;
        }
        (reserved, records)
    }
}
