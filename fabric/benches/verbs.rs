//! Costs of verbs over mapped memory: READs in cache, batches of READs that miss the cache,
//! requests, and stores of the memory node; and of batches and requests over sockets.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up has nothing to measure")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::tcp::{self, Listener, TcpAddress};
use fpcache_fabric::{
    Batch, ClientId, Connection, Deadline, Endpoint, Export, Handled, HugePages, NodeMemory, OneRegion,
    RegionName, RemoteAddr, Service, SharedMemory,
};

struct Echo;

impl Service for Echo {
    fn handle(&mut self, _: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        reply.extend_from_slice(request);
        Handled::Now
    }
}

fn hub(len: usize, huge: HugePages) -> Hub {
    let region = SharedMemory::anonymous_with(len, huge).unwrap();
    // Untouched pages would all be the kernel's one zero page, which is always in cache.
    for page in (0..len).step_by(4096) {
        region.store_relaxed(page as u64, page as u64).unwrap();
    }
    Hub::new(Arc::new(region), LocalOptions::default()).unwrap()
}

fn in_cache(c: &mut Criterion) {
    let hub = hub(1 << 16, HugePages::No);
    let mut endpoint = hub.connect().unwrap().endpoint();
    let mut group = c.benchmark_group("in_cache");
    for len in [8, 24, 64, 264, 520] {
        let mut batch = Batch::new();
        group.bench_function(format!("run_read_{len}"), |b| {
            b.iter(|| {
                batch.clear();
                let landing = batch.read(black_box(RemoteAddr::region(4096)), len);
                endpoint.run(&mut batch).unwrap();
                batch.u64(landing)
            });
        });
    }
    let mut words = [0u64; 65];
    group.bench_function("read_words_520", |b| {
        b.iter(|| hub.region().read_words(black_box(4096), &mut words).unwrap());
    });
    group.finish();
}

/// Unpredictable offsets, from a fixed seed (a 64-bit linear congruential generator's high bits).
struct Offsets(u64);

impl Offsets {
    fn next(&mut self, len: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(len - 1024)) >> 64) as u64 / 8 * 8
    }
}

fn out_of_cache(c: &mut Criterion) {
    let len = 2 << 30;
    for (pages, huge) in [("small_pages", HugePages::No), ("huge_pages", HugePages::IfAvailable)] {
        let hub = hub(len, huge);
        let mut endpoint = hub.connect().unwrap().endpoint();
        let mut group = c.benchmark_group(format!("random_2GiB_{pages}"));
        let mut offsets = Offsets(1);
        let mut batch = Batch::new();
        for size in [24, 520] {
            group.bench_function(format!("32_in_one_batch_{size}"), |b| {
                b.iter(|| {
                    batch.clear();
                    for _ in 0..32 {
                        batch.read(RemoteAddr::region(offsets.next(len as u64)), size);
                    }
                    endpoint.run(&mut batch).unwrap();
                });
            });
            let mut buffer = vec![0u64; 32 * size / 8];
            group.bench_function(format!("32_copied_in_order_{size}"), |b| {
                b.iter(|| {
                    for landing in buffer.chunks_exact_mut(size / 8) {
                        hub.region().read_words(offsets.next(len as u64), landing).unwrap();
                    }
                });
            });
            group.bench_function(format!("32_dependent_{size}"), |b| {
                b.iter(|| {
                    let mut last = 0;
                    for _ in 0..32 {
                        batch.clear();
                        let at = offsets.next(len as u64) ^ (last & 8);
                        let landing = batch.read(RemoteAddr::region(at), size);
                        endpoint.run(&mut batch).unwrap();
                        last = batch.words(landing)[size / 8 - 1];
                    }
                    last
                });
            });
        }
        group.finish();
    }
}

