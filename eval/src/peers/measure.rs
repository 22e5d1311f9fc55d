//! The passes of all systems, in turns.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::ByteKeys;
use fpcache_datasets::Bar;

use super::{Figures, PeersArgs};
use crate::pages::MemoryPages;
use crate::run::measure::Measurable;
use crate::run::workload::{Lookups, Workload};

/// Answers that are compared, of each way to ask, or as many as there are keys.
const COMPARED: usize = 50_000;
/// Most lookups of a pass.
pub const MOST_LOOKUPS: u64 = 4_000_000;
/// Lookups from which the length of a pass is found.
const TRIED: usize = 2_000;

/// A system, ready, and one way to ask it.
pub struct Peer<'a> {
    /// The system.
    pub system: &'a dyn Measurable<ByteKeys>,
    /// Keys of a call.
    pub keys_per_call: usize,
}

/// Runs the passes of all, in turns; what was found of each is added to `figures`, in their order.
///
/// # Errors
/// If a system fails.
pub fn measure<'a, 'k>(
    arguments: &PeersArgs,
    peers: &[Peer<'_>],
    workload: &Workload<'a, 'k, ByteKeys>,
    bar: &Bar,
    figures: &mut Vec<Figures>,
) -> anyhow::Result<()> {
    MemoryPages::default().apply();
    let all = workload.lookups;
    let of = |peer: &Peer<'_>, count: usize, round: usize| Workload {
        lookups: {
            let part = part_of(round, count, all.len());
            Lookups { keys: &all.keys[part.clone()], expected: &all.expected[part] }
        },
        batch: peer.keys_per_call,
        warm_up: Some(&all.keys[..(count / 10).clamp(1, all.len())]),
        ..*workload
    };
    let (mut mismatches, mut counts) = (Vec::new(), Vec::new());
    let [compared, tried] = [COMPARED, TRIED].map(|most| most.min(workload.dataset.len()).max(1));
    for peer in peers {
        mismatches.push(peer.system.verify(&of(peer, compared, 0), bar)?.mismatches);
        counts.push(count_for(tried, arguments.seconds, |count| {
            let begun = Instant::now();
            peer.system.throughput(&of(peer, count, 0))?;
            Ok(begun.elapsed())
        })?);
    }
    let rounds = arguments.rounds as usize;
    let mut passes = vec![Vec::new(); peers.len()];
    bar.during("measuring, in turns", (rounds * peers.len()) as u64, || -> anyhow::Result<()> {
        for round in 0..rounds {
            for turn in 0..peers.len() {
                let which = (round + turn) % peers.len();
                let workload = of(&peers[which], counts[which], round);
                passes[which].push(peers[which].system.throughput(&workload)?);
                fpcache_datasets::Progress::advance(bar, (round * peers.len() + turn + 1) as u64);
            }
        }
        Ok(())
    })?;
    for (at, peer) in peers.iter().enumerate() {
        let latency =
            bar.during("measuring latency", 1, || peer.system.latency(&of(peer, counts[at], rounds)))?;
        let lookups = counts[at].min(all.len());
        figures
            .push(Figures::new(lookups, &passes[at], &latency, mismatches[at]).context("no pass was run")?);
    }
    Ok(())
}

/// Where in a stream of `all` lookups those of a pass stand: one after the other, from the
/// beginning again where they end, so that systems with shorter passes meet other keys in each.
fn part_of(round: usize, count: usize, all: usize) -> Range<usize> {
    let count = count.min(all);
    let begin = round.wrapping_mul(count) % (all - count + 1);
    begin..begin + count
}

/// Lookups that take about `seconds`, but no fewer than are `tried` first.
fn count_for(
    tried: usize,
    seconds: f64,
    mut time: impl FnMut(usize) -> anyhow::Result<Duration>,
) -> anyhow::Result<usize> {
    let mut count = tried;
    loop {
        let took = time(count)?.as_secs_f64();
        // A short try says little: a longer one follows.
        if took > seconds / 8.0 || count >= MOST_LOOKUPS as usize {
            let wanted = count as f64 * seconds / took.max(1e-9);
            return Ok((wanted as usize).clamp(tried, MOST_LOOKUPS as usize));
        }
        count *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_are_shorter_than_the_stream_meet_other_lookups_each() {
        assert_eq!([0, 1, 2].map(|round| part_of(round, 100, 1_000)), [0..100, 100..200, 200..300]);
        assert_eq!([0, 1].map(|round| part_of(round, 2_000, 1_000)), [0..1_000, 0..1_000]);
        for (round, count) in (0..50).flat_map(|round| [(round, 1), (round, 30), (round, 99), (round, 100)]) {
            let part = part_of(round, count, 100);
            assert!(part.len() == count && part.end <= 100, "{round}: {part:?}");
        }
    }
}
