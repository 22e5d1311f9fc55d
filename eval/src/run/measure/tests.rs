use super::*;
use crate::run::values::ValueBytes;
use crate::run::workload::Lookups;
use std::sync::atomic::{AtomicUsize, Ordering};

use fpcache_client::{Found, U64Keys};
use fpcache_datasets::OpenOptions;
use fpcache_datasets::requests::{Distribution, RequestOptions, Requests};

/// Answers each key of `sequential` with itself, wrongly for multiples of `wrong`, failing at
/// `fails`.
struct Echo {
    wrong: u64,
    fails: Option<u64>,
    asked: AtomicUsize,
    cleared: AtomicUsize,
}

struct EchoReader<'a>(&'a Echo, Vec<Option<[u8; 8]>>, [u8; 8]);

impl System for Echo {
    type Keys = U64Keys;
    type Reader<'a> = EchoReader<'a>;
    fn name(&self) -> &str {
        "echo"
    }
    fn facts(&self) -> Facts {
        Facts::default()
    }
    fn reader(&self) -> EchoReader<'_> {
        EchoReader(self, Vec::new(), [0; 8])
    }
    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        // Every lookup is a hit.
        let mut stats = CacheStats::default();
        stats.hits = self.asked.load(Ordering::Relaxed) as u64;
        Ok(Some(stats))
    }
    fn clear_cache(&self) {
        self.cleared.fetch_add(1, Ordering::Relaxed);
    }
}

impl EchoReader<'_> {
    fn answer_to(&self, key: u64) -> anyhow::Result<Option<[u8; 8]>> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        anyhow::ensure!(self.0.fails != Some(key), "the memory node is gone");
        let answer = if key.is_multiple_of(self.0.wrong) { key + 1 } else { key };
        Ok((key < 1_000).then_some(answer.to_le_bytes()))
    }
}

impl Reader<U64Keys> for EchoReader<'_> {
    fn get(&mut self, key: u64) -> anyhow::Result<Option<&[u8]>> {
        Ok(self.get_with_cost(key)?.0)
    }
    fn get_with_cost(&mut self, key: u64) -> anyhow::Result<(Option<&[u8]>, Option<Found>)> {
        let Some(value) = self.answer_to(key)? else { return Ok((None, None)) };
        self.2 = value;
        Ok((Some(&self.2), None))
    }
    fn get_many(&mut self, keys: &[u64]) -> anyhow::Result<()> {
        self.1 = keys.iter().map(|&key| self.answer_to(key)).collect::<anyhow::Result<_>>()?;
        Ok(())
    }
    fn answer(&self, index: usize) -> Option<&[u8]> {
        self.1.get(index)?.as_ref().map(<[u8; 8]>::as_slice)
    }
}

fn echo(wrong: u64, fails: Option<u64>) -> Echo {
    Echo { wrong, fails, asked: AtomicUsize::new(0), cleared: AtomicUsize::new(0) }
}

fn with_workload(batch: usize, threads: usize, test: impl Fn(&Workload<'_, '_, U64Keys>)) {
    let dataset = U64Keys::open(&"sequential:1K".parse().unwrap(), &OpenOptions::default()).unwrap();
    let options = RequestOptions {
        lookups: 5_001,
        distribution: Distribution::Uniform,
        negative: 0.2,
        seed: 7,
        shift_every: None,
    };
    let drawn = U64Keys::draw(&dataset, &options);
    let requests = U64Keys::stream(&drawn);
    test(&Workload {
        dataset: &dataset,
        lookups: Lookups::all(&requests),
        values: ValueBytes::Fixed(8),
        batch,
        threads,
        stretch: None,
        warm_up: None,
        cold: false,
    });
}

#[test]
fn every_wrong_answer_is_counted() {
    for batch in [1, 32] {
        with_workload(batch, 1, |workload| {
            let bar = Bar::default();
            let right = Measurable::verify(&echo(5_000, None), workload, &bar).unwrap();
            // Key 0 is a multiple of anything.
            let zeros = workload.lookups.keys.iter().filter(|&&key| key == 0).count() as u64;
            assert_eq!(right.mismatches, zeros);
            let wrong = Measurable::verify(&echo(3, None), workload, &bar).unwrap();
            let multiples =
                workload.lookups.keys.iter().filter(|&&k| k < 1_000 && k.is_multiple_of(3)).count();
            assert_eq!(wrong.mismatches, multiples as u64);
            assert!(wrong.first_mismatch.unwrap().contains("expected"));
        });
    }
}

#[test]
fn every_pass_asks_for_every_key_in_any_number_of_threads() {
    for (batch, threads) in [(1, 1), (1, 3), (32, 4), (7, 40)] {
        with_workload(batch, threads, |workload| {
            let system = echo(u64::MAX, None);
            let pass = system.throughput(workload).unwrap();
            assert!(pass.elapsed > Duration::ZERO);
            // Once to warm up, once in earnest.
            assert_eq!(system.asked.swap(0, Ordering::Relaxed), 2 * 5_001);
            let histogram = system.latency(workload).unwrap();
            let part = 5_001usize.div_ceil(threads);
            let calls: usize =
                workload.lookups.keys.chunks(part).map(|part| part.len().div_ceil(batch)).sum();
            assert_eq!(histogram.len(), calls as u64);
        });
    }
}

