//! Lookups of one thread while another one updates a million records a second of the same table:
//! how much of their speed readers keep.
//!
//! `cargo bench -p fpcache-client --bench beside_a_writer --features embedded`, on two free cores.

use std::error::Error;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{Changes, Client, TableParameters, WriteStatus};

const KEYS: u64 = 4 << 20;
/// Updates that are sent together.
const TOGETHER: u64 = 64;
const UPDATES_PER_SECOND: u64 = 1_000_000;
const ROUNDS: u32 = 5;
const ROUND: Duration = Duration::from_secs(1);

/// Keys at random distances, in no order: splitmix64 (Steele, Lea and Flood, 2014).
fn key(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Updates records at a steady rate until it is told to end, and says how many.
fn update(client: &Client, ends: &AtomicBool) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let (begun, mut updates, mut replies) = (Instant::now(), 0, Vec::new());
    while !ends.load(Ordering::Relaxed) {
        let mut changes = Changes::new();
        for number in updates..updates + TOGETHER {
            changes.update(key(number * 7 % KEYS), &number.to_le_bytes());
        }
        client.apply(&changes, &mut replies)?;
        assert!(replies.iter().all(|reply| reply.status == WriteStatus::Done), "every key is there");
        updates += TOGETHER;
        let due = Duration::from_nanos(updates * 1_000_000_000 / UPDATES_PER_SECOND);
        while begun.elapsed() < due && !ends.load(Ordering::Relaxed) {
            spin_loop();
        }
    }
    Ok(updates)
}

/// Lookups in a round, one by one or in groups.
fn look_up(client: &Client, group: usize) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut reader = client.reader();
    let (mut values, mut found) = (vec![0; group], vec![false; group]);
    let (begun, mut lookups) = (Instant::now(), 0);
    while begun.elapsed() < ROUND {
        for _ in 0..256 / group {
            let keys: Vec<u64> = (lookups..lookups + group as u64).map(|n| key(n * 13 % KEYS)).collect();
            match keys[..] {
                [key] => assert!(reader.get_with(key, <[u8]>::len)?.is_some()),
                _ => assert_eq!(reader.multi_get_u64(&keys, &mut values, &mut found)?, group),
            }
            lookups += group as u64;
        }
    }
    Ok(lookups)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = Client::embedded(512 << 20)?;
    let mut keys: Vec<u64> = (0..KEYS).map(key).collect();
    keys.sort_unstable();
    let mut load = client.load(TableParameters::default(), KEYS)?;
    for key in keys {
        load.push(key, &key.to_le_bytes())?;
    }
    load.finish()?;
    for group in [1, 32] {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let (ends, written) = (AtomicBool::new(false), AtomicU64::new(0));
        for _ in 0..ROUNDS {
            alone.push(look_up(&client, group)?);
            ends.store(false, Ordering::Relaxed);
            thread::scope(|scope| -> Result<(), Box<dyn Error + Send + Sync>> {
                let writer = scope.spawn(|| update(&client, &ends));
                let looked = look_up(&client, group);
                ends.store(true, Ordering::Relaxed);
                written.fetch_add(writer.join().expect("a writer does not panic")?, Ordering::Relaxed);
                beside.push(looked?);
                Ok(())
            })?;
        }
        alone.sort_unstable();
        beside.sort_unstable();
        let median = |rates: &[u64]| rates[rates.len() / 2] as f64 / ROUND.as_secs_f64() / 1e6;
        println!(
            "in groups of {group:>2}: {:.2} M lookups/s alone, {:.2} M beside {:.2} M updates/s: {:.2} of it",
            median(&alone),
            median(&beside),
            written.load(Ordering::Relaxed) as f64 / f64::from(ROUNDS) / ROUND.as_secs_f64() / 1e6,
            median(&beside) / median(&alone),
        );
    }
    Ok(())
}
