//! Tables that could not be opened. Their names stay taken; all other tables are served.

use std::sync::Arc;

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::message::{ErrorCode, Refusal, TableInfo};
use tracing::warn;

use super::Catalogue;
use super::error::TableOpenError;
use super::folders::TablesFolder;

/// A table that is not served.
#[derive(Debug)]
pub(crate) struct ClosedTable {
    /// What its keys are, as far as that can be told.
    pub(super) kind: KeyKind,
    /// Why it cannot be recovered, and what to do.
    pub(super) why: TableOpenError,
}

impl ClosedTable {
    /// What there is to tell of it.
    pub(super) fn info(&self, name: TableName) -> TableInfo {
        TableInfo { name, kind: self.kind, keys: 0, region_bytes: 0, used_bytes: 0, clients: 0 }
    }
}

impl Catalogue {
    /// The tables that are not served, in the order of their names, and why.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (&TableName, String)> {
        self.closed.iter().map(|(name, table)| (name, table.why.to_string()))
    }

    /// The refusal to make a table of a name that a closed one has; `None` if none has.
    pub(super) fn refusal_for_closed(&self, name: &TableName) -> Option<Refusal> {
        let closed = self.closed.get(name)?;
        let why = format!(
            "the table `{name}` exists but is closed ({}): fix that and restart the memory node, drop the table, or \
             choose another name",
            closed.why
        );
        Some(Refusal::new(ErrorCode::TableExists, why))
    }

    /// Closes a table that was to be dropped and could not be: its name stays taken until it is
    /// dropped again, as it would come back with the next start.
    pub(super) fn close(&mut self, name: TableName, kind: KeyKind, refusal: &Refusal) {
        let why = TableOpenError::NotDropped { why: refusal.message.clone() };
        self.closed.insert(name, ClosedTable { kind, why });
    }

    /// What removes a closed table and its files; `None` if there is none of that name.
    pub(super) fn removing_closed(&self, name: &TableName) -> Option<Removing> {
        self.closed.contains_key(name).then(|| Removing { name: *name, folder: self.folder.clone() })
    }
}

/// A closed table that is to be removed.
pub(super) struct Removing {
    pub(super) name: TableName,
    folder: Option<Arc<TablesFolder>>,
}

impl Removing {
    /// Removes its files: when that returns they are gone for good.
    pub(super) fn run(&self) -> Result<(), Refusal> {
        let (Some(folder), name) = (&self.folder, &self.name) else { return Ok(()) };
        let refused = |error| {
            let why = format!("the closed table `{name}` could not be dropped: {error}");
            Refusal::new(ErrorCode::NotDurable, why)
        };
        folder.drop_table(name).map_err(refused)?;
        if let Err(error) = folder.clear_dropped(name.as_str()) {
            warn!("files of the dropped table `{name}` could not be removed: {error}");
        }
        Ok(())
    }
}
