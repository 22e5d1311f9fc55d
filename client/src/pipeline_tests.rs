//! The choice of a lane for each write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::client::Client;

/// What lanes to two memory nodes have together, one of which has the keys below 1000. They note
/// which lane a key went by, and say of the first writes that it is unknown how they ended.
#[derive(Default)]
struct Notes {
    posts: Vec<(u64, usize)>,
    settled: usize,
    /// The end of how many writes is not known.
    unknown: usize,
    /// Memory nodes whose table was dropped.
    gone: Vec<usize>,
}

/// One of these lanes.
struct Noted {
    lane: usize,
    last: usize,
    notes: Arc<Mutex<Notes>>,
}

/// A pipeline over such lanes.
fn pipeline_over(client: &Client, count: usize, unknown: usize) -> (Pipeline, Arc<Mutex<Notes>>) {
    let notes = Arc::new(Mutex::new(Notes { unknown, ..Notes::default() }));
    let mut pipeline = client.pipeline(count).expect("lanes");
    for (lane, open) in pipeline.lanes.iter_mut().enumerate() {
        *open = Box::new(Noted { lane, last: 0, notes: Arc::clone(&notes) });
    }
    (pipeline, notes)
}

impl WriteLane<U64Keys> for Noted {
    fn identity(&self) -> usize {
        self.last
    }

    fn has_identity(&self, identity: usize) -> bool {
        !self.notes.lock().expect("nobody panics").gone.contains(&identity)
    }

    fn post(&mut self, operation: &WriteOperation<'_, &u64>, _: Duration) -> Result<(), ClientError> {
        self.notes.lock().expect("nobody panics").posts.push((*operation.key, self.lane));
        self.last = usize::from(*operation.key >= 1000);
        Ok(())
    }

    fn settle(&mut self) -> Result<WriteReply, ClientError> {
        let mut notes = self.notes.lock().expect("nobody panics");
        notes.settled += 1;
        match notes.settled {
            at if at <= notes.unknown => Err(ClientError::OutcomeUnknown { why: "no reply".to_owned() }),
            _ => WriteReply::decode(&[0; WriteReply::BYTES]).ok_or_else(crate::core::no_reply),
        }
    }

    fn settle_if_answered(&mut self) -> Option<Result<WriteReply, ClientError>> {
        None
    }
}

#[test]
fn an_answer_of_one_memory_node_settles_no_doubt_about_a_write_at_another() {
    let client = Client::embedded(1 << 20).expect("memory");
    let (mut pipeline, notes) = pipeline_over(&client, 2, 1);
    // It may yet take effect.
    pipeline.put(5, &[1; 8]).expect("posted");
    pipeline.settle_all();
    // The same lane, as the other one is not free, to another memory node.
    pipeline.put(3000, &[1; 8]).expect("posted");
    pipeline.put(2000, &[1; 8]).expect("posted");
    pipeline.settle(1);
    pipeline.put(2001, &[1; 8]).expect("posted");
    // Only the lane by which the first one went keeps it from taking effect after this one.
    pipeline.put(5, &[2; 8]).expect("posted");
    pipeline.settle_all();
    // Now it has been answered by the same memory node.
    pipeline.put(2001, &[1; 8]).expect("posted");
    pipeline.put(5, &[3; 8]).expect("posted");
    let lanes: Vec<usize> =
        notes.lock().expect("nobody panics").posts.iter().map(|(_, lane)| *lane).collect();
    assert_ne!(lanes[1], lanes[0], "{lanes:?}");
    assert_eq!(lanes[2..5], [lanes[0]; 3], "{lanes:?}");
    assert_ne!(lanes[5], lanes[6], "{lanes:?}");
}

/// Their lane was taken first, so that the next write of such a key waited for whatever was under
/// way on it, until the deadline of one to a silent memory node.
#[test]
fn lanes_of_writes_whose_end_is_unknown_are_taken_last() {
    let client = Client::embedded(1 << 20).expect("memory");
    let (mut pipeline, notes) = pipeline_over(&client, 2, 1);
    for key in [5, 2000, 5] {
        pipeline.put(key, &[1; 8]).expect("posted");
        pipeline.settle_key(&5);
    }
    let notes = notes.lock().expect("nobody panics");
    let lanes: Vec<usize> = notes.posts.iter().map(|(_, lane)| *lane).collect();
    assert!(lanes[0] == lanes[2] && lanes[1] != lanes[0] && notes.settled == 2, "{lanes:?}");
}

#[test]
fn doubts_about_writes_do_not_pile_up() {
    let client = Client::embedded(1 << 20).expect("memory");
    let (mut pipeline, notes) = pipeline_over(&client, 1, usize::MAX);
    for _ in 0..3 {
        for key in [5, 6, 2000] {
            pipeline.put(key, &[1; 8]).expect("posted");
            pipeline.settle_all();
        }
    }
    assert_eq!(pipeline.doubts.len(), 3, "{:?}", pipeline.doubts);
    // The table of the keys below 1000 is dropped: what was written to it does not matter any more.
    notes.lock().expect("nobody panics").gone.push(0);
    pipeline.put(2001, &[1; 8]).expect("posted");
    pipeline.settle_all();
    assert_eq!(pipeline.doubts.len(), 2, "{:?}", pipeline.doubts);
}
