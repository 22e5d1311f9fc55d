//! Recovery from the disk: the newest whole snapshot, then the log.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{MAX_VALUE_BYTES, RecordParts, Stored, TableParameters};
use fpcache_fabric::NodeMemory;
use tracing::warn;

use super::{Origin, RecoverError};
use crate::durability::{Disk, LogReader, Lsn, ReadLimit, SnapshotReader, newest_named_snapshot, settle_log};
use crate::loader::Begin;
use crate::node::{MemoryNode, NodeState};
use crate::table::error::TableError;
use crate::table::records::VERSION_BYTES;
use crate::table::segments::decide::MutationKind;
use crate::wal::entry::{self, Logged};

/// What the disk held.
#[derive(Debug)]
pub(crate) struct FromDisk {
    pub(crate) origin: Origin,
    /// Where the snapshot begins that was read.
    pub(crate) snapshot: Option<Lsn>,
    /// Of the store, if there is one.
    pub(crate) lineage: Option<u64>,
    /// The last entry of the log.
    pub(crate) last: Lsn,
    /// Whether the end of the machine may take some of it although it was read.
    pub(crate) is_unsure: bool,
}

/// Fills an empty memory node with what the disk holds.
pub(crate) fn fill<K: BuildKeys, M: NodeMemory, D: Disk>(
    node: &mut MemoryNode<K, M>,
    disk: &mut D,
) -> Result<FromDisk, RecoverError> {
    let (snapshot, bad) = SnapshotReader::newest(disk, None)?;
    let skipped: Vec<String> = bad.iter().map(|(name, why)| format!("{name} was not used: {why}")).collect();
    // Changed only once it has been read: a table that is closed keeps its files as they are.
    let lineage = snapshot.as_ref().map(SnapshotReader::lineage);
    let mut found = LogReader::look(disk, lineage, ReadLimit::End { synced: 0 })?;
    let Some(mut snapshot) = snapshot else {
        // A load is in its snapshot alone: a log without entries says nothing of it. And a log
        // begins later than with its first entry only where a snapshot has what came before.
        if let Some(error) = found.unusable.as_ref().filter(|_| found.files.is_empty()) {
            return Err(error.clone().into());
        }
        let begins = found.half_made.as_ref().map_or(found.first, |file| file.first.max(found.first));
        let had_snapshot = !skipped.is_empty() || found.first > 1 || found.files.is_empty() && begins > 1;
        if had_snapshot || found.last >= found.first && found.last > 0 {
            let skipped = skipped.iter().map(|skipped| format!("; {skipped}")).collect();
            return Err(RecoverError::NoSnapshot { first: found.first, last: found.last, skipped });
        }
        settle_log(disk, &mut found)?;
        let (lineage, last, is_unsure) = (found.lineage, found.last, found.is_unsure);
        return Ok(FromDisk { origin: Origin::Nothing, snapshot: None, lineage, last, is_unsure });
    };
    let info = snapshot.info().clone();
    let last = found.last.max(info.first_lsn - 1);
    // Up to where a newer one begins, which cannot be used, the log was on the disk as well.
    let newer = newest_named_snapshot(disk, snapshot.lineage())?.filter(|(first, _)| *first > last + 1);
    if let Some((first, name)) = newer
        && let Some((_, why)) = bad.into_iter().find(|(bad, _)| *bad == name)
    {
        return Err(RecoverError::SnapshotUnusable { name, needed: first - 1, last, why });
    }
    if last < info.last_lsn {
        return Err(RecoverError::LogTooShort { name: info.name, needed: info.last_lsn, last });
    }
    if found.files.is_empty() && found.half_made.is_none() && found.unusable.is_none() {
        warn!(
            "there are no log files (log-*.fpl): writes since the snapshot {} are missing, unless they were moved away on purpose",
            info.name
        );
    }
    // Of what lived within the limit: records lie otherwise than they did, which may take more for
    // a while.
    node.state.superblock().grant.begin_restoring();
    load(node, &mut snapshot, disk)?;
    let mut replayed = 0;
    let mut records = found.records(&*disk, info.first_lsn)?;
    // The pieces of the next entry's value.
    let mut value = Vec::new();
    while let Some((lsn, payload)) = records.next_record()? {
        replayed += u64::from(replay(node, lsn, payload, &mut value)?);
        if replayed.is_multiple_of(256) {
            finish_work(node)?;
        }
    }
    finish_work(node)?;
    if let NodeState::Serving(table) = &mut node.state {
        table.room.settle(&table.segments)?;
    }
    node.state.superblock().grant.end_restoring();
    settle_log(disk, &mut found)?;
    let truncated = found.truncated.map(|cut| {
        format!("{} bytes were cut off {} at offset {}: {}", cut.bytes, cut.file, cut.offset, cut.why)
    });
    let origin = Origin::Disk { snapshot: info.name, replayed, truncated, skipped, why: None };
    let (snapshot, is_unsure) = (Some(info.first_lsn), found.is_unsure);
    Ok(FromDisk { origin, snapshot, lineage, last, is_unsure })
}

