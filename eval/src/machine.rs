//! The machine of an experiment, and its speed during it.

use crate::pages::MemoryPages;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The commit this program was built from, where the build knew it; followed by `-dirty` if its
/// code was changed since.
pub const COMMIT: Option<&str> = option_env!("FPCACHE_COMMIT");

/// The machine. What the operating system does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Threads this process may run at once.
    pub cores: Option<usize>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: Option<String>,
}

impl Machine {
    /// Asks the operating system.
    pub fn detect() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            cpu: read("/proc/cpuinfo").and_then(|text| field(&text, "model name").map(str::to_owned)),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory_bytes: read("/proc/meminfo").and_then(|text| {
                let kilobytes = field(&text, "MemTotal")?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
                kilobytes.checked_mul(1024)
            }),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
        }
    }
}

/// The value of the first line `name : value`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// How fast memory was in the same run: figures of different runs, or machines, are compared by
/// these.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Calibration {
    /// Bytes of the buffer that was read.
    pub buffer_bytes: u64,
    /// Nanoseconds of one 8-byte read at a random place, each depending on the one before.
    pub random_read_ns: f64,
    /// Gigabytes (10⁹) per second copied from one half of the buffer to the other.
    pub copy_gb_s: f64,
    /// Nanoseconds of looking at the clock, which every recorded latency contains once.
    pub clock_read_ns: f64,
}

const LINE_WORDS: usize = 8;

/// Measures with a private buffer of `bytes` in such pages, rounded to whole cache lines; 256 MiB
/// take about a second.
pub fn calibrate(bytes: u64, pages: MemoryPages) -> Calibration {
    let lines = usize::try_from(bytes / (8 * LINE_WORDS as u64)).unwrap_or(usize::MAX).max(2);
    let mut buffer = one_cycle(lines);
    pages.apply();
    let random_read_ns = chase(&buffer, lines.min(1 << 21));
    let copy_gb_s = copy_rate(&mut buffer);
    Calibration {
        buffer_bytes: 8 * buffer.len() as u64,
        random_read_ns,
        copy_gb_s,
        clock_read_ns: clock_read_ns(),
    }
}

/// Cache lines whose first words lead through all of them in random order (Sattolo, Information
/// Processing Letters 22, 1986: a uniformly random permutation of a single cycle).
fn one_cycle(lines: usize) -> Vec<u64> {
    let mut buffer = vec![0u64; lines * LINE_WORDS];
    for line in 0..lines {
        buffer[line * LINE_WORDS] = (line * LINE_WORDS) as u64;
    }
    let mut state = 42u64;
    for line in (1..lines).rev() {
        let other = (split_mix(&mut state) % line as u64) as usize;
        buffer.swap(line * LINE_WORDS, other * LINE_WORDS);
    }
    buffer
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014,
/// figure 15).
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Nanoseconds per step along the cycle.
fn chase(buffer: &[u64], steps: usize) -> f64 {
    let mut at = 0;
    let start = Instant::now();
    for _ in 0..steps {
        at = buffer[at] as usize;
    }
    let elapsed = start.elapsed();
    black_box(at);
    elapsed.as_nanos() as f64 / steps as f64
}

/// The best of some copies: what interrupts one says nothing about the memory.
fn copy_rate(buffer: &mut [u64]) -> f64 {
    const COPIES: usize = 5;
    let (from, to) = buffer.split_at_mut(buffer.len() / 2);
    let bytes = 8 * from.len() as u64;
    let copy = |_| {
        let start = Instant::now();
        to[..from.len()].copy_from_slice(black_box(&*from));
        black_box(&*to);
        start.elapsed()
    };
    let best = (0..COPIES).map(copy).min().unwrap_or_default();
    bytes as f64 / best.as_nanos().max(1) as f64
}

fn clock_read_ns() -> f64 {
    const READS: u32 = 100_000;
    let start = Instant::now();
    for _ in 0..READS {
        black_box(Instant::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

/// Bytes that this machine could give.
///
/// # Errors
/// If the kernel does not say.
#[cfg(feature = "workbench")]
pub fn free_memory() -> anyhow::Result<u64> {
    use anyhow::Context as _;
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.context("/proc/meminfo has no MemAvailable")? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_visits_every_line() {
        let buffer = one_cycle(1_000);
        let (mut at, mut steps) = (0, 0);
        loop {
            at = buffer[at] as usize;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 1_000);
    }

    #[test]
    fn calibration_gives_positive_figures_whatever_the_buffer() {
        for bytes in [0, 1 << 20] {
            let c = calibrate(bytes, MemoryPages::Huge);
            assert!(c.random_read_ns > 0.0 && c.copy_gb_s > 0.0 && c.clock_read_ns > 0.0, "{c:?}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t: 1\nmodel name\t: A CPU: fast\n";
        assert_eq!(field(text, "model name"), Some("A CPU: fast"));
        assert_eq!(field(text, "cores"), None);
    }
}
