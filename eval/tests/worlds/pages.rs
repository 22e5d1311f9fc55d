//! Worlds of more segments than some clients have models of at a time.

use std::cell::RefCell;
use std::time::Duration;

use fpcache_client::{CacheConfig, ClientConfig};
use fpcache_sim::{Faults, Random, SimOptions, World, explore};

use crate::caller::{Mix, Part, Queue};
use crate::play::{DEADLINE, Play, SMALL_BUDGET, Tally, any_way, play};
use crate::{STORM_OVER_CLIENTS, draw_without_queues, few};

/// Keys that are there at first: enough for their directory to have several pages, of which a small
/// budget holds one.
const LOADED: u64 = 3_000;
/// Keys that change, beside each other.
const CHANGING: u64 = 48;

/// Few keys among many come and go. Of those who read, some have models in pages; and of these,
/// some look no key up.
pub fn in_pages(seed: u64) -> Play {
    let mut drawn = draw_without_queues(seed, None);
    let mut random = Random::new(seed ^ 0x9a6e_5000);
    let stride = random.between(2, 9);
    let all = || (1..=LOADED).map(|place| place * stride);
    let first = random.below(LOADED - CHANGING) * stride;
    let changing: Vec<u64> = (first + 1..).take(CHANGING as usize).collect();
    drawn.bytes = false;
    drawn.node.region_bytes = 1 << 20;
    drawn.node.loaded = all().collect();
    // The last reader looks at each of these, and scans all.
    drawn.keys = changing.clone();
    let mut part = |name: &str, config: Option<ClientConfig>, mix, calls, keys: Vec<u64>| {
        let (way, any) = any_way(&mut random);
        let rest = (Duration::from_micros(random.between(1, 100)), random.between(1, 10));
        Part {
            name: format!("{name}, {}", if config.is_some() { "paged" } else { &way }),
            config: config.unwrap_or(any),
            mix,
            calls,
            in_flight: 1,
            keys,
            queue: Queue::default(),
            rest,
        }
    };
    let paged = ClientConfig::default().with_deadline(DEADLINE).with_cache(CacheConfig::of(SMALL_BUDGET));
    let few: Vec<u64> = changing.iter().copied().chain(all().step_by(500)).collect();
    let mut parts = vec![
        part("writer", None, Mix::CHURN, 80, changing.clone()),
        part("writer", None, Mix::CHURN, 80, changing),
        part("around keys", Some(paged.clone()), Mix::AROUND, 40, few.clone()),
    ];
    if seed.is_multiple_of(2) {
        parts.push(part("reader", Some(paged), Mix { nearest: 2, ..Mix::READS }, 40, few));
    }
    drawn.parts = parts;
    drawn
}

#[test]
fn clients_whose_models_lie_in_pages_read_whatever_memory_and_network_do() {
    for (kind, faults, first) in
        [("weather", Faults::WEATHER, 12_000_000), ("storm over clients", STORM_OVER_CLIENTS, 13_000_000)]
    {
        let tally = RefCell::new(Tally::default());
        explore(few(first), &SimOptions { faults, ..SimOptions::default() }, |world: &mut World| {
            play(world, &in_pages(world.seed()), &tally)
        });
        let tally = tally.into_inner();
        println!("in pages, {kind}: {tally:?}");
        assert!(tally.worlds < 20 || tally.paged > tally.worlds, "models lie in pages: {tally:?}");
        assert!(tally.worlds < 20 || tally.lives.rebuilds > tally.worlds, "{tally:?}");
    }
}
