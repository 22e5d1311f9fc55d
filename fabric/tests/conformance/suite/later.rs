//! Replies that come later, work between requests, and waking the memory node.

use std::time::{Duration, Instant};

use fpcache_fabric::{Connection, Deadline, FabricError};

use super::{Fixture, TestService, too_late};

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// A reply that comes later is the call's own, of every size; a call after one that was given up
/// waits for both.
pub fn replies_may_come_later<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let mut reply = vec![1, 2, 3];
    for milliseconds in [0, 1, 30] {
        let started = Instant::now();
        connection.call(&[TestService::LATER, milliseconds, 7], &mut reply, limit()).unwrap();
        assert_eq!(reply, [milliseconds, 7]);
        assert!(started.elapsed() >= Duration::from_millis(u64::from(milliseconds)));
    }
    let mut long: Vec<u8> =
        (0..connection.max_request().min(connection.max_reply() + 1)).map(|i| i as u8).collect();
    (long[0], long[1]) = (TestService::LATER, 0);
    connection.call(&long, &mut reply, limit()).unwrap();
    assert!(reply == long[1..], "a long reply differs");
    if connection.max_request() > connection.max_reply() + 1 {
        long.push(0);
        let error = connection.call(&long, &mut reply, limit()).unwrap_err();
        assert!(matches!(error, FabricError::ReplyTooLong { .. }), "{error}");
    }

    let mut repeated = 0;
    for _ in 0..3 {
        let calls = too_late(connection, &[TestService::LATER, 250, 1], Duration::from_millis(10));
        repeated += calls - 1;
        // While the reply to the one before is owed, and with one that comes later itself.
        connection.call(&[TestService::LATER, 1, 2], &mut reply, limit()).unwrap();
        assert_eq!(reply, [1, 2]);
        connection.call(&[TestService::ECHO, 9], &mut reply, limit()).unwrap();
        assert_eq!(reply, [9]);
    }
    connection.call(&[TestService::COUNT], &mut reply, limit()).unwrap();
    let handled = u64::from_le_bytes(reply.as_slice().try_into().unwrap());
    let asked = 14 + repeated;
    assert!((10..=asked).contains(&handled), "{handled} executions of {asked} requests");
}

/// A thread of the memory node wakes it when a reply has become ready, asleep or not.
pub fn a_waker_wakes_the_memory_node<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let mut reply = Vec::new();
    for milliseconds in [0, 0, 1, 40, 0, 1] {
        let started = Instant::now();
        connection.call(&[TestService::WAKE, milliseconds, 3], &mut reply, limit()).unwrap();
        assert_eq!(reply, [milliseconds, 3]);
        assert!(started.elapsed() >= Duration::from_millis(u64::from(milliseconds)));
    }
}

/// Background work goes on when no request comes, and does not hold requests up.
pub fn work_goes_on_between_requests<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let mut reply = Vec::new();
    let mut left = || {
        connection.call(&[TestService::LEFT], &mut reply, limit()).unwrap();
        u64::from_le_bytes(reply.as_slice().try_into().unwrap())
    };
    assert_eq!(left(), 0);
    let begin = || connection.call(&[TestService::START, 200], &mut Vec::new(), limit()).unwrap();
    // At most one step a round: a call that keeps its processor sees few of them, and one of so
    // many keeps it.
    let mut fewest = u64::MAX;
    for _ in 0..10 {
        begin();
        let mut before = left();
        while before > 0 {
            let now = left();
            assert!(now <= before, "{before} steps were left, now {now}");
            fewest = fewest.min(before - now);
            before = now;
        }
    }
    assert!(fewest <= 10, "{fewest} steps of 200 during a call at least");

    begin();
    let patience = Instant::now() + Duration::from_secs(60);
    std::thread::sleep(Duration::from_millis(100));
    while left() > 0 {
        assert!(Instant::now() < patience, "the work stands still");
        std::thread::sleep(Duration::from_millis(50));
    }
}
