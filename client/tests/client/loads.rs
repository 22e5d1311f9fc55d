//! The end of a load, whose answer may be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fpcache_client::{ClientConfig, ClientError, TableClient, U64Keys};

use crate::common::TestKeys;
use crate::proxies::{Towards, stand_before};
use crate::remote::Node;

/// Longer than any request here but the chunk of records.
const SHORT: usize = 512;

/// It was told as a failure that may be repeated, though all records were there.
#[test]
fn a_load_whose_end_is_not_answered_is_of_unknown_outcome() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let (ends, is_silent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (ending, silent) = (Arc::clone(&ends), Arc::clone(&is_silent));
    // Says nothing from the request on that ends the load.
    let url = stand_before(node.url(), move || {
        let (ending, silent) = (Arc::clone(&ending), Arc::clone(&silent));
        move |towards, bytes: &[u8]| {
            if towards == Towards::Node && bytes.len() < SHORT && ending.load(Ordering::SeqCst) {
                silent.store(true, Ordering::SeqCst);
            }
            while towards == Towards::Client && silent.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    });
    let config = ClientConfig::default().with_table("t".parse().unwrap());
    let client = TableClient::<U64Keys>::connect_with(&url, config.with_deadline(Duration::from_secs(1)));
    let client = client.unwrap();
    let mut load = client.load(<U64Keys as TestKeys>::parameters(), 0).unwrap();
    (0..1_000u64).for_each(|key| load.push(key, &key.to_le_bytes()).unwrap());
    ends.store(true, Ordering::SeqCst);
    let error = load.finish().unwrap_err();
    assert!(matches!(error, ClientError::OutcomeUnknown { .. }) && !error.is_retryable(), "{error}");
    assert!(is_silent.load(Ordering::SeqCst), "it was the end that was not answered");
    is_silent.store(false, Ordering::SeqCst);
    ends.store(false, Ordering::SeqCst);
    assert_eq!(node.client::<U64Keys>(0, "t", ClientConfig::default()).stats().unwrap().keys, 1_000);
}
