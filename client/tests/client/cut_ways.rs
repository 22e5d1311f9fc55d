//! Connections that break anywhere, in the midst of a frame or between two: what was acknowledged
//! is there, nothing is made twice, and no answer is wrong.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{Client, ClientConfig, ClientError, Inserted, TableName, TableParameters, U64Keys};

use crate::common::{PATIENCE, load};
use crate::proxies::{Towards, stand_before};
use crate::remote::{Node, random};

/// A way to a memory node that breaks again and again: each connection after some messages, each
/// way, in the midst of one.
struct CutWay {
    url: String,
    cuts: Arc<AtomicU64>,
}

impl CutWay {
    /// To the memory node at `url`, after up to `most` messages.
    fn to(url: &str, most: u64, seed: u64) -> Self {
        let to = url.strip_prefix("tcp://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let cuts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&cuts);
        // Ends with the process; of each connection, with that.
        thread::spawn(move || {
            let mut state = seed;
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(node) = TcpStream::connect(&to) else { continue };
                // Else small frames wait for acknowledgements.
                let _ = (client.set_nodelay(true), node.set_nodelay(true));
                let ends = [(client.try_clone(), node.try_clone()), (Ok(node), Ok(client))];
                for (from, to) in ends {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let (left, cuts) = (random(&mut state) % most, Arc::clone(&counted));
                    thread::spawn(move || pass_on(from, to, left, &cuts));
                }
            }
        });
        Self { url, cuts }
    }

    fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

/// Passes `left` messages on and half of one more, then breaks both ways.
fn pass_on(mut from: TcpStream, mut to: TcpStream, mut left: u64, cuts: &AtomicU64) {
    let mut bytes = [0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let passed = if left == 0 { len / 2 } else { len };
        if to.write_all(&bytes[..passed]).is_err() {
            break;
        }
        if left == 0 {
            cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
        left -= 1;
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn value(key: u64, edition: u64) -> Vec<u8> {
    (key << 32 | edition).to_le_bytes().to_vec()
}

/// What the table may hold of keys that one thread changes: of each the value that was acknowledged
/// last, or those that may have been made since.
type Known = BTreeMap<u64, Vec<Option<Vec<u8>>>>;

/// Whether the change was made, as far as it is known.
fn made(outcome: Result<bool, ClientError>) -> Option<bool> {
    match outcome {
        Ok(made) => Some(made),
        Err(ClientError::OutcomeUnknown { .. }) => None,
        Err(error) if error.is_retryable() => Some(false),
        Err(error) => panic!("{error}"),
    }
}

/// One of a thread's operations.
fn operate(client: &Client, known: &mut Known, (first, edition): (u64, u64), state: &mut u64) {
    let key = first + random(state) % 64;
    let may_be = known.entry(key).or_insert_with(|| vec![None]);
    let new = Some(value(key, edition));
    match random(state) % 6 {
        0 | 1 => match client.get(key) {
            Ok(found) => assert!(may_be.contains(&found), "{key}: {found:?}, not one of {may_be:?}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        },
        2 => match client.put(key, &value(key, edition)) {
            Ok(()) => *may_be = vec![new],
            error => {
                if made(error.map(|()| true)).is_none() {
                    may_be.push(new);
                }
            }
        },
        3 => match made(client.insert(key, &value(key, edition)).map(Inserted::is_new)) {
            Some(true) => {
                assert!(may_be.contains(&None), "{key} was there: {may_be:?}");
                *may_be = vec![new];
            }
            // Also where an attempt of it was made and another one was told so.
            Some(false) => {}
            None => may_be.push(new),
        },
        4 => match made(client.delete(key)) {
            Some(true) => *may_be = vec![None],
            Some(false) => {}
            None => may_be.push(None),
        },
        _ => match client.multi_get(&[first, key, first + 63]) {
            Ok(found) => assert!(may_be.contains(&found[1]), "{key}: {:?}, not one of {may_be:?}", found[1]),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        },
    }
}

#[test]
fn connections_cut_anywhere_lose_nothing_and_answer_nothing_wrong() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let table: TableName = "t".parse().unwrap();
    let config = ClientConfig::default().with_table(table).with_deadline(Duration::from_millis(500));
    let (threads, operations) = (3, 600);
    let way = CutWay::to(node.url(), 80, 0x9e37_79b9_7f4a_7c15);
    let known: Vec<Known> = thread::scope(|scope| {
        let work = |number: u64| {
            let (url, way, config) = (way.url.clone(), &way, config.clone());
            move || {
                let (mut known, mut state) = (Known::new(), 0x1234_5678 + number);
                // The way may break before a client is let in.
                let client = std::iter::repeat_with(|| Client::connect_with(&url, config.clone()))
                    .find_map(Result::ok);
                let client = client.unwrap();
                for edition in 0..operations {
                    operate(&client, &mut known, (number * 1000, edition), &mut state);
                }
                assert!(way.cuts() > 10);
                known
            }
        };
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(work(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let straight = Client::connect_with(node.url(), config.with_deadline(PATIENCE)).unwrap();
    for (key, may_be) in known.iter().flatten() {
        let found = straight.get(*key).unwrap();
        assert!(may_be.contains(&found), "{key}: {found:?}, not one of {may_be:?}");
    }
}

/// A key that no other client changes is there because of this insert, or not at all: an insert
/// that says that there was one has met its own first attempt.
#[test]
fn an_insert_over_a_way_that_breaks_is_not_made_twice() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let table: TableName = "t".parse().unwrap();
    let config = ClientConfig::default().with_table(table).with_deadline(Duration::from_secs(1));
    let way = CutWay::to(node.url(), 80, 0xdead_beef_cafe_f00d);
    let client = std::iter::repeat_with(|| Client::connect_with(&way.url, config.clone()))
        .find_map(Result::ok)
        .unwrap();
    let mut acknowledged = 0u64;
    for key in 0..1500 {
        match client.insert(key, &value(key, 1)) {
            Ok(made) => {
                assert!(made.is_new(), "{key} was made by an attempt before");
                acknowledged += 1;
            }
            Err(error) => {
                assert!(error.is_retryable() || matches!(error, ClientError::OutcomeUnknown { .. }))
            }
        }
    }
    assert!(way.cuts() > 20 && client.counters().resent > 5, "{} cuts, {:?}", way.cuts(), client.counters());
    let straight = Client::connect_with(node.url(), config.with_deadline(PATIENCE)).unwrap();
    let there = straight.count(0, u64::MAX).unwrap();
    assert!((acknowledged..=1500).contains(&there), "{acknowledged} acknowledged, {there} there");
}

/// A read over a way that breaks.
type Call = fn(&Client) -> Result<(), ClientError>;

/// Has each of the calls judged on a thread of its own, as they take their time.
fn at_once<const CALLS: usize>(calls: [Call; CALLS], expect: impl Fn(usize, Call) + Sync) {
    thread::scope(|scope| {
        for (i, call) in calls.into_iter().enumerate() {
            let expect = &expect;
            scope.spawn(move || expect(i, call));
        }
    });
}

/// The answer to what is asked first is late, its way breaks, and then no one answers.
#[test]
fn the_time_before_a_way_breaks_is_the_calls() {
    const WITHIN: Duration = Duration::from_secs(4);
    let node = Node::start();
    node.make::<U64Keys>("t");
    let config = ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(WITHIN);
    let calls: [Call; 3] = [
        |client| client.get(1).map(drop),
        |client| client.multi_get(&[1, 2]).map(drop),
        |client| client.scan(0, 10).map(drop),
    ];
    at_once(calls, |i, call| {
        let (asked, is_late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let late = Arc::clone(&is_late);
        let address = stand_before(node.url(), move || {
            let (asked, late) = (Arc::clone(&asked), Arc::clone(&late));
            move |towards, _: &[u8]| {
                if towards == Towards::Node || !late.load(Ordering::SeqCst) {
                    return true;
                }
                let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                thread::sleep(if is_first { WITHIN * 3 / 4 } else { WITHIN * 10 });
                false
            }
        });
        let client = Client::connect_with(&address, config.clone()).unwrap();
        client.put(1, &value(1, 1)).unwrap();
        assert!(client.get(1).unwrap().is_some());
        is_late.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let error = call(&client).unwrap_err();
        assert!(error.is_retryable(), "{i}: {error}");
        assert!(begun.elapsed() < WITHIN * 13 / 8, "{i}: {:?}, {error}", begun.elapsed());
    });
}

/// Bytes that a scan is answered with, and nothing else is.
const MANY: usize = 16 << 10;

/// After it had reconnected, a scan that had got no answer had all of its time once more.
#[test]
fn a_scan_that_is_not_answered_has_no_more_time_over_another_way() {
    const WITHIN: Duration = Duration::from_secs(4);
    let node = Node::start();
    node.make::<U64Keys>("t");
    let config = ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(WITHIN);
    let calls: [Call; 3] = [
        |client| client.scan(0, 2_000).map(drop),
        |client| client.scan_back(u64::MAX, 2_000).map(drop),
        |client| client.count(0, u64::MAX).map(drop),
    ];
    let loader = node.client::<U64Keys>(0, "t", config.clone());
    load(&loader, TableParameters::default(), 0..2_000, 1).unwrap();
    at_once(calls, |i, call| {
        let (asked, is_late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let late = Arc::clone(&is_late);
        let address = stand_before(node.url(), move || {
            let (asked, late, answer) = (Arc::clone(&asked), Arc::clone(&late), AtomicUsize::new(0));
            move |towards, bytes: &[u8]| {
                if towards == Towards::Node {
                    answer.store(0, Ordering::SeqCst);
                    return true;
                }
                let len = answer.fetch_add(bytes.len(), Ordering::SeqCst) + bytes.len();
                if len < MANY || !late.load(Ordering::SeqCst) {
                    return true;
                }
                let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                thread::sleep(if is_first { WITHIN / 2 } else { WITHIN * 10 });
                false
            }
        });
        let client = Client::connect_with(&address, config.clone()).unwrap();
        call(&client).unwrap();
        is_late.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let error = call(&client).unwrap_err();
        assert!(error.is_retryable(), "{i}: {error}");
        assert_eq!(client.counters().reconnects, 1, "{i}");
        assert!(begun.elapsed() < WITHIN * 11 / 8, "{i}: {:?}, {error}", begun.elapsed());
    });
}