fn load<K: BuildKeys, M: NodeMemory, D: Disk>(
    node: &mut MemoryNode<K, M>,
    snapshot: &mut SnapshotReader,
    disk: &D,
) -> Result<(), RecoverError> {
    let undecodable = |what: String| RecoverError::Undecodable { what };
    let parameters = TableParameters::decode::<K>(snapshot.table_header())
        .map_err(|why| undecodable(format!("the header of a snapshot ({why})")))?;
    let rest = snapshot.table_header().get(TableParameters::ENCODED_BYTES..);
    let (version, encoders) = rest
        .and_then(|rest| rest.split_first_chunk())
        .ok_or_else(|| undecodable("the header of a snapshot".into()))?;
    let version = u32::from_le_bytes(*version);
    let encoders = K::decode_encoders(encoders)
        .map_err(|why| undecodable(format!("the header of a snapshot ({why})")))?;
    let begin = Begin { parameters, expected_keys: snapshot.info().records, encoders };
    let mut loader = node.loader_for(begin)?;
    let (region, shape) = (node.region().clone(), parameters.shape);
    while let Some(record) = snapshot.next_record(disk)? {
        let parts = record.split_first_chunk::<VERSION_BYTES>().and_then(|(version, rest)| {
            // A snapshot has all values in place.
            let RecordParts { key, value: Stored::Here(value) } = shape.parts::<K>(rest)? else {
                return None;
            };
            Some((u32::from_le_bytes(*version), K::view(key)?, value))
        });
        let (version, key, value) = parts.ok_or_else(|| undecodable("a record of a snapshot".into()))?;
        loader.push(&*region, key.borrow(), value, version)?;
    }
    node.take_load(&mut loader)?;
    if let Some(table) = node.state.table_mut() {
        table.segments.go_on_from(version);
    }
    Ok(())
}

/// Applies an entry; `false` if it is a piece of the value of one to come.
fn replay<K: BuildKeys, M: NodeMemory>(
    node: &mut MemoryNode<K, M>,
    lsn: Lsn,
    payload: &[u8],
    pieces: &mut Vec<u8>,
) -> Result<bool, RecoverError> {
    let undecodable = || RecoverError::Undecodable { what: format!("entry {lsn} of the log") };
    let NodeState::Serving(table) = &mut node.state else {
        return Err(undecodable());
    };
    let entry = match entry::decode::<K>(payload, &table.segments.geometry.shape).ok_or_else(undecodable)? {
        Logged::SlotMutation(entry) => entry,
        Logged::Piece { offset, bytes } => {
            if offset == 0 {
                // Those before were of a mutation that was not written.
                pieces.clear();
            }
            let follows = offset as usize == pieces.len() && offset as usize + bytes.len() <= MAX_VALUE_BYTES;
            pieces.extend_from_slice(bytes);
            return follows.then_some(false).ok_or_else(undecodable);
        }
    };
    let value = match entry.value {
        _ if entry.kind == MutationKind::Remove => None,
        Stored::Here(value) => Some(value),
        Stored::External(extent) if extent.is_proof_of(pieces) => Some(&pieces[..]),
        Stored::External(_) => return Err(undecodable()),
    };
    table.put_back(entry.key.borrow(), entry.version, value)?;
    Ok(true)
}

/// Does what is done between requests in ordinary life.
fn finish_work<K: BuildKeys, M: NodeMemory>(node: &mut MemoryNode<K, M>) -> Result<(), RecoverError> {
    let NodeState::Serving(table) = &mut node.state else { return Ok(()) };
    loop {
        match table.work(true) {
            Ok(true) => {}
            // The next write that needs the room will be told.
            Ok(false) | Err(TableError::NoRoom { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
