//! Detection of ordered inserts by the ages of records.
//!
//! Keys that are inserted in ascending or descending order leave a trace: going back from the
//! youngest record, each neighbour is older, at a steady pace. Other writes blur it. An update
//! makes a single record young again, and a run that passes through older keys has these among its
//! own. Both are skipped, up to [`MOST_SKIPPED`] in a row.

/// Least records of a run. A window fills up with about 15 of them first; fewer are often chance.
const LEAST: usize = 8;
/// Records between two of a run that are not its own.
const MOST_SKIPPED: usize = 8;
/// Youngest records from which a run is looked for: the very youngest may be an update elsewhere.
const STARTS: usize = 4;
/// Most writes between the youngest record of a run and the one before, whatever else happened
/// between.
const FIRST_PACE: u64 = 4096;
/// A record is too old for its place in a run when this many times the mean pace passed since the
/// one before.
const PACES: u64 = 6;
/// Youngest records that show a hot spot.
const SAMPLE: usize = 16;
/// No record was written so long ago; loaded ones count as that old.
const NEVER: u32 = u32::MAX;

/// Ordered inserts, by the ranks of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InsertRun {
    /// Rank of its oldest record.
    pub first: usize,
    /// Rank of its youngest record.
    pub last: usize,
    /// Records that are its own; others may lie between.
    pub keys: usize,
    /// Distance that the youngest half of it covers, in [`Self::steps`]: at least one each.
    pub distance: u64,
    /// Steps from key to key of the youngest half; at least 1.
    pub steps: u64,
}

impl InsertRun {
    /// Whether its keys ascend.
    pub(super) fn ascends(&self) -> bool {
        self.first < self.last
    }

    /// Distance from the youngest record to the `n`-th one to come, if the run continues at its
    /// pace. A stride in whole units would be up to twice too short, and the reserve with it.
    pub(super) fn ahead(&self, n: u64) -> Option<u64> {
        u64::try_from(u128::from(n) * u128::from(self.distance) / u128::from(self.steps)).ok()
    }

    /// Records between its oldest and its youngest that are not its own.
    pub(super) fn others(&self) -> usize {
        self.first.abs_diff(self.last) + 1 - self.keys
    }
}

/// The youngest records of some neighbours.
pub(super) struct Youngest {
    /// Ranks, youngest first.
    ranks: Vec<usize>,
    /// Records of which these are the youngest.
    among: usize,
}

impl Youngest {
    /// The youngest of `ages`. Linear.
    pub(super) fn of(ages: &[u32]) -> Self {
        // Rank below age in one number; ranks of a segment and its neighbours fit 32 bits.
        let mut packed: Vec<u64> = (0u64..)
            .zip(ages)
            .filter(|(_, age)| **age != NEVER)
            .map(|(rank, age)| u64::from(*age) << 32 | rank)
            .collect();
        if packed.len() > SAMPLE {
            packed.select_nth_unstable(SAMPLE - 1);
            packed.truncate(SAMPLE);
        }
        packed.sort_unstable();
        Self { ranks: packed.iter().map(|packed| *packed as u32 as usize).collect(), among: ages.len() }
    }

    /// Whether all but two of the youngest lie within an eighth of the records.
    pub(super) fn is_hot_spot(&self) -> bool {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        ranks.len() == SAMPLE && (ranks[SAMPLE - 2] - ranks[1]) * 8 < self.among
    }

    /// The longest run that begins at one of the youngest.
    pub(super) fn run(&self, xs: &[u64], ages: &[u32]) -> Option<InsertRun> {
        let starts = self.ranks.iter().take(STARTS);
        let runs = starts.flat_map(|start| {
            let down = (0..*start).rev();
            let up = start + 1..ages.len();
            [follow(xs, ages, *start, down), follow(xs, ages, *start, up)]
        });
        // The first of equals: it begins at the youngest record.
        let long = runs.flatten().filter(|run| run.keys >= LEAST);
        long.reduce(|best, run| if run.keys > best.keys { run } else { best })
    }
}

