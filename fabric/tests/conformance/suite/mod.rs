//! The suite that every backend must pass.
//!
//! A backend provides a [`Fixture`] and calls [`run_all`], or the parts one by one. Nothing here
//! looks after the traits, so a backend over TCP, RDMA or a simulator is held to the same
//! behaviour.

mod fixture;
mod later;
mod memory;
mod posted;
mod requests;
mod service;
mod verbs;

use std::time::Duration;

pub use fixture::Fixture;
pub use later::{a_waker_wakes_the_memory_node, replies_may_come_later, work_goes_on_between_requests};
pub use memory::{landings_stay_put, loads_after_reads_follow_them, the_meter_counts};
pub use posted::{
    a_request_that_is_not_posted_keeps_no_others_from_their_turn, posted_requests_leave_time_for_reads,
    requests_that_are_too_long_are_not_posted, the_turn_of_a_posted_request_ends_with_its_reply,
};
pub use requests::{calls_carry_every_size, calls_from_many_threads_keep_apart, deadlines_and_late_replies};
pub use service::TestService;
pub use verbs::{
    atomics_agree_under_contention, bad_requests_are_refused, batches_of_every_shape,
    changes_take_posting_order, many_in_flight, reads_and_writes_move_bytes, words_are_read_as_by_a_batch,
};

use fpcache_fabric::{Batch, Connection, Deadline, Endpoint, ErrorKind, FabricError, REGION, RemoteAddr};

/// Runs the whole suite, each part on a fresh memory node.
pub fn run_all<F: Fixture>()
where
    F::Connection: 'static,
{
    reads_and_writes_move_bytes(&F::start());
    batches_of_every_shape(&F::start());
    words_are_read_as_by_a_batch(&F::start());
    changes_take_posting_order(&F::start());
    bad_requests_are_refused(&F::start());
    atomics_agree_under_contention(&F::start());
    many_in_flight(&F::start());
    loads_after_reads_follow_them(&F::start());
    landings_stay_put(&F::start());
    the_meter_counts(&F::start());
    calls_carry_every_size(&F::start());
    calls_from_many_threads_keep_apart(&F::start());
    deadlines_and_late_replies(&F::start());
    posted_requests_leave_time_for_reads(&F::start());
    the_turn_of_a_posted_request_ends_with_its_reply(&F::start());
    requests_that_are_too_long_are_not_posted(&F::start());
    a_request_that_is_not_posted_keeps_no_others_from_their_turn(&F::start());
    replies_may_come_later(&F::start());
    a_waker_wakes_the_memory_node(&F::start());
    work_goes_on_between_requests(&F::start());
    the_end_of_the_memory_node_is_noticed(F::start());
}

/// Makes a call that is over before its reply comes; how many it took. A reply that is there is
/// taken though its time is over, which is so where this thread had no processor meanwhile.
fn too_late<C: Connection>(connection: &C, request: &[u8], within: Duration) -> u64 {
    for calls in 1..=20 {
        if let Err(error) = connection.call(request, &mut Vec::new(), Deadline::after(within)) {
            assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
            return calls;
        }
    }
    panic!("every reply came within {within:?}");
}

/// After the memory node's end everything says `Disconnected`, and waiting calls return.
pub fn the_end_of_the_memory_node_is_noticed<F: Fixture>(mut fixture: F) {
    let mut endpoint = fixture.connection().endpoint();
    let mut batch = Batch::new();
    batch.read(RemoteAddr::region(0), 8);
    endpoint.run(&mut batch).unwrap();
    assert!(fixture.connection().is_alive());
    fixture.stop_memory_node();

    let connection = fixture.connection();
    let patience = Deadline::after(Duration::from_secs(60));
    while connection.is_alive() {
        assert!(!patience.has_passed(std::time::Instant::now()), "is_alive stays true");
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_gone = |error: FabricError| {
        assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Reconnect);
        assert!(error.is_retryable());
    };
    is_gone(endpoint.run(&mut batch).unwrap_err());
    is_gone(endpoint.post(batch).unwrap_err().error);
    is_gone(connection.call(&[TestService::ECHO], &mut Vec::new(), Deadline::NONE).unwrap_err());
    assert!(endpoint.area(REGION).is_some());
}
