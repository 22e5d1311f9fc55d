//! Requests about tables.

use std::ops::Bound;

use fpcache::message::tables::{MOST_LISTED, TablesError};
use fpcache::message::{
    ErrorCode, MessageError, NodeStats, Refusal, Request, TableInfo, TablesPage, TablesRequest,
};

use super::{Catalogue, HostedTable, NO_TABLE};
use fpcache::TableName;
use fpcache::key_space::U64Keys;

impl Catalogue {
    /// Answers a request about tables.
    pub(super) fn manage(&mut self, request: &[u8], body: &mut Vec<u8>) -> Result<(), Refusal> {
        self.requests += 1;
        let request = TablesRequest::decode(request).map_err(|error| match error {
            TablesError::Name(_) => Refusal::new(ErrorCode::BadName, error.to_string()),
            TablesError::Message(error) => error.into(),
        })?;
        match request {
            TablesRequest::Create { name, kind, region_bytes } => self.create(name, kind, region_bytes)?,
            TablesRequest::List { after } => self.page(after).encode(body),
            TablesRequest::Drop { name } => self.drop_table(&name)?,
        }
        Ok(())
    }

    /// The tables behind `after`, as many as one reply has.
    fn page(&self, after: Option<TableName>) -> TablesPage {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let hosted = self.numbers.range(behind).filter_map(|(_, number)| self.tables[*number].as_ref());
        let closed = self.closed.range(behind).map(|(name, table)| table.info(*name));
        let mut tables: Vec<TableInfo> = hosted.map(HostedTable::info).chain(closed).collect();
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

    /// Answers a request to a table of a client that has none.
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
