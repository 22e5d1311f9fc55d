//! Requests about tables.

use std::ops::Bound;

use fpcache::message::tables::{MOST_LISTED, TablesError};
use fpcache::message::{ErrorCode, MessageError, NodeStats, Refusal, Request, TablesPage, TablesRequest};

use super::{Catalogue, HostedTable};
use fpcache::TableName;
use fpcache::key_space::U64Keys;

impl Catalogue {
    /// Answers a request about tables.
    pub(super) fn manage(&mut self, request: &[u8], body: &mut Vec<u8>) -> Result<(), Refusal> {
        self.requests += 1;
        let request = TablesRequest::decode(request).map_err(|error| {
            let code = match &error {
                TablesError::Name(_) => ErrorCode::BadName,
                TablesError::Message(MessageError::Version(_)) => ErrorCode::Version,
                TablesError::Message(_) => ErrorCode::Invalid,
            };
            Refusal::new(code, error.to_string())
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
        let mut numbers = self.numbers.range(behind).map(|(_, number)| *number);
        let listed = numbers.by_ref().take(MOST_LISTED);
        let tables =
            listed.filter_map(|number| self.tables[number].as_ref()).map(HostedTable::info).collect();
        TablesPage {
            capacity_bytes: self.opening.budget.bytes(),
            granted_bytes: self.opening.budget.granted(),
            tables,
            has_more: numbers.next().is_some(),
        }
    }

    /// Answers a request to a table of a client that has none.
    pub(super) fn answer_in_lobby(&mut self, request: &[u8], body: &mut Vec<u8>) -> Result<(), Refusal> {
        self.requests += 1;
        match Request::decode::<U64Keys>(request) {
            Ok(Request::Stats) => {
                let stats: NodeStats = self.stats();
                stats.encode(body);
                Ok(())
            }
            Err(error @ MessageError::Version(_)) => Err(Refusal::new(ErrorCode::Version, error.to_string())),
            _ => {
                let why = "this connection leads to no table: connect with the name of one";
                Err(Refusal::new(ErrorCode::NoTable, why))
            }
        }
    }
}
