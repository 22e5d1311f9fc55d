//! Requests to the memory node's service.

use std::time::{Duration, Instant};

use fpcache_fabric::{Connection, Deadline, ErrorKind, FabricError};

use super::{Fixture, TestService, too_late};

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn produce(len: usize) -> Vec<u8> {
    let mut request = vec![TestService::PRODUCE];
    request.extend_from_slice(&(len as u64).to_le_bytes());
    request
}

/// Requests and replies from nothing to the maximum, and one byte more.
pub fn calls_carry_every_size<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let mut reply = vec![1, 2, 3];
    connection.call(&[], &mut reply, limit()).unwrap();
    assert!(reply.is_empty(), "the reply replaces what was there");
    let max = connection.max_request().min(connection.max_reply() + 1);
    for len in [1, 2, 8, 9, 63, 64, 65, 4096, 65_537, max - 1, max] {
        let mut request: Vec<u8> = (0..len).map(|i| (i % 253) as u8).collect();
        request[0] = TestService::ECHO;
        connection.call(&request, &mut reply, limit()).unwrap();
        assert!(reply == request[1..], "echo of {len} bytes differs");
    }
    let error = connection.call(&vec![0; connection.max_request() + 1], &mut reply, limit()).unwrap_err();
    assert!(matches!(error, FabricError::RequestTooLong { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);

    connection.call(&produce(connection.max_reply()), &mut reply, limit()).unwrap();
    assert_eq!(reply.len(), connection.max_reply());
    let error = connection.call(&produce(connection.max_reply() + 1), &mut reply, limit()).unwrap_err();
    assert!(matches!(error, FabricError::ReplyTooLong { .. }), "{error}");
    connection.call(&[TestService::ECHO, 5], &mut reply, limit()).unwrap();
    assert_eq!(reply, [5]);
    assert!(connection.call_meter().writes > 0);
}

/// One connection shared by threads: every call gets its own reply.
pub fn calls_from_many_threads_keep_apart<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let mut reply = Vec::new();
                for round in 0..200u8 {
                    connection.call(&[TestService::ECHO, thread, round], &mut reply, limit()).unwrap();
                    assert_eq!(reply, [thread, round]);
                }
            });
        }
    });
    let mut reply = Vec::new();
    connection.call(&[TestService::COUNT], &mut reply, limit()).unwrap();
    assert_eq!(reply, 800u64.to_le_bytes(), "each request is executed once");
}

/// A deadline ends a call in time; the late reply is not taken for the next call's.
pub fn deadlines_and_late_replies<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let mut reply = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        too_late(connection, &[TestService::SLEEP, 250, 1], Duration::from_millis(20));
        assert!(started.elapsed() >= Duration::from_millis(20));
        connection.call(&[TestService::ECHO, 9], &mut reply, limit()).unwrap();
        assert_eq!(reply, [9]);
    }
    // The late reply is there before the next call starts.
    too_late(connection, &[TestService::SLEEP, 200, 1], Duration::from_millis(5));
    std::thread::sleep(Duration::from_millis(250));
    connection.call(&[TestService::SLEEP, 5, 3], &mut reply, limit()).unwrap();
    assert_eq!(reply, [5, 3]);
    // Slower than any spinning: the caller slept and was woken.
    connection.call(&[TestService::SLEEP, 30, 2], &mut reply, limit()).unwrap();
    assert_eq!(reply, [30, 2]);
    std::thread::sleep(Duration::from_millis(20));
    connection.call(&[TestService::ECHO, 4], &mut reply, limit()).unwrap();
    assert_eq!(reply, [4]);

    // Waiting for another thread's request ends with the deadline, too: its turn lasts as long as
    // nobody takes its reply.
    let posted = connection.post(&[TestService::ECHO], limit()).unwrap();
    std::thread::scope(|scope| {
        let soon = Deadline::after(Duration::from_millis(20));
        let waiting = scope.spawn(move || connection.call(&[TestService::ECHO], &mut Vec::new(), soon));
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    });
    connection.wait(posted, &mut reply, limit()).unwrap();
}
