//! Readers without checksums on real memory: guards alone keep torn records from them, and without
//! guards they get some.
#![cfg(feature = "sabotage")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fpcache::sabotage::Sabotage;
use fpcache_client::{
    CacheConfig, ClientConfig, Plan, PlanChoice, RecordShape, TableClient, TableParameters, U64Keys,
};

const KEYS: u64 = 12;
const VALUE_BYTES: usize = 200;

fn value(edition: u64) -> Vec<u8> {
    edition.to_le_bytes().repeat(VALUE_BYTES / 8)
}

/// Reads keys in every way while they are updated all the time; how many values were read, and how
/// many mixtures of two.
fn read(sabotage: Sabotage, lasts: Duration, enough: u64) -> (u64, u64) {
    let base = ClientConfig::default();
    let writer = TableClient::<U64Keys>::embedded_with(4 << 20, base.clone()).unwrap();
    let shape = RecordShape::fixed(8, VALUE_BYTES as u32);
    let mut load = writer.load(TableParameters { shape, ..TableParameters::default() }, KEYS).unwrap();
    (0..KEYS).for_each(|key| load.push(key, &value(0)).unwrap());
    load.finish().unwrap();
    let plans = [Plan::TwoStage, Plan::Range, Plan::Speculative].map(PlanChoice::Fixed);
    let config = |plan, cache| base.clone().with_plan(plan).with_cache(cache).with_sabotage(sabotage);
    let mut readers: Vec<_> = plans.iter().map(|plan| writer.beside(config(*plan, None)).unwrap()).collect();
    readers.push(writer.beside(config(PlanChoice::Auto, Some(CacheConfig::of(64 << 10)))).unwrap());
    let ends = AtomicBool::new(false);
    let (mut values, mut torn) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for edition in 1.. {
                for key in 0..KEYS {
                    writer.update(key, &value(edition)).unwrap();
                }
                if ends.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let (begun, keys) = (Instant::now(), (0..KEYS).collect::<Vec<u64>>());
        let mut bytes = Vec::new();
        while begun.elapsed() < lasts && torn < enough {
            let mut take = |value: &[u8]| {
                values += 1;
                torn += u64::from(value.chunks(8).any(|word| word != &value[..8]));
            };
            for reader in &readers {
                // A record that is written all the time may be said to be so.
                for key in &keys {
                    if reader.get_into(*key, &mut bytes).is_ok() {
                        take(&bytes);
                    }
                }
                reader.multi_get(&keys).into_iter().flatten().flatten().for_each(|value| take(&value));
                reader.scan(0u64, KEYS as usize).into_iter().flatten().for_each(|(_, value)| take(&value));
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    (values, torn)
}

#[test]
fn guards_alone_keep_torn_records_from_readers() {
    let (values, torn) = read(Sabotage::NoChecksum, Duration::from_secs(3), u64::MAX);
    assert!(values > 1_000 && torn == 0, "{torn} of {values} values are torn");
}

/// So that the test above shows something.
#[test]
fn without_guard_and_checksum_some_are_torn() {
    let (values, torn) = read(Sabotage::Unguarded, Duration::from_secs(60), 1);
    assert!(torn > 0, "none of {values} values is torn");
}