/// The run whose youngest record is at `last` and whose others come along `ranks`, nearest first.
fn follow(xs: &[u64], ages: &[u32], last: usize, ranks: impl Iterator<Item = usize>) -> Option<InsertRun> {
    let (mut own, mut skipped) = (vec![last], 0);
    let youngest = ages[last];
    let mut oldest = youngest;
    for rank in ranks {
        let age = ages[rank];
        let pace = match own.len() as u64 - 1 {
            0 => FIRST_PACE,
            steps => 16 + PACES * (1 + skipped as u64) * u64::from(oldest - youngest) / steps,
        };
        if age != NEVER && age > oldest && u64::from(age - oldest) <= pace {
            own.push(rank);
            (oldest, skipped) = (age, 0);
        } else {
            skipped += 1;
            if skipped > MOST_SKIPPED {
                break;
            }
        }
    }
    let keys = own.len();
    let recent = (keys / 2).max(16).min(keys - 1);
    let (first, recent_first) = (*own.last()?, own[recent]);
    let distance = xs[recent_first].abs_diff(xs[last]);
    let steps = recent as u64;
    (steps > 0).then(|| InsertRun { first, last, keys, distance: distance.max(steps), steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(ages: &[u32]) -> Option<InsertRun> {
        let xs: Vec<u64> = (0..ages.len() as u64).map(|i| 1_000 + 10 * i).collect();
        Youngest::of(ages).run(&xs, ages)
    }

    #[test]
    fn a_run_is_found_in_both_directions() {
        let mut ages = vec![NEVER; 50];
        ages.extend((0..20).rev());
        ages.extend([NEVER; 30]);
        assert_eq!(find(&ages), Some(InsertRun { first: 50, last: 69, keys: 20, distance: 160, steps: 16 }));
        ages.reverse();
        assert_eq!(find(&ages), Some(InsertRun { first: 49, last: 30, keys: 20, distance: 160, steps: 16 }));
    }

    #[test]
    fn updates_and_other_writers_do_not_hide_a_run() {
        // Every third write belongs to the run; its seventh record was updated just now, as was one
        // far away.
        let mut ages = vec![NEVER; 50];
        ages.extend((0..30u32).rev().map(|i| 2 + 3 * i));
        ages[60] = 1;
        ages[3] = 0;
        let run = find(&ages).expect("a run");
        assert_eq!((run.first, run.last, run.keys, run.ahead(3)), (50, 79, 29, Some(30)));
    }

    #[test]
    fn a_run_passes_through_older_keys() {
        let mut ages = Vec::new();
        for i in (0..40).rev() {
            ages.extend([NEVER, i]);
        }
        let run = find(&ages).expect("a run");
        assert_eq!((run.first, run.last, run.keys, run.others(), run.ahead(3)), (1, 79, 40, 39, Some(60)));
    }

    #[test]
    fn scattered_inserts_are_no_run() {
        let mut random = 1u64;
        let mut found = 0;
        for _ in 0..1_000 {
            let ages: Vec<u32> = (0..200)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 44) as u32
                })
                .collect();
            found += usize::from(find(&ages).is_some());
        }
        // False alarms have about the least records of a run, and so a small reserve.
        assert!(found <= 60, "{found} of 1,000 are taken for runs");
    }

    #[test]
    fn few_records_and_loaded_ones_are_no_run() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[0]), None);
        assert_eq!(find(&[NEVER; 100]), None);
        assert_eq!(find(&[3, 2, 1, 0]), None, "too short");
        assert_eq!(find(&[5; 100]), None, "written together");
    }

    #[test]
    fn inserts_close_together_are_a_hot_spot() {
        let mut ages = vec![NEVER; 400];
        for (i, age) in ages[100..].iter_mut().step_by(2).take(20).enumerate() {
            *age = (i as u32 * 7) % 20;
        }
        assert!(Youngest::of(&ages).is_hot_spot());
        let scattered: Vec<u32> = (0..400).map(|i| (i * 37) % 400).collect();
        assert!(!Youngest::of(&scattered).is_hot_spot());
    }
}
