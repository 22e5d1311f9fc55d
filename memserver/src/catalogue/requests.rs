//! Requests to create, list and drop tables.

use std::ops::Bound;

use fpcache::message::tables::{MOST_LISTED, TablesError};
use fpcache::message::{
    ErrorCode, MessageError, NodeStats, RangeRequest, Refusal, Request, TableInfo, TablesPage, TablesRequest,
    encode_reply,
};
use fpcache_fabric::{ClientId, Handled};

use super::closed::NotDropped;
use super::jobs::{Done, Job};
use super::lobby::NO_TABLE;
use super::{Catalogue, HostedTable};
use fpcache::TableName;
use fpcache::key_space::U64Keys;

impl Catalogue {
    /// Answers a request about tables, or has a thread do what it asks.
    pub(super) fn manage(
        &mut self,
        client: ClientId,
        request: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Handled, Refusal> {
        self.requests += 1;
        if RangeRequest::is_one(request) {
            return self.manage_range(client, request);
        }
        let decoded = TablesRequest::decode(request).map_err(|error| match error {
            TablesError::Name(_) => Refusal::new(ErrorCode::BadName, error.to_string()),
            TablesError::Message(error) => error.into(),
        })?;
        let job = match decoded {
            TablesRequest::List { after } => {
                self.page(after).encode(body);
                return Ok(Handled::Now);
            }
            // What it is refused for may be over by then.
            _ if self.jobs.is_busy() => {
                self.jobs.wait(client, request);
                return Ok(Handled::Later);
            }
            TablesRequest::Create { name, kind, region_bytes } => {
                Job::Make(Box::new(self.can_make_table(name, kind, region_bytes)?))
            }
            TablesRequest::Drop { name } => match self.removing_closed(&name) {
                Some(removing) => Job::Remove(removing),
                None => {
                    let (dropping, clients) = self.detach(&name)?;
                    self.jobs.farewells = clients;
                    self.jobs.dropped = Some((name, dropping.table.kind));
                    Job::Drop(Box::new(dropping))
                }
            },
        };
        self.jobs.start(client, job);
        Ok(Handled::Later)
    }

    /// Collects the results of the thread, and continues with the next request that waited for it.
    pub(super) fn work_on_jobs(&mut self) {
        let Some((client, done)) = self.jobs.take_done() else { return };
        let outcome = match done {
            Done::Made(made) => made.map(|table| self.host(*table)),
            Done::Dropped(outcome) => self.end_drop(outcome),
            // Closed until then: its name stays taken.
            Done::Removed(name, outcome) => self.end_removing(&name, outcome),
            Done::Mapped(name, map, outcome) => outcome.and_then(|()| self.adopt_map(&name, map)),
        };
        self.push_reply(client, outcome.map(|()| Vec::new()));
        while let Some((client, request)) = self.jobs.next_waiting() {
            let mut body = Vec::new();
            match self.manage(client, &request, &mut body) {
                Ok(Handled::Later) => {}
                Ok(Handled::Now) => self.push_reply(client, Ok(body)),
                Err(refusal) => self.push_reply(client, Err(refusal)),
            }
        }
    }

    /// Ends the dropping of a table, if that was the job.
    fn end_drop(&mut self, outcome: Result<(), NotDropped>) -> Result<(), Refusal> {
        self.farewells.extend(self.jobs.farewells.drain(..));
        let dropped = self.jobs.dropped.take();
        outcome.map_err(|refused| {
            let refusal = refused.refusal.clone();
            if let Some((name, kind)) = dropped {
                self.close(name, kind, refused);
            }
            refusal
        })
    }

    fn push_reply(&mut self, client: ClientId, outcome: Result<Vec<u8>, Refusal>) {
        let mut reply = Vec::new();
        encode_reply(outcome.as_ref().map(Vec::as_slice), &mut reply);
        self.jobs.replies.push_back((client, reply));
    }

    /// The tables after `after`, as many as one reply has.
    fn page(&self, after: Option<TableName>) -> TablesPage {
        let later = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        // One more of each than a page has: only these are asked what they hold.
        const MOST: usize = MOST_LISTED + 1;
        let hosted = self.numbers.range(later).filter_map(|(_, number)| self.tables[*number].as_ref());
        let hosted = hosted.take(MOST).map(HostedTable::info);
        let closed = self.closed.range(later).take(MOST).map(|(name, table)| table.info(*name));
        let mut tables: Vec<TableInfo> = hosted.chain(closed).collect();
        tables.sort_unstable_by_key(|table| table.name);
        let has_more = tables.len() > MOST_LISTED;
        tables.truncate(MOST_LISTED);
        TablesPage {
            capacity_bytes: self.opening.budget.bytes(),
            granted_bytes: self.opening.budget.granted(),
            tables,
            has_more,
        }
    }

    /// Answers a table request from a client without a table.
    pub(super) fn answer_in_lobby(&mut self, request: &[u8], body: &mut Vec<u8>) -> Result<(), Refusal> {
        self.requests += 1;
        match Request::decode::<U64Keys>(NO_TABLE, request) {
            Ok(Request::Stats) => {
                let stats: NodeStats = self.stats();
                stats.encode(body);
                Ok(())
            }
            Err(error @ (MessageError::Version(_) | MessageError::OtherTable { .. })) => Err(error.into()),
            _ => {
                let why = "this connection leads to no table: connect with the name of one";
                Err(Refusal::new(ErrorCode::NoTable, why))
            }
        }
    }
}
