//! Requests whose replies are waited for later.

use std::time::{Duration, Instant};

use fpcache_fabric::{Batch, Connection, Deadline, Endpoint, ErrorKind, FabricError, Posted, RemoteAddr};

use super::{Fixture, TestService};

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// Polls until the reply is there.
fn polled<C: Connection>(connection: &C, mut posted: Posted, reply: &mut Vec<u8>) {
    let patience = limit();
    while let Some(not_yet) = connection.poll(posted, reply).unwrap() {
        posted = not_yet;
        assert!(!patience.has_passed(Instant::now()), "no reply comes");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Waits with a deadline that has passed. A reply that is there is taken though its time is over;
/// whether it is there by then is not the connection's doing alone, so that the request is repeated
/// with longer pauses.
fn late<C: Connection>(connection: &C, mut posted: Posted, request: &[u8], reply: &mut Vec<u8>) {
    let mut pause = Duration::from_millis(5);
    loop {
        std::thread::sleep(pause);
        match connection.wait(posted, reply, Deadline::after(Duration::ZERO)) {
            Ok(()) => return,
            Err(error) => {
                assert!(error.kind() == ErrorKind::Deadline && pause < Duration::from_secs(4), "{error}");
                pause *= 2;
                posted = connection.post(request, limit()).unwrap();
            }
        }
    }
}

/// Between a request and its reply there is time for READs; the reply is the request's own, of any
/// size, however it is taken.
pub fn posted_requests_leave_time_for_reads<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let (mut endpoint, mut batch) = (connection.endpoint(), Batch::new());
    let mut reply = vec![1, 2, 3];
    for len in [0, 1, 63, 64, 65, 4096] {
        let request: Vec<u8> =
            std::iter::once(TestService::ECHO).chain((0..len).map(|i| (i % 251) as u8)).collect();
        for way in 0..3 {
            let posted = connection.post(&request, limit()).unwrap();
            batch.clear();
            batch.read(RemoteAddr::region(0), 8);
            endpoint.run(&mut batch).unwrap();
            match way {
                0 => connection.wait(posted, &mut reply, limit()).unwrap(),
                1 => polled(connection, posted, &mut reply),
                _ => late(connection, posted, &request, &mut reply),
            }
            assert_eq!(reply, request[1..], "{len} bytes");
        }
    }
    // Where this thread has no processor for that long, the reply is there.
    let posted = std::iter::repeat_with(|| {
        let posted = connection.post(&[TestService::SLEEP, 250, 7], limit()).unwrap();
        connection.poll(posted, &mut reply).unwrap()
    });
    let posted = posted.take(20).flatten().next().expect("no reply is there at once");
    assert!(reply.is_empty(), "no reply is no bytes");
    connection.wait(posted, &mut reply, limit()).unwrap();
    assert_eq!(reply, [250, 7]);
}

/// A request's turn lasts until its reply was taken, or until it was given up; others wait no
/// longer than their deadline.
pub fn the_turn_of_a_posted_request_ends_with_its_reply<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let mut reply = Vec::new();
    let soon = || Deadline::after(Duration::from_millis(20));
    let posted = connection.post(&[TestService::ECHO, 1], limit()).unwrap();
    std::thread::scope(|scope| {
        let refused =
            scope.spawn(|| connection.call(&[TestService::ECHO, 2], &mut Vec::new(), soon()).unwrap_err());
        let error = refused.join().unwrap();
        assert!(matches!(error, FabricError::Crowded), "{error}");
    });
    connection.wait(posted, &mut reply, limit()).unwrap();
    assert_eq!(reply, [1]);

    let posted = connection.post(&[TestService::SLEEP, 20, 3], limit()).unwrap();
    connection.give_up(posted);
    connection.call(&[TestService::ECHO, 4], &mut reply, limit()).unwrap();
    assert_eq!(reply, [4], "the reply to what was given up is nobody's");

    let errors = std::iter::repeat_with(|| {
        let posted = connection.post(&[TestService::SLEEP, 250, 5], limit()).unwrap();
        connection.wait(posted, &mut reply, soon()).err()
    });
    let error = errors.take(20).flatten().next().expect("a wait that ends before the reply comes");
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    connection.call(&[TestService::ECHO, 6], &mut reply, limit()).unwrap();
    assert_eq!(reply, [6]);

    // A waiting thread has its turn as soon as the reply was polled.
    let posted = connection.post(&[TestService::ECHO, 7], limit()).unwrap();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let mut reply = Vec::new();
            connection.call(&[TestService::ECHO, 8], &mut reply, limit()).unwrap();
            reply
        });
        std::thread::sleep(Duration::from_millis(10));
        polled(connection, posted, &mut reply);
        assert_eq!(reply, [7]);
        assert_eq!(next.join().unwrap(), [8]);
    });
}

/// A request that is too long is not sent, and takes no turn.
pub fn requests_that_are_too_long_are_not_posted<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let error = connection.post(&vec![0; connection.max_request() + 1], limit()).unwrap_err();
    assert!(matches!(error, FabricError::RequestTooLong { .. }), "{error}");
    let mut reply = Vec::new();
    connection.call(&[TestService::ECHO, 1], &mut reply, limit()).unwrap();
    assert_eq!(reply, [1]);
}

/// One that is refused while others wait for their turn as well passes over none of these: the next
/// waiter is woken all the same.
pub fn a_request_that_is_not_posted_keeps_no_others_from_their_turn<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let posted = connection.post(&[TestService::SLEEP, 100, 1], limit()).unwrap();
    std::thread::scope(|scope| {
        let too_long = scope.spawn(|| connection.post(&vec![0; connection.max_request() + 1], limit()));
        // It is the first that waits.
        std::thread::sleep(Duration::from_millis(20));
        let next = scope.spawn(|| {
            let (mut reply, begun) = (Vec::new(), Instant::now());
            connection.call(&[TestService::ECHO, 2], &mut reply, limit()).unwrap();
            (reply, begun.elapsed())
        });
        std::thread::sleep(Duration::from_millis(20));
        connection.wait(posted, &mut Vec::new(), limit()).unwrap();
        let error = too_long.join().unwrap().unwrap_err();
        assert!(matches!(error, FabricError::RequestTooLong { .. }), "{error}");
        let (reply, waited) = next.join().unwrap();
        assert_eq!(reply, [2]);
        assert!(waited < Duration::from_secs(5), "as long as nobody had woken it: {waited:?}");
    });
}