/// Round trips of single calls, which a mean hides: under foreign load the few slow ones make it.
fn percentiles(name: &str, connection: &impl Connection, calls: usize) {
    let (request, mut reply) = ([7; 64], Vec::new());
    let mut times: Vec<_> = (0..calls)
        .map(|_| {
            let started = Instant::now();
            connection.call(&request, &mut reply, Deadline::NONE).unwrap();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    println!("{name}: p1 {:?}, p10 {:?}, p50 {:?}, p99 {:?}", at(0.01), at(0.1), at(0.5), at(0.99));
}

/// Both sides on one processor, as on a busy machine.
fn requests_on_one_processor(_: &mut Criterion) {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let hub = hub(1 << 16, HugePages::No);
    // The serving thread inherits the one processor.
    let _serving = hub.spawn(Echo).unwrap();
    for _ in 0..3 {
        percentiles("echo_64 on one processor", &hub.connect().unwrap(), 10_000);
    }
    rustix::thread::sched_setaffinity(None, &before).unwrap();
}

/// A fingerprint stored by compare-and-swap, and by the only writer's load and store.
fn fingerprints(c: &mut Criterion) {
    let memory = SharedMemory::anonymous(1 << 16).unwrap();
    let mut group = c.benchmark_group("store");
    let mut offset = 0;
    for (name, merges) in [("write_bytes_2", false), ("merge_bytes_2", true)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                offset = (offset + 2) % (1 << 12);
                let bytes = black_box([1, 2]);
                if merges {
                    memory.merge_bytes(offset, &bytes)
                } else {
                    NodeMemory::write_bytes(&memory, offset, &bytes)
                }
                .unwrap();
            });
        });
    }
    group.finish();
}

fn requests(c: &mut Criterion) {
    let hub = hub(1 << 16, HugePages::No);
    let _serving = hub.spawn(Echo).unwrap();
    let connection = hub.connect().unwrap();
    for _ in 0..3 {
        percentiles("echo_64", &connection, 100_000);
    }
    let mut reply = Vec::new();
    let mut group = c.benchmark_group("call");
    for len in [64, 64 << 10] {
        let request = vec![7; len];
        group.bench_function(format!("echo_{len}"), |b| {
            b.iter(|| connection.call(&request, &mut reply, Deadline::NONE).unwrap());
        });
    }
    group.finish();
}

/// Batches of READs at random offsets of 1 GiB, several of them in flight, and calls.
fn over_sockets(c: &mut Criterion) {
    let len = 1 << 30;
    let (region, fd) = SharedMemory::create_memfd("bench", len, HugePages::No).unwrap();
    for page in (0..len).step_by(4096) {
        region.store_relaxed(page as u64, page as u64).unwrap();
    }
    let export = Export::new(&region, fd, 1).unwrap().with_watched(0);
    let path = std::env::temp_dir().join(format!("fpcache-bench-{}.sock", std::process::id()));
    let addresses = ["tcp://127.0.0.1:0".parse().unwrap(), TcpAddress::at_path(path).unwrap()];
    let listener = Listener::bind(&addresses, tcp::ListenOptions::default()).unwrap();
    let addresses = listener.addresses().to_vec();
    let _serving = listener.spawn(OneRegion::new(RegionName::default(), export, Echo)).unwrap();
    for (address, name) in addresses.iter().zip(["tcp", "unix"]) {
        let connection = tcp::connect(address, tcp::ConnectOptions::default()).unwrap();
        let mut endpoint = connection.endpoint();
        let mut offsets = Offsets(1);
        let mut group = c.benchmark_group(name);
        for (reads, size) in [(1, 56), (64, 56), (64, 130), (64, 520)] {
            let mut batch = Batch::new();
            group.bench_function(format!("{reads}_reads_of_{size}"), |b| {
                b.iter(|| {
                    batch.clear();
                    for _ in 0..reads {
                        batch.read(RemoteAddr::region(offsets.next(len as u64)), size);
                    }
                    endpoint.run(&mut batch).unwrap();
                });
            });
        }
        group.bench_function("4_batches_of_64_reads_of_56_in_flight", |b| {
            let mut batches: Vec<Batch> = (0..4).map(|_| Batch::new()).collect();
            b.iter(|| {
                for mut batch in batches.drain(..) {
                    batch.clear();
                    for _ in 0..64 {
                        batch.read(RemoteAddr::region(offsets.next(len as u64)), 56);
                    }
                    endpoint.post(batch).unwrap();
                }
                while batches.len() < 4 {
                    batches.extend(endpoint.poll().map(|completion| completion.batch));
                }
            });
        });
        group.finish();
        percentiles(&format!("{name}: echo_64"), &connection, 20_000);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = in_cache, out_of_cache, fingerprints, requests, requests_on_one_processor, over_sockets
}
criterion_main!(benches);
