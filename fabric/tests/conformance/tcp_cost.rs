//! A measurement of what a memory node's processor spends on a READ over sockets, and on
//! connections that are idle or stuck: of the threads' processor time, which other load disturbs
//! less than elapsed time:
//! `cargo test --release -p fpcache-fabric --test conformance --locked -- --ignored --nocapture
//! --test-threads 1 cost_of`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::suite::TestService;
use fpcache_fabric::shm::PROTOCOL_VERSION;
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_fabric::{Export, HugePages, OneRegion, RegionName, Serving, SharedMemory};

const REGION_BYTES: usize = 64 << 20;
/// Bytes of a READ, and of what lands.
const READ: u32 = 130;
const LANDED: usize = 136;
const REPLY_HEAD: usize = 16;
/// How long the cost of a READ is measured, and how long each time it is compared.
const MEASURED: Duration = Duration::from_secs(2);
const COMPARED: Duration = Duration::from_millis(300);
const ROUNDS: usize = 60;

/// A client's socket, and the bytes of its welcome.
fn admitted(port: u16) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut hello = b"FPFABTCP".to_vec();
    hello.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    hello.resize(64, 0);
    socket.write_all(&hello).unwrap();
    socket.read_exact(&mut [0; 128]).unwrap();
    socket
}

/// `count` frames of `reads` READs each, from anywhere in the region.
fn frames(count: usize, reads: u32) -> Vec<u8> {
    let (mut bytes, mut state) = (Vec::new(), 1u64);
    for tag in 0..count {
        bytes.extend((reads * 16).to_le_bytes());
        bytes.extend(reads.to_le_bytes());
        bytes.extend((tag as u16).to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0, 0]);
        for _ in 0..reads {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (state >> 20) % (REGION_BYTES as u64 - 200) / 8 * 8;
            bytes.extend(offset.to_le_bytes());
            bytes.extend(READ.to_le_bytes());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// Processor time of the threads that serve sockets: of their own, to a hundredth of a second, and
/// with the system calls'; in nanoseconds.
fn processor_time() -> (f64, f64) {
    let (mut own, mut all) = (0.0, 0.0);
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if name.contains("(fpcache-io") {
            own += rest.split(' ').nth(11).unwrap().parse::<f64>().unwrap() * 1e7;
            let ran = fs::read_to_string(task.join("schedstat")).unwrap();
            all += ran.split(' ').next().unwrap().parse::<f64>().unwrap();
        }
    }
    (own, all)
}

/// Nanoseconds of the memory node's processor per READ, its own and all, under one client that has
/// its frames under way.
fn per_read(port: u16, reads: u32, during: Duration) -> (f64, f64) {
    let (count, mut socket) = (if reads == 1 { 256 } else { 16 }, admitted(port));
    let (asked, mut landed) = (frames(count, reads), vec![0; count * (REPLY_HEAD + reads as usize * LANDED)]);
    let mut once = || {
        socket.write_all(&asked).unwrap();
        socket.read_exact(&mut landed).unwrap();
    };
    once();
    let ((own, all), begun, mut done) = (processor_time(), Instant::now(), 0.0);
    while begun.elapsed() < during {
        once();
        done += (count * reads as usize) as f64;
    }
    let after = processor_time();
    ((after.0 - own) / done, (after.1 - all) / done)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A peer that asks for as much as it can, and reads nothing.
fn stuck(port: u16) -> TcpStream {
    let mut socket = admitted(port);
    socket.set_nonblocking(true).unwrap();
    let (asked, begun) = (frames(64, 64), Instant::now());
    while begun.elapsed() < Duration::from_millis(300) {
        match socket.write(&asked) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(10)),
            other => drop(other.unwrap()),
        }
    }
    socket
}

/// Memory of this process that is no region's.
fn own_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A memory node over sockets, with one thread for them.
struct Node {
    port: u16,
    _region: SharedMemory,
    _serving: Serving,
}

impl Node {
    fn start() -> Self {
        let (region, fd) = SharedMemory::create_memfd("region", REGION_BYTES, HugePages::No).unwrap();
        region.fill_words(0, REGION_BYTES / 8, 7).unwrap();
        // Those who read nothing stay for all of the measurement.
        let read_time = Duration::from_secs(600);
        let options = ListenOptions { io_threads: 1, read_time, ..ListenOptions::default() };
        let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
        let port = listener.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
        let export = Export::new(&region, fd, 1).unwrap().with_watched(0);
        let service = OneRegion::new(RegionName::default(), export, TestService::default());
        Self { port, _region: region, _serving: listener.spawn(service).unwrap() }
    }
}

#[test]
#[ignore = "a measurement of a minute, of a release build"]
fn cost_of_a_read() {
    let node = Node::start();
    for (reads, most) in [(64, 100.0), (1, 400.0)] {
        let figures: Vec<_> = (0..3).map(|_| per_read(node.port, reads, MEASURED)).collect();
        let own = median(figures.iter().map(|figure| figure.0).collect());
        let all = median(figures.iter().map(|figure| figure.1).collect());
        println!("frames of {reads}: {own:.0} ns per READ, {all:.0} with the system calls");
        assert!(own <= most, "{own} ns per READ in frames of {reads}");
    }
}

/// Three memory nodes in turns: one has no other connections, one has idle ones, one has some that
/// ask and read nothing.
#[test]
#[ignore = "a measurement of a minute, of a release build"]
fn cost_of_connections_that_are_idle_or_stuck() {
    let [alone, idle, held_up] = [(); 3].map(|()| Node::start());
    let _idle: Vec<TcpStream> = (0..256).map(|_| admitted(idle.port)).collect();
    let before = own_kib();
    let _stuck: Vec<TcpStream> = (0..16).map(|_| stuck(held_up.port)).collect();
    let bytes = own_kib().saturating_sub(before);
    let (mut ratios, mut held_up_ratios) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let [alone, idle, held_up] =
            [&alone, &idle, &held_up].map(|node| per_read(node.port, 64, COMPARED).1);
        ratios.push(idle / alone - 1.0);
        held_up_ratios.push(held_up / alone - 1.0);
    }
    println!("256 idle: {:.1} % more per READ", 100.0 * median(ratios));
    println!("16 stuck: {:.1} % more per READ; {bytes} KiB", 100.0 * median(held_up_ratios));
    assert!(bytes <= 64 << 10, "{bytes} KiB");
}
