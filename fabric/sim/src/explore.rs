//! Runs of many seeds, one after the other, until the first that fails.

use std::error::Error;
use std::ops::Range;

use crate::options::SimOptions;
use crate::report::SEED_VARIABLE;
use crate::world::World;

/// The environment variable that says how many seeds to run instead of the test's own number.
pub const SEEDS_VARIABLE: &str = "FPCACHE_SIM_SEEDS";

/// The result of a test of one seed.
pub type Verdict = Result<(), Box<dyn Error>>;

/// The result of many seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Seeds that were run.
    pub seeds: u64,
    /// Their events together.
    pub events: u64,
    /// Deaths of memory nodes.
    pub deaths: u64,
    /// Requests that waited for a memory node to have room.
    pub waits: u64,
    /// Looks at leased words that their leases answered.
    pub leased: u64,
    /// Processes that died.
    pub killed: u64,
}

/// A seed whose test failed.
#[derive(Clone, Debug)]
pub struct FailingSeed {
    /// The seed.
    pub seed: u64,
    /// Its test's error.
    pub why: String,
    /// The last events.
    pub trace: String,
}

/// Runs `test` in a world of each seed, and panics at the first that fails with its reason, its
/// last events and how to run it alone.
///
/// [`SEED_VARIABLE`] runs one seed alone, [`SEEDS_VARIABLE`] that number from the range's start on.
///
/// # Panics
/// If a seed's test fails, or a variable is no number.
pub fn explore(seeds: Range<u64>, options: &SimOptions, test: impl Fn(&mut World) -> Verdict) -> Explored {
    let seeds = match (number(SEED_VARIABLE), number(SEEDS_VARIABLE)) {
        (Some(seed), _) => seed..seed.saturating_add(1),
        (None, Some(count)) => seeds.start..seeds.start.saturating_add(count),
        (None, None) => seeds,
    };
    match search(seeds, options, test) {
        Ok(explored) => explored,
        Err(FailingSeed { seed, why, trace }) => {
            // A RunFailure brings its own trace.
            let trace = if why.contains(SEED_VARIABLE) {
                String::new()
            } else {
                format!("the last events:\n{trace}")
            };
            panic!("seed {seed}: {why}\n{trace}run only this seed with {SEED_VARIABLE}={seed}");
        }
    }
}

/// Runs `test` in a world of each seed until one fails; looks at no variable. For showing that a
/// broken protocol is found.
///
/// # Errors
/// The first seed whose test failed.
pub fn search(
    seeds: Range<u64>,
    options: &SimOptions,
    test: impl Fn(&mut World) -> Verdict,
) -> Result<Explored, FailingSeed> {
    let mut explored = Explored::default();
    for seed in seeds {
        let mut world = World::new(options.with_seed(seed));
        if let Err(error) = test(&mut world) {
            return Err(FailingSeed { seed, why: error.to_string(), trace: world.trace() });
        }
        let report = world.report();
        explored.seeds += 1;
        explored.events += report.events;
        explored.deaths += report.deaths;
        explored.waits += report.waits;
        explored.leased += report.leased;
        explored.killed += report.killed.len() as u64;
    }
    Ok(explored)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number"));
    Some(number)
}
