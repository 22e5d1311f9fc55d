//! Writes in flight to several memory nodes.

use std::sync::Arc;
use std::time::Duration;

use fpcache::TableName;
use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteOperation, WriteReply};

use super::Pool;
use crate::core::no_reply;
use crate::error::ClientError;
use crate::one_node::with_direct;
use crate::write_lanes::{OpenLane, WriteLane};

/// A lane that leads to any of the memory nodes: to each over a connection that is made when it is
/// first needed. Writes of one key go to one memory node, so that their order is that lane's.
pub(crate) struct PoolLane<K: BuildKeys> {
    pool: Arc<Pool<K>>,
    ways: Vec<RangeLane<K>>,
    /// Along which of them the change under way was sent.
    used: Option<usize>,
    /// The number of the one along which the last change was sent, and of its range.
    last: (usize, usize),
    /// How many there were.
    opened: usize,
}

/// A lane to the memory node of one range.
struct RangeLane<K: BuildKeys> {
    /// Its number, which no other way of the lane has.
    number: usize,
    table: TableName,
    url: String,
    lane: Box<dyn WriteLane<K>>,
}

impl<K: BuildKeys> PoolLane<K> {
    pub(crate) fn of(pool: &Arc<Pool<K>>) -> Self {
        Self { pool: Arc::clone(pool), ways: Vec::new(), used: None, last: (0, 0), opened: 0 }
    }
}

impl<K: BuildKeys> WriteLane<K> for PoolLane<K> {
    fn identity(&self) -> usize {
        // Each way has one.
        self.last.0
    }

    fn node(&self) -> usize {
        self.last.1
    }

    fn has_identity(&self, identity: usize) -> bool {
        self.ways.iter().any(|way| way.number == identity)
    }

    fn post(&mut self, operation: &WriteOperation<'_, &K::Key>, within: Duration) -> Result<(), ClientError> {
        let Self { pool, ways, used, last, opened } = self;
        // After an error it was not sent.
        pool.at_range_of(operation.key, within, |ranges, index, tries| {
            let table = ranges.table(index);
            let way = match ways.iter().position(|way| way.table == table) {
                Some(way) => way,
                None => {
                    let lane: Box<dyn WriteLane<K>> = with_direct!(ranges.core(index, &pool.config, tries)?, core => {
                        Box::new(OpenLane::open(core, tries.left())?)
                    });
                    // Those to tables that were dropped are of no use any more.
                    ways.retain(|way| ranges.has(&way.table));
                    *opened += 1;
                    ways.push(RangeLane { number: *opened, table, url: ranges.url(index), lane });
                    ways.len() - 1
                }
            };
            ways[way].lane.post(operation, tries.left())?;
            (*used, *last) = (Some(way), (ways[way].number, index));
            Ok(())
        })
    }

    fn settle(&mut self) -> Result<WriteReply, ClientError> {
        let way = self.used.take().ok_or_else(no_reply)?;
        let RangeLane { url, lane, .. } = &mut self.ways[way];
        lane.settle().map_err(|error| error.at(url))
    }

    fn settle_if_answered(&mut self) -> Option<Result<WriteReply, ClientError>> {
        let RangeLane { url, lane, .. } = &mut self.ways[self.used?];
        let answered = lane.settle_if_answered()?;
        self.used = None;
        Some(answered.map_err(|error| error.at(url)))
    }
}
