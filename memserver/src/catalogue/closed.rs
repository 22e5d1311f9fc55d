//! Tables that could not be opened. Their names stay taken; all other tables are served.

use std::sync::Arc;

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::message::{ErrorCode, Refusal, TableInfo};
use tracing::warn;

use super::error::TableOpenError;
use super::folders::TablesFolder;
use super::hosted::LeftRegion;
use crate::folder::FolderError;

/// A table that is not served.
#[derive(Debug)]
pub(crate) struct ClosedTable {
    /// What its keys are, as far as that can be told.
    pub(super) kind: KeyKind,
    /// Why it cannot be recovered, and what to do.
    pub(super) why: TableOpenError,
    /// Its region, if it could not be dropped: no client is to read it afterwards.
    pub(super) left: Option<LeftRegion>,
}

impl ClosedTable {
    /// Why it is not served, and what to do; as the last resort that it be dropped, if records are
    /// lost anyway.
    pub(super) fn why_and_remedy(&self, name: &TableName) -> String {
        match self.why.loses_records() {
            true => format!("{}; or remove it with fpcache-cli drop {name} --yes", self.why),
            false => self.why.to_string(),
        }
    }

    /// Information about it.
    pub(super) fn info(&self, name: TableName) -> TableInfo {
        TableInfo { name, kind: self.kind, keys: 0, region_bytes: 0, used_bytes: 0, clients: 0 }
    }
}

/// A closed table that is to be removed.
pub(super) struct Removing {
    pub(super) name: TableName,
    pub(super) folder: Option<Arc<TablesFolder>>,
    pub(super) left: Option<LeftRegion>,
}

impl Removing {
    /// Removes it: when that returns it is gone for good.
    pub(super) fn run(self) -> Result<(), NotDropped> {
        let Self { name, folder, left } = self;
        let what = format!("the closed table `{name}` could not be dropped");
        remove(&name, folder.as_deref(), left, |error| {
            Refusal::new(ErrorCode::NotDurable, format!("{what}: {error}"))
        })
    }
}

/// Why a table could not be dropped, and its region, which is to be given up when it is.
#[derive(Debug)]
pub(super) struct NotDropped {
    pub(super) refusal: Refusal,
    pub(super) left: Option<LeftRegion>,
}

impl From<Refusal> for NotDropped {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, left: None }
    }
}

/// Removes a table that is not served, with its region and all files: when that returns it is gone
/// for good, and no client reads anything of it.
pub(super) fn remove(
    name: &TableName,
    folder: Option<&TablesFolder>,
    left: Option<LeftRegion>,
    refused: impl Fn(FolderError) -> Refusal,
) -> Result<(), NotDropped> {
    if let Some(Err(error)) = folder.map(|folder| folder.drop_table(name)) {
        return Err(NotDropped { refusal: refused(error), left });
    }
    // Only now: until here a crash would have left the table as it was.
    let is_given_up = match left {
        Some(left) => match left.give_up() {
            // And with it the lock on its file goes.
            Ok(()) => true,
            Err(error) => {
                return Err(NotDropped { refusal: crate::node::serving::internal(error), left: Some(left) });
            }
        },
        None => false,
    };
    let Some(folder) = folder else { return Ok(()) };
    if !is_given_up {
        folder.give_up_region(name.as_str()).map_err(&refused)?;
    }
    if let Err(error) = folder.remove_dropped(name.as_str()) {
        warn!("files of the dropped table `{name}` could not be removed: {error}");
    }
    Ok(())
}
