//! Checks before a table is created.

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::message::{ErrorCode, Refusal};
use fpcache_fabric::descriptors::TakenDescriptors;
use fpcache_fabric::{FabricError, random_bits};

use super::Catalogue;
use super::descriptor::TableDescriptor;
use super::error::TableOpenError;
use super::jobs::{self, CreateJob};
use super::lobby::NO_TABLE;
use crate::capacity::MIN_CAPACITY;

impl Catalogue {
    /// As [`can_make`](Self::can_make), of what is no range of a table over several memory nodes
    /// and has no such one's name.
    pub(super) fn can_make_table(
        &self,
        name: TableName,
        kind: KeyKind,
        region_bytes: Option<u64>,
    ) -> Result<CreateJob, Refusal> {
        if name.as_range().is_some() {
            let why = format!(
                "`{name}` can only be a range of a table over several memory nodes: create one with `fpcache-cli create --nodes`"
            );
            return Err(Refusal::new(ErrorCode::BadName, why));
        }
        if let Some(range) = self.range_of(&name, |_| true) {
            let why = format!(
                "there is a table `{name}` over several memory nodes, of which this one has `{range}`: use it, drop it, or choose \
                 another name"
            );
            return Err(Refusal::new(ErrorCode::TableExists, why));
        }
        self.can_make(name, kind, region_bytes)
    }

    /// A table that can be made, as far as that is known before.
    pub(super) fn can_make(
        &self,
        name: TableName,
        kind: KeyKind,
        region_bytes: Option<u64>,
    ) -> Result<CreateJob, Refusal> {
        if let Some(table) = self.get(&name) {
            let why = format!(
                "the table `{name}` exists already, with keys of the kind {}: use it, drop it, or choose another name",
                table.kind
            );
            return Err(Refusal::new(ErrorCode::TableExists, why));
        }
        if let Some(refusal) = self.refusal_for_closed(&name) {
            return Err(refusal);
        }
        self.check_region(region_bytes)?;
        let unable = |why: TableOpenError| jobs::unable(&name, &why);
        let creation = new_creation().map_err(|error| unable(error.into()))?;
        // Before a folder is made that would have to be removed again.
        let descriptors = self.take_descriptors().map_err(unable)?;
        Ok(self.making(name, TableDescriptor { kind, region_bytes, creation }, descriptors))
    }

    pub(super) fn making(
        &self,
        name: TableName,
        descriptor: TableDescriptor,
        descriptors: TakenDescriptors,
    ) -> CreateJob {
        let (folder, opening) = (self.folder.clone(), self.opening.clone());
        CreateJob { name, descriptor, map: None, folder, opening, waker: self.waker.beside(), descriptors }
    }

    /// Whether there can be a region of this size.
    pub(super) fn check_region(&self, region_bytes: Option<u64>) -> Result<(), Refusal> {
        let size = |bytes| bytesize::ByteSize(bytes).display().iec();
        let budget = &self.opening.budget;
        match region_bytes {
            Some(bytes) if bytes < MIN_CAPACITY => {
                let why =
                    format!("a region of {} is too small: use at least {}", size(bytes), size(MIN_CAPACITY));
                Err(Refusal::new(ErrorCode::Invalid, why))
            }
            Some(bytes) if bytes > budget.bytes() => {
                let (bytes, all) = (size(bytes), size(budget.bytes()));
                let why = format!(
                    "a region of {bytes} exceeds the capacity of this memory node, {all}: ask for less, or \
                     restart it with a larger --capacity"
                );
                Err(Refusal::new(ErrorCode::NoMemory, why))
            }
            _ => Ok(()),
        }
    }
}

/// A creation number for a new table: no other table has it, nor had it, wherever and whenever it
/// was made. Clients go by it to tell a table from another of its name.
pub(super) fn new_creation() -> Result<u64, FabricError> {
    loop {
        match random_bits()? {
            NO_TABLE => {}
            creation => return Ok(creation),
        }
    }
}
