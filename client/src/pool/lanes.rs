//! Writes in flight to several memory nodes.

use std::sync::Arc;
use std::time::Duration;

use fpcache::TableName;
use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteOperation, WriteReply};

use super::Pool;
use crate::core::no_reply;
use crate::direct::with_direct;
use crate::error::ClientError;
use crate::lanes::{Lanes, OpenLanes};

/// Lanes by number, each of which leads to any of the memory nodes: to each over a connection that
/// is made when it is first needed. Writes of one key go to one memory node, so that their order is
/// that lane's.
pub(crate) struct PoolLanes<K: BuildKeys> {
    pool: Arc<Pool<K>>,
    lanes: Vec<Ways<K>>,
}

/// Where one lane leads.
struct Ways<K: BuildKeys> {
    ways: Vec<Way<K>>,
    /// Along which of them the change under way was sent.
    used: Option<usize>,
    /// The number of the one along which the last change was sent.
    last: usize,
    /// How many there were.
    opened: usize,
}

/// A lane to the memory node of one range.
struct Way<K: BuildKeys> {
    /// Its number, which no other way of the lane has.
    number: usize,
    table: TableName,
    url: String,
    lane: Box<dyn Lanes<K>>,
}

impl<K: BuildKeys> PoolLanes<K> {
    pub(crate) fn open(pool: &Arc<Pool<K>>, count: usize) -> Self {
        let lanes = (0..count).map(|_| Ways { ways: Vec::new(), used: None, last: 0, opened: 0 }).collect();
        Self { pool: Arc::clone(pool), lanes }
    }
}

impl<K: BuildKeys> Lanes<K> for PoolLanes<K> {
    fn identity(&self, lane: usize) -> usize {
        // Each way has one.
        self.lanes[lane].last
    }

    fn has_identity(&self, lane: usize, identity: usize) -> bool {
        self.lanes[lane].ways.iter().any(|way| way.number == identity)
    }

    fn post(
        &mut self,
        lane: usize,
        operation: &WriteOperation<'_, &K::Key>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let (pool, lane) = (&self.pool, &mut self.lanes[lane]);
        // After an error it was not sent.
        pool.at_range_of(operation.key, within, |ranges, index, left| {
            let table = ranges.table(index);
            let way = match lane.ways.iter().position(|way| way.table == table) {
                Some(way) => way,
                None => {
                    let open: Box<dyn Lanes<K>> = with_direct!(ranges.core(index, &pool.config, left)?, core => {
                        Box::new(OpenLanes::open(core, 1, left)?)
                    });
                    // Those to tables that were dropped are of no use any more.
                    lane.ways.retain(|way| ranges.has(&way.table));
                    lane.opened += 1;
                    lane.ways.push(Way { number: lane.opened, table, url: ranges.url(index), lane: open });
                    lane.ways.len() - 1
                }
            };
            lane.ways[way].lane.post(0, operation, left)?;
            (lane.used, lane.last) = (Some(way), lane.ways[way].number);
            Ok(())
        })
    }

    fn settle(&mut self, lane: usize) -> Result<WriteReply, ClientError> {
        let lane = &mut self.lanes[lane];
        let way = lane.used.take().ok_or_else(no_reply)?;
        let Way { url, lane, .. } = &mut lane.ways[way];
        lane.settle(0).map_err(|error| error.at(url))
    }

    fn settle_if_answered(&mut self, lane: usize) -> Option<Result<WriteReply, ClientError>> {
        let lane = &mut self.lanes[lane];
        let Way { url, lane: open, .. } = &mut lane.ways[lane.used?];
        let answered = open.settle_if_answered(0)?;
        lane.used = None;
        Some(answered.map_err(|error| error.at(url)))
    }
}
