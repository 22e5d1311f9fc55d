//! Opening a table, over any kind of connection.

use std::sync::Arc;
use std::time::Duration;

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::plan::FabricCosts;
use fpcache_fabric::Deadline;
use fpcache_fabric::tcp::Token;

use crate::config::ClientConfig;
use crate::core::{Connector, Core};
use crate::error::ClientError;
use crate::tables::{Tables, not_there, time_left};
use crate::url::Url;
use crate::waiting::retry_while_away;

/// Where a table lies.
pub(crate) trait Node: Connector + Clone {
    /// The table that the settings name, of the same memory node.
    fn beside(&self, config: &ClientConfig) -> Self;

    /// The memory node, and the table's name there; `None` for one that has a single table whatever
    /// it is called.
    fn place(&self) -> Option<(Url, TableName)>;

    /// The token to get in by, if any.
    fn token(&self) -> Option<Token> {
        None
    }

    /// What reading costs there.
    fn costs(&self) -> FabricCosts {
        FabricCosts::MAPPED_MEMORY
    }

    /// A client of the table, whichever keys it has.
    fn reach<K: BuildKeys>(
        &self,
        config: &ClientConfig,
        within: Duration,
    ) -> Result<Arc<Core<K, Self>>, ClientError> {
        Core::connect(self.clone(), config.table_options(self.costs()), within)
    }

    /// A client of the table, whose keys must be of its kind; or the error that says which tables
    /// there are instead.
    fn open<K: BuildKeys>(self, config: &ClientConfig) -> Result<Arc<Core<K, Self>>, ClientError> {
        // One deadline, from the attempt on that is answered.
        let mut deadline = Deadline::NONE;
        let reach = || {
            deadline = Deadline::after(config.deadline);
            self.reach(config, config.deadline)
        };
        let core = match (retry_while_away(config.wait, reach), self.place()) {
            (Err(ClientError::NoSuchTable { .. }), Some((url, table))) => {
                return Err(not_there(&url, table.as_str(), self.token(), deadline));
            }
            (connected, _) => connected?,
        };
        match self.kind_of(&core, deadline) {
            Some(theirs) if !theirs.is::<K>() => Err(ClientError::OtherKeys { theirs, own: K::NAME }),
            // What cannot be told now is told by the first call.
            _ => Ok(core),
        }
    }

    /// What the keys of a table are, as far as it can be told.
    fn kind_of<K: BuildKeys>(&self, core: &Core<K, Self>, deadline: Deadline) -> Option<KeyKind> {
        // The region of a table without parameters does not say.
        core.key_kind(time_left(deadline)).ok()?.or_else(|| self.kind_in_list(deadline))
    }

    /// What the keys of a table are by the list of its memory node, if that has one and answers.
    fn kind_in_list(&self, deadline: Deadline) -> Option<KeyKind> {
        let (url, table) = self.place()?;
        let tables = Tables::before(&url, self.token(), deadline).ok()?;
        Some(tables.find(&table).ok()??.kind)
    }
}