#[test]
fn hits_are_of_the_pass_alone_and_cold_passes_begin_empty_without_a_warm_up() {
    for threads in [1, 3] {
        with_workload(1, threads, |workload| {
            let system = echo(u64::MAX, None);
            assert_eq!(system.throughput(workload).unwrap().hits, Some(5_001));
            assert_eq!(system.cleared.load(Ordering::Relaxed), 0);
            system.asked.store(0, Ordering::Relaxed);
            let cold = Workload { cold: true, ..*workload };
            assert_eq!(system.throughput(&cold).unwrap().hits, Some(5_001));
            system.latency(&cold).unwrap();
            Measurable::verify(&system, &cold, &Bar::default()).unwrap();
            system.timeline(&cold).unwrap();
            assert_eq!(system.asked.load(Ordering::Relaxed), 4 * 5_001);
            assert_eq!(system.cleared.load(Ordering::Relaxed), 4);
        });
    }
}

#[test]
fn keys_to_warm_up_with_take_the_place_of_the_passs_own() {
    with_workload(1, 3, |workload| {
        let keys = [1, 2, 3];
        let system = echo(u64::MAX, None);
        system.throughput(&Workload { warm_up: Some(&keys), ..*workload }).unwrap();
        assert_eq!(system.asked.load(Ordering::Relaxed), 5_001 + 3 * keys.len());
    });
}

#[test]
fn a_timeline_has_every_stretch_once_in_any_number_of_threads() {
    for threads in [1, 2, 7] {
        with_workload(1, threads, |workload| {
            let workload = Workload { stretch: Some(500), ..*workload };
            let points = echo(u64::MAX, None).timeline(&workload).unwrap();
            let ends: Vec<u64> = points.iter().map(|point| point.lookups).collect();
            let mut expected: Vec<u64> = (1..=10).map(|i| i * 500).collect();
            expected.push(5_001);
            assert_eq!(ends, expected);
            assert!(points.iter().all(|point| point.ops_per_s > 0.0));
            if threads == 1 {
                assert!(points.iter().all(|point| point.hit_rate == Some(1.0)));
            }
        });
    }
}

#[test]
fn parts_follow_each_other() {
    let requests = Requests { keys: (0..10).collect(), expected: (10..20).collect(), notes: Vec::new() };
    let requests = U64Keys::stream(&requests);
    let part = Lookups::part(&requests, 2, 3);
    assert_eq!((part.keys, part.expected, part.len()), (&[6, 7, 8][..], &[16, 17, 18][..], 3));
    assert_eq!(Lookups::part(&requests, 0, 1).keys, Lookups::all(&requests).keys);
}

#[test]
fn a_failing_system_ends_every_pass_with_its_name() {
    with_workload(1, 2, |workload| {
        let system = echo(u64::MAX, Some(workload.lookups.keys[5_000]));
        for error in [
            Measurable::verify(&system, workload, &Bar::default()).unwrap_err(),
            system.throughput(workload).unwrap_err(),
            system.latency(workload).unwrap_err(),
        ] {
            assert!(format!("{error:#}").contains("echo: the memory node is gone"), "{error:#}");
        }
    });
}

#[test]
fn systems_take_turns_and_the_median_pass_counts() {
    with_workload(1, 1, |workload| {
        let systems: [&dyn Measurable<U64Keys>; 2] = [&echo(2, None), &echo(3, None)];
        let passes = rounds(&systems, |_| *workload, 3, (MemoryPages::Ordinary, &Bar::default())).unwrap();
        assert_eq!(passes.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    });
    let pass = |ms| Pass { elapsed: Duration::from_millis(ms), ..Pass::default() };
    assert_eq!(median(&[pass(30), pass(10), pass(20)]).unwrap().elapsed.as_millis(), 20);
    assert_eq!(median(&[pass(30), pass(10)]).unwrap().elapsed.as_millis(), 30, "not the faster one");
    assert!(median(&[]).is_none());
}

/// Bytes in huge pages of the mapping that has this.
fn huge_bytes(of: &[u8]) -> u64 {
    let address = of.as_ptr().addr() + of.len() / 2;
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let is_of = |line: &str| {
        let ends = line.split_ascii_whitespace().next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let range = ends.and_then(|(start, end)| Some(number(start)?..number(end)?));
        range.is_some_and(|range| range.contains(&address))
    };
    let mut lines = maps.lines().skip_while(|line| !is_of(line));
    let huge = lines.find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    huge.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The quickstart measured maps in ordinary pages beside a memory node in huge ones.
#[test]
fn what_rounds_measure_lies_in_the_pages_that_are_told() {
    let held = vec![1_u8; 64 << 20];
    let before = huge_bytes(&held);
    with_workload(1, 1, |workload| {
        let system = echo(2, None);
        let systems: [&dyn Measurable<U64Keys>; 1] = [&system];
        rounds(&systems, |_| *workload, 1, (MemoryPages::Huge, &Bar::default())).unwrap();
    });
    let after = huge_bytes(&held);
    if before > 0 || fpcache_fabric::memory::merge_own_memory().huge == 0 {
        eprintln!("skipped: it was in huge pages before, or this kernel merges none");
        return;
    }
    assert!(after >= 32 << 20, "{after} bytes are in huge pages");
}
