//! The choice of a lane for each write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::client::Client;

/// Lanes that lead to two memory nodes, one of which has the keys below 1000. They note which lane
/// a key went by, and say of the first write that nobody knows how it ended.
struct Noted {
    posts: Arc<Mutex<Vec<(u64, usize)>>>,
    last: Vec<usize>,
    settled: usize,
    /// The end of how many writes is not known.
    unknown: usize,
    /// Memory nodes whose table was dropped.
    gone: Arc<Mutex<Vec<usize>>>,
}

impl Lanes<U64Keys> for Noted {
    fn identity(&self, lane: usize) -> usize {
        self.last[lane]
    }

    fn has_identity(&self, _: usize, identity: usize) -> bool {
        !self.gone.lock().expect("nobody panics").contains(&identity)
    }

    fn post(
        &mut self,
        lane: usize,
        operation: &WriteOperation<'_, &u64>,
        _: Duration,
    ) -> Result<(), ClientError> {
        self.posts.lock().expect("nobody panics").push((*operation.key, lane));
        self.last[lane] = usize::from(*operation.key >= 1000);
        Ok(())
    }

    fn settle(&mut self, _: usize) -> Result<WriteReply, ClientError> {
        self.settled += 1;
        match self.settled {
            at if at <= self.unknown => Err(ClientError::OutcomeUnknown { why: "no reply".to_owned() }),
            _ => WriteReply::decode(&[0; WriteReply::BYTES]).ok_or_else(crate::core::no_reply),
        }
    }

    fn settle_if_answered(&mut self, _: usize) -> Option<Result<WriteReply, ClientError>> {
        None
    }
}

#[test]
fn an_answer_of_one_memory_node_settles_no_doubt_about_a_write_at_another() {
    let client = Client::embedded(1 << 20).expect("memory");
    let posts = Arc::new(Mutex::new(Vec::new()));
    let mut pipeline = client.pipeline(2).expect("lanes");
    pipeline.lanes = Box::new(Noted {
        posts: Arc::clone(&posts),
        last: vec![0; 2],
        settled: 0,
        unknown: 1,
        gone: Arc::default(),
    });
    // It may yet take effect.
    pipeline.put(5, &[1; 8]).expect("posted");
    pipeline.settle_all();
    // The same lane, another memory node.
    pipeline.put(2000, &[1; 8]).expect("posted");
    pipeline.settle_all();
    pipeline.put(2001, &[1; 8]).expect("posted");
    // Only the lane by which the first one went keeps it from taking effect after this one.
    pipeline.put(5, &[2; 8]).expect("posted");
    pipeline.settle_all();
    // Now it has been answered by the same memory node.
    pipeline.put(2001, &[1; 8]).expect("posted");
    pipeline.put(5, &[3; 8]).expect("posted");
    let lanes: Vec<usize> = posts.lock().expect("nobody panics").iter().map(|(_, lane)| *lane).collect();
    assert_eq!(lanes[..4], [lanes[0]; 4], "{lanes:?}");
    assert_ne!(lanes[4], lanes[5], "{lanes:?}");
}

#[test]
fn doubts_about_writes_do_not_pile_up() {
    let client = Client::embedded(1 << 20).expect("memory");
    let mut pipeline = client.pipeline(1).expect("lanes");
    let gone = Arc::new(Mutex::new(Vec::new()));
    let (posts, unknown) = (Arc::default(), usize::MAX);
    pipeline.lanes = Box::new(Noted { posts, last: vec![0], settled: 0, unknown, gone: Arc::clone(&gone) });
    for _ in 0..3 {
        for key in [5, 6, 2000] {
            pipeline.put(key, &[1; 8]).expect("posted");
            pipeline.settle_all();
        }
    }
    assert_eq!(pipeline.doubts.len(), 3, "{:?}", pipeline.doubts);
    // The table of the keys below 1000 is dropped: what was written to it does not matter any more.
    gone.lock().expect("nobody panics").push(0);
    pipeline.put(2001, &[1; 8]).expect("posted");
    pipeline.settle_all();
    assert_eq!(pipeline.doubts.len(), 2, "{:?}", pipeline.doubts);
}
