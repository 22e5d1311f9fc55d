//! Closing and removal of tables that could not be opened, or not be dropped.

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::message::{ErrorCode, Refusal};
use tracing::error;

use super::closed::{ClosedTable, NotDropped, Removing};
use super::error::TableOpenError;
use super::{Catalogue, CatalogueError};
use crate::wal::MissingLog;

impl Catalogue {
    /// Brings the logs of all tables to the disk for good: to be called when no client is served
    /// any more.
    ///
    /// # Errors
    /// The disk did not take all of them, so that a copy of the folder lacks writes that were
    /// acknowledged; or it has not all of a table that is closed, or no snapshot that a table's log
    /// follows.
    pub fn end_logs(&mut self) -> Result<(), CatalogueError> {
        let served = self.tables.iter_mut().flatten();
        let lacking: Vec<_> = served.filter_map(|table| Some((table.name, table.node.end_log()?))).collect();
        let closed = self.closed.iter().filter_map(|(name, table)| {
            let (entries, why) = (table.why.entries_in_notes()?, table.why.to_string());
            Some((*name, MissingLog::InNotes { entries, why }))
        });
        let mut first = Ok(());
        for (name, lacking) in lacking.into_iter().chain(closed) {
            let error = match lacking {
                MissingLog::InNotes { entries, why } => CatalogueError::NotOnDisk { name, entries, why },
                MissingLog::Lost { last } => CatalogueError::Lost { name, last },
                MissingLog::Snapshot => CatalogueError::NoSnapshot { name },
            };
            match first {
                Ok(()) => first = Err(error),
                Err(_) => error!("{error}"),
            }
        }
        first
    }

    /// The tables that are not served, in the order of their names, and why, with what to do.
    pub fn closed(&self) -> impl Iterator<Item = (&TableName, String)> {
        self.closed.iter().map(|(name, table)| (name, table.why_and_remedy(name)))
    }

    /// The refusal to make a table of a name that a closed one has; `None` if none has.
    pub(super) fn refusal_for_closed(&self, name: &TableName) -> Option<Refusal> {
        let closed = self.closed.get(name)?;
        let why = format!(
            "the table `{name}` exists but is closed ({}): fix that and restart the memory node, or choose another name",
            closed.why_and_remedy(name)
        );
        Some(Refusal::new(ErrorCode::TableExists, why))
    }

    /// Closes a table that was to be dropped and could not be: its name stays taken until it is
    /// dropped again, as it would come back with the next start.
    pub(super) fn close(&mut self, name: TableName, kind: KeyKind, refused: NotDropped) {
        let NotDropped { refusal, left } = refused;
        let why = TableOpenError::NotDropped { why: refusal.message };
        self.closed.insert(name, ClosedTable { kind, why, left });
    }

    /// What removes a closed table and its files; `None` if there is none of that name. It has the
    /// table's region until it has [ended](Self::end_removing).
    pub(super) fn removing_closed(&mut self, name: &TableName) -> Option<Removing> {
        let left = self.closed.get_mut(name)?.left.take();
        Some(Removing { name: *name, folder: self.folder.clone(), left })
    }

    /// Forgets a closed table that was removed, or keeps it to be dropped again.
    pub(super) fn end_removing(
        &mut self,
        name: &TableName,
        outcome: Result<(), NotDropped>,
    ) -> Result<(), Refusal> {
        let Err(NotDropped { refusal, left }) = outcome else {
            self.closed.remove(name);
            return Ok(());
        };
        if let Some(closed) = self.closed.get_mut(name) {
            closed.left = left;
        }
        Err(refusal)
    }
}
