//! Records that one thread changes all the time and others READ: with a guard, what lands is of one
//! moment.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Batch, CHANGED, Connection, Endpoint, REGION, RemoteAddr, SharedMemory};

/// Where the records begin: not at a line, so that they lie on two.
const FIRST: u64 = 4096 + 40;

/// Changes records of `stride` words by turns, as memory nodes do, until told to stop: the guard to
/// an odd number, all other words to half the even one that comes after it, the guard to that.
fn change(memory: &SharedMemory, stride: usize, records: usize, stops: &AtomicBool) {
    let mut edition = 0;
    while !stops.load(Ordering::Relaxed) {
        edition += 1;
        for record in 0..records {
            let at = FIRST + (record * stride * 8) as u64;
            memory.store_relaxed(at, 2 * edition + 1).unwrap();
            fence(Ordering::Release);
            memory.write_words(at + 8, &vec![edition + 1; stride - 1]).unwrap();
            fence(Ordering::Release);
            memory.store_relaxed(at, 2 * edition + 2).unwrap();
        }
    }
}

/// What became of records that were READ.
#[derive(Debug, Default)]
struct Seen {
    whole: u64,
    /// Were being written, or changed meanwhile.
    unsettled: u64,
    torn: u64,
}

impl Seen {
    fn take(&mut self, records: &[u64], stride: usize) {
        for record in records.chunks_exact(stride) {
            match record[0] {
                0 => {}
                CHANGED => self.unsettled += 1,
                odd if odd % 2 == 1 => self.unsettled += 1,
                even if record[1..].iter().all(|word| *word == even / 2) => self.whole += 1,
                _ => self.torn += 1,
            }
        }
    }
}

/// READs in every way there is until each has been used often enough, or too long.
fn read(stride: usize, records: usize, guarded: bool) -> Seen {
    let memory = Arc::new(SharedMemory::anonymous(1 << 16).unwrap());
    let hub = Hub::new(Arc::clone(&memory), LocalOptions::default()).unwrap();
    let mut endpoint = hub.connect().unwrap().endpoint();
    assert!(endpoint.guards());
    let stops = AtomicBool::new(false);
    let (mut seen, from) = (Seen::default(), RemoteAddr { area: REGION, offset: FIRST });
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| change(&memory, stride, records, &stops));
        let (mut batch, mut out) = (Batch::new(), vec![0; stride * records]);
        let bytes = out.len() * 8;
        let is_enough = |seen: &Seen| match guarded {
            true => seen.unsettled > 1_000 && seen.whole > 50_000 && begun.elapsed().as_millis() > 300,
            false => seen.torn > 0,
        };
        while !is_enough(&seen) && begun.elapsed() < Duration::from_secs(20) {
            for _ in 0..100 {
                batch.clear();
                let landing = match guarded {
                    true => batch.read_records(from, bytes, stride * 8),
                    false => batch.read(from, bytes),
                };
                endpoint.run(&mut batch).unwrap();
                seen.take(batch.words(landing), stride);
                match guarded {
                    true => endpoint.read_records(from, &mut out, stride).unwrap(),
                    false => endpoint.read_words(from, &mut out).unwrap(),
                }
                seen.take(&out, stride);
            }
        }
        stops.store(true, Ordering::Relaxed);
    });
    seen
}

#[test]
fn a_guarded_record_is_never_torn() {
    for (stride, records) in [(2, 1), (5, 1), (7, 40), (12, 1), (40, 3), (3, 100)] {
        let seen = read(stride, records, true);
        assert!(seen.torn == 0 && seen.whole > 0, "{records} of {stride} words: {seen:?}");
    }
}

/// So that the test above shows something.
#[test]
fn an_unguarded_one_is() {
    let torn: u64 = [(40, 3), (12, 1), (7, 40)].iter().map(|(s, r)| read(*s, *r, false).torn).sum();
    assert!(torn > 0);
}
