//! Going on from the disk: the newest whole snapshot, then the log.

use fpcache::key_space::KeySpace;
use fpcache::layout::TableParameters;
use fpcache_fabric::NodeMemory;

use super::{Origin, RecoverError};
use crate::durability::{Disk, LogReader, Lsn, SnapshotReader};
use crate::journal::entry::Entry;
use crate::node::MemoryNode;
use crate::table::TableError;
use crate::table::records::VERSION_BYTES;
use crate::table::write::EffectKind;

/// What the disk held.
#[derive(Debug)]
pub(crate) struct FromDisk {
    pub(crate) origin: Origin,
    /// Of the store, if there is one.
    pub(crate) lineage: Option<u64>,
    /// The last entry of the log.
    pub(crate) last: Lsn,
}

/// Fills an empty memory node with what the disk holds.
pub(crate) fn fill<K: KeySpace, M: NodeMemory, D: Disk>(
    node: &mut MemoryNode<K, M>,
    disk: &mut D,
) -> Result<FromDisk, RecoverError> {
    let (snapshot, report) = SnapshotReader::newest(disk, None)?;
    let skipped: Vec<String> =
        report.skipped.iter().map(|(name, why)| format!("{name} was not used: {why}")).collect();
    let (log, found) = LogReader::open(disk, snapshot.as_ref().map(SnapshotReader::lineage))?;
    let Some(mut snapshot) = snapshot else {
        if found.last >= found.first && found.last > 0 {
            let skipped = skipped.iter().map(|skipped| format!("; {skipped}")).collect();
            return Err(RecoverError::NoSnapshot { first: found.first, last: found.last, skipped });
        }
        return Ok(FromDisk { origin: Origin::Nothing, lineage: found.lineage, last: found.last });
    };
    let info = snapshot.info().clone();
    let last = found.last.max(info.first_lsn - 1);
    if last < info.last_lsn {
        return Err(RecoverError::LogTooShort { name: info.name, needed: info.last_lsn, last });
    }
    load(node, &mut snapshot, disk)?;
    let mut replayed = 0;
    let mut records = log.records(&*disk, info.first_lsn)?;
    while let Some((lsn, payload)) = records.next_record()? {
        replay(node, lsn, payload)?;
        replayed += 1;
    }
    let truncated = found.truncated.map(|cut| {
        format!("{} bytes were cut off {} at offset {}: {}", cut.bytes, cut.file, cut.offset, cut.why)
    });
    let origin = Origin::Disk { snapshot: info.name, replayed, truncated, skipped, why: None };
    Ok(FromDisk { origin, lineage: Some(snapshot.lineage()), last })
}

fn load<K: KeySpace, M: NodeMemory, D: Disk>(
    node: &mut MemoryNode<K, M>,
    snapshot: &mut SnapshotReader,
    disk: &D,
) -> Result<(), RecoverError> {
    let undecodable = |what: String| RecoverError::Undecodable { what };
    let parameters = TableParameters::decode::<K>(snapshot.table_header())
        .map_err(|why| undecodable(format!("the header of a snapshot ({why})")))?;
    let mut loader = node.loader_for(parameters, snapshot.info().records)?;
    let (region, value_bytes) = (node.region().clone(), parameters.value_bytes as usize);
    while let Some(record) = snapshot.next_record(disk)? {
        let parts = record.split_first_chunk::<VERSION_BYTES>().and_then(|(version, rest)| {
            let (key, value) = rest.split_at_checked(K::KEY_BYTES)?;
            (value.len() == value_bytes).then_some((u32::from_le_bytes(*version), K::decode(key)?, value))
        });
        let (version, key, value) = parts.ok_or_else(|| undecodable("a record of a snapshot".into()))?;
        loader.push(&*region, key, value, version)?;
    }
    node.take_load(loader)?;
    let header = snapshot.table_header();
    let version = header.get(TableParameters::ENCODED_BYTES..).and_then(|rest| rest.first_chunk());
    if let (Some(version), Some(table)) = (version, &mut node.table) {
        table.go_on_from(u32::from_le_bytes(*version));
    }
    Ok(())
}

fn replay<K: KeySpace, M: NodeMemory>(
    node: &mut MemoryNode<K, M>,
    lsn: Lsn,
    payload: &[u8],
) -> Result<(), RecoverError> {
    let undecodable = || RecoverError::Undecodable { what: format!("entry {lsn} of the log") };
    let MemoryNode { front, table: Some(table), .. } = node else { return Err(undecodable()) };
    let entry = Entry::decode::<K>(payload, table.value_bytes() as usize).ok_or_else(undecodable)?;
    let value = (entry.kind != EffectKind::Remove).then_some(entry.value);
    table.put_back(front, entry.key, entry.version, value)?;
    // What waits for a checkpoint must not outgrow the region while nobody serves.
    if lsn.is_multiple_of(256) {
        loop {
            match table.work(front, true) {
                Ok(true) => {}
                // Whoever needs the room will be told.
                Ok(false) | Err(TableError::NoRoom { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
