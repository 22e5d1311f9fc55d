//! Recovery from the memory of a process that may have ended at any instant.

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{
    CHANGE_RECORD_BYTES, ChangeRecord, Corrupt, Descriptor, DirectoryPage, LOG_HEAD_OFFSET, REUSE_OFFSET,
    SEQUENCE_OFFSET, SUPERBLOCK_BYTES, SegmentReplacement, Superblock, TableRecord, decode_root,
};
use fpcache::message::WriteReply;
use fpcache::models::Segment;
use fpcache::put_into;
use fpcache_fabric::{FileIdentity, NodeMemory};
use fpcache_index::Directory;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::RecoverError;
use crate::boot::{BOOT_ID_FILE, UNKNOWN_BOOT};
use crate::budget::Grant;
use crate::dedup::{DedupSession, DedupSessions, MOST_CLIENTS};
use crate::durability::{Disk, LogReader, Lsn, ReadLimit, Staging};
use crate::lease::Lease;
use crate::node::NodeState;
use crate::recovery_area::{Identity, RecoveryArea, Replaced};
use crate::space::{Extent, Space};
use crate::superblock_writer::SuperblockWriter;
use crate::table::error::TableError;
use crate::table::room::directory_reserve::SeparatorBytes;
use crate::table::segments::Counts;
use crate::table::segments::slots::Slots;
use crate::table::values::ExternalValues;
use crate::table::{Table, TableParts};
use crate::wal::entry::{self, Logged};

/// What was found in memory.
#[derive(Debug)]
pub(crate) struct ResumedRegion<K: BuildKeys, M> {
    pub(crate) state: NodeState<K, M>,
    pub(crate) finished_change: bool,
    pub(crate) redo: Redo,
}

/// What was logged and not performed, while it is done again.
#[derive(Debug)]
pub(crate) struct Redo {
    pub(crate) sessions: DedupSessions,
    pub(crate) redone: u64,
    /// Everything up to this entry is in the region.
    pub(crate) applied: Lsn,
}

/// The identity of the memory, if it can be used since this boot of the machine; else the reason
/// why not.
pub(crate) fn examine<M: NodeMemory>(
    region: &M,
    recovery_area: &RecoveryArea<M>,
    boot: [u8; 16],
    files: [FileIdentity; 2],
) -> Result<Identity, String> {
    let identity = recovery_area.identity().map_err(|e| e.to_string())?;
    let identity = identity.ok_or("its recovery area was never finished")?;
    if boot == UNKNOWN_BOOT {
        // Two that are unknown may differ, and after a power failure files lack what was last
        // stored.
        return Err(format!(
            "whether the machine has been started anew since cannot be told, as {BOOT_ID_FILE} cannot be read: let \
             this process read it (in a unit of systemd: ProcSubset=all)"
        ));
    }
    if identity.boot == UNKNOWN_BOOT {
        return Err(format!(
            "the previous process could not read {BOOT_ID_FILE}, so the machine may have been started anew since"
        ));
    }
    if identity.boot != boot {
        return Err("the machine has been started anew since".into());
    }
    if identity.files != files {
        // Of a store that was copied while it was written, parts are older than others.
        return Err("its files are copies, or were restored: that memory was in others".into());
    }
    let mut incarnation = [0; 8];
    region.read_bytes(fpcache::layout::INCARNATION_OFFSET, &mut incarnation).map_err(|e| e.to_string())?;
    let incarnation = u64::from_le_bytes(incarnation);
    if ![identity.incarnation, identity.before].contains(&incarnation) {
        return Err("region and recovery area do not belong together".into());
    }
    Ok(identity)
}

/// Takes the memory up: `incarnation` is the new memory node's.
pub(crate) fn adopt_region<K: BuildKeys, M: NodeMemory, D: Disk>(
    (region, grant, lease): (Arc<M>, Arc<Grant>, Lease),
    recovery_area: RecoveryArea<M>,
    identity: &Identity,
    incarnation: u64,
    node: u16,
    staging: &Staging<M>,
    disk: &D,
) -> Result<ResumedRegion<K, M>, RecoverError> {
    let before = superblock::<K, M>(&*region, &recovery_area)?;
    recovery_area.begin(&Identity { incarnation, before: before.incarnation, ..*identity })?;
    // For an end in the midst of what follows. A record that is noted already may be the only copy,
    // where the superblock was being rewritten: it would be gone while it was noted anew.
    if recovery_area.record::<K>()? != before.table {
        recovery_area.set_or_clear_record::<K>(before.table.as_ref())?;
    }
    let (applied, next_version) = recovery_area.applied()?;
    let mut superblock =
        SuperblockWriter::resume(Arc::clone(&region), grant, lease, recovery_area.clone(), before);
    superblock.renew(incarnation)?;
    let mut sessions = DedupSessions::inherited();
    for place in 0..MOST_CLIENTS {
        match recovery_area.request_of(place)? {
            None if recovery_area.is_unused(place)? => break,
            noted => sessions.restore(place, noted),
        }
    }
    let mut redo = Redo { sessions, redone: 0, applied };
    let Some(record) = before.table else {
        superblock.grant.discard_rest();
        return Ok(ResumedRegion { state: NodeState::Empty(superblock, None), finished_change: false, redo });
    };

    let finished_change = finish_change::<K, M>(&superblock, &record)?;
    let mut table = table(superblock, node, record, next_version)?;
    table.claim_extents()?;
    redo.redo(&mut table, staging, disk)?;
    table.recount()?;
    // No reader may believe any memory it knew of: what is free here may have been in quarantine.
    let head = table.room.log_head();
    let superblock = &mut table.room.superblock;
    superblock.set_reuse(head)?;
    superblock.wait_for_lease();
    superblock.grant.discard_rest();
    match table.room.finish_checkpoint(&table.segments) {
        // Readers that begin wait until there is room for a directory.
        Ok(()) | Err(TableError::NoRoom { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    // However often it starts, it gets no more than it has use for.
    if table.room.space.granted_free_bytes() < table.room.superblock.grant.end() / 16 {
        table.room.reach_beyond_limit();
    }
    Ok(ResumedRegion { state: NodeState::Serving(table), finished_change, redo })
}

/// The superblock. Where the process ended while it was being rewritten, with the record that it
/// was to have.
fn superblock<K: BuildKeys, M: NodeMemory>(
    region: &M,
    recovery_area: &RecoveryArea<M>,
) -> Result<Superblock, RecoverError> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    region.read_bytes(0, &mut bytes)?;
    match Superblock::decode::<K>(&bytes) {
        Ok(superblock) => Ok(superblock),
        Err(fpcache::layout::SuperblockError::Changing) => Ok(Superblock {
            incarnation: u64::from_le_bytes(bytes[16..].first_chunk().copied().unwrap_or_default()),
            region_bytes: region.len(),
            sequence: region.load_acquire(SEQUENCE_OFFSET)?,
            reuse_sequence: region.load_acquire(REUSE_OFFSET)?,
            log_head: region.load_acquire(LOG_HEAD_OFFSET)?,
            table: recovery_area.record::<K>()?,
        }),
        Err(other) => Err(Corrupt::new("superblock", 0, other.to_string()).into()),
    }
}

/// Freezes what a committed change replaced; `true` if there was one.
fn finish_change<K: BuildKeys, M: NodeMemory>(
    superblock: &SuperblockWriter<K, M>,
    record: &TableRecord,
) -> Result<bool, RecoverError> {
    let Some(recovery_area) = &superblock.recovery_area else { return Ok(false) };
    let Some((head, old)) = recovery_area.change()? else { return Ok(false) };
    let committed = superblock.current().log_head >= head;
    if committed {
        let geometry = record.parameters.geometry();
        for Replaced { offset, generation, cap } in old {
            Slots::at(&*superblock.region, geometry, offset, cap, generation).freeze()?;
        }
        superblock.region.release();
    }
    superblock.end_change()?;
    Ok(committed)
}

/// The table whose directory is that of the checkpoint with all changes since.
fn table<K: BuildKeys, M: NodeMemory>(
    superblock: SuperblockWriter<K, M>,
    node: u16,
    record: TableRecord,
    next_version: u32,
) -> Result<Table<K, M>, RecoverError> {
    let region = &*superblock.region;
    let mut root = vec![0; record.root_bytes as usize];
    region.read_bytes(record.root, &mut root)?;
    if xxh3_64_with_seed(&root, record.checkpoint) != record.root_checksum {
        return Err(Corrupt::new("directory root", record.root, "its checksum does not match").into());
    }
    let mut published = vec![Extent::new(record.root, root.len() as u64)];
    let mut descriptors: Vec<Descriptor<K>> = Vec::new();
    let mut page = vec![0; K::PAGE_BYTES];
    let entries = decode_root::<K>(&root, record.pages)
        .ok_or_else(|| Corrupt::new("directory root", record.root, "an entry is cut short"))?;
    for entry in entries {
        region.read_bytes(entry.page, &mut page)?;
        DirectoryPage::decode(&page, entry.page, record.checkpoint, &mut descriptors)?;
        published.push(Extent::new(entry.page, K::PAGE_BYTES as u64));
    }
    let pair = |d: &Descriptor<K>| (d.start.clone(), Segment::from(d));
    let encoders = encoders::<K, M>(region, &record)?;
    let damaged = |why: String| Corrupt::new("directory", record.root, why);
    let mut directory =
        Directory::from_sorted(descriptors.iter().map(pair).collect()).map_err(|e| damaged(e.to_string()))?;
    replay_changes::<K, M>(region, &record, superblock.current().log_head, &mut directory)?;

    let geometry = record.parameters.geometry();
    let log = Extent::new(record.log, record.log_records * CHANGE_RECORD_BYTES as u64);
    let encoders_extent = Extent::new(record.encoders, record.encoders_bytes);
    let mut used: Vec<Extent> = published.iter().copied().chain([log]).collect();
    used.extend((record.encoders_bytes > 0).then_some(encoders_extent));
    let (mut generations, mut segment_bytes) = (Vec::with_capacity(directory.len()), 0);
    for (_, segment) in &directory {
        generations.push(segment.generation());
        let bytes = geometry.segment_bytes(segment.model().cap) as u64;
        segment_bytes += bytes;
        used.push(Extent::new(segment.address().offset(), bytes));
    }
    // What a budget grants anew ends after all of it.
    let end = used.iter().map(|extent| extent.offset + extent.len).max().unwrap_or(0);
    let taken = superblock.grant.claim(end);
    taken.map_err(|why| {
        Corrupt::new("directory", record.root, format!("its memory cannot be granted: {why}"))
    })?;
    let space = Space::around(SUPERBLOCK_BYTES as u64, superblock.grant.end(), used)
        .with_more(Arc::clone(&superblock.grant));
    let next_generation = generation_after(generations);
    let parts = TableParts {
        record,
        encoders,
        separators: SeparatorBytes::of::<K>(&directory),
        directory,
        counts: Counts { bytes: segment_bytes, next_generation, next_version: next_version.max(2), keys: 0 },
        space,
        published,
        external: ExternalValues::default(),
    };
    Ok(Table::new(superblock, node, parts))
}

/// The generation after those that segments have. These are given in order and come round after
/// 2³²: so the next one begins the longest run that no segment has.
fn generation_after(mut taken: Vec<u32>) -> u32 {
    taken.sort_unstable();
    let next = taken.iter().skip(1).chain(taken.first());
    let longest = taken.iter().zip(next).max_by_key(|(this, next)| next.wrapping_sub(**this).wrapping_sub(1));
    longest.map_or(0, |(last, _)| *last).wrapping_add(1)
}

/// Applies the records of the change log from the checkpoint to the head.
fn replay_changes<K: BuildKeys, M: NodeMemory>(
    region: &M,
    record: &TableRecord,
    head: u64,
    directory: &mut Directory<K::Key, Segment<K>>,
) -> Result<(), RecoverError> {
    let damaged = |sequence: u64, why: &str| {
        let at = ChangeRecord::offset(record.log, record.log_records.max(1), sequence);
        Corrupt::new("change log", at, format!("record {sequence}: {why}"))
    };
    let (mut shares, mut parts) = (Vec::new(), 0);
    for sequence in record.checkpoint..head {
        let mut bytes = [0; CHANGE_RECORD_BYTES];
        region
            .read_bytes(ChangeRecord::offset(record.log, record.log_records.max(1), sequence), &mut bytes)?;
        let part =
            ChangeRecord::decode(&bytes, sequence).ok_or_else(|| damaged(sequence, "it does not decode"))?;
        if part.part != parts {
            return Err(damaged(sequence, "it is out of order").into());
        }
        shares.extend(part.share);
        parts += 1;
        if parts == part.parts {
            let change = SegmentReplacement::<K>::decode(&shares)
                .ok_or_else(|| damaged(sequence, "it cannot be read"))?;
            put_into(&change, directory).map_err(|why| damaged(sequence, &why))?;
            shares.clear();
            parts = 0;
        }
    }
    Ok(())
}

/// What the segments share to compute coordinates.
fn encoders<K: BuildKeys, M: NodeMemory>(
    region: &M,
    record: &TableRecord,
) -> Result<K::Encoders, RecoverError> {
    let damaged = |why: String| Corrupt::new("encoders", record.encoders, why);
    let mut bytes = vec![0; record.encoders_bytes as usize];
    region.read_bytes(record.encoders, &mut bytes)?;
    if xxh3_64(&bytes) != record.encoders_checksum {
        return Err(damaged("their checksum does not match".into()).into());
    }
    Ok(K::decode_encoders(&bytes).map_err(damaged)?)
}

impl Redo {
    /// Performs what was logged and not performed.
    fn redo<K: BuildKeys, M: NodeMemory, D: Disk>(
        &mut self,
        table: &mut Table<K, M>,
        staging: &Staging<M>,
        disk: &D,
    ) -> Result<(), RecoverError> {
        let from = self.applied + 1;
        if staging.last_lsn() < from {
            return Ok(());
        }
        if let Ok(mut records) = staging.records(from) {
            while let Some((lsn, payload)) = records.next_record()? {
                self.redo_one(table, lsn, payload)?;
            }
            return Ok(());
        }
        // The ring has given some of them back: they are in the log's files. What it still has is
        // read from there, for in the last file a disk that fails may have left anything.
        let reach = ReadLimit::Below(staging.freed_lsn()? + 1);
        let reader = LogReader::look(disk, Some(staging.lineage()), reach)?;
        let mut records = reader.records(disk, from)?;
        let mut last = self.applied;
        while let Some((lsn, payload)) = records.next_record()? {
            self.redo_one(table, lsn, payload)?;
            last = lsn;
        }
        let mut rest = staging.records(last + 1)?;
        while let Some((lsn, payload)) = rest.next_record()? {
            self.redo_one(table, lsn, payload)?;
        }
        Ok(())
    }

    fn redo_one<K: BuildKeys, M: NodeMemory>(
        &mut self,
        table: &mut Table<K, M>,
        lsn: Lsn,
        payload: &[u8],
    ) -> Result<(), RecoverError> {
        let logged = entry::decode::<K>(payload, &table.segments.geometry.shape)
            .ok_or_else(|| RecoverError::Undecodable { what: format!("entry {lsn} of the log") })?;
        // The values of entries lie in the region still. Pieces whose mutation was never written
        // down are done with too: if they stayed to be done, a snapshot would take the log's files
        // away that the next start asks for.
        let Logged::SlotMutation(entry) = logged else { return self.note_applied(lsn, table) };
        let at = (entry.segment, entry.generation, entry.slot);
        let done = table.redo(entry.kind, at, entry.key.borrow(), entry.version, &entry.value)?;
        let reply = done.ok_or(RecoverError::Misfit { lsn })?;
        if let Some(session) = self.sessions.with_request(entry.client, entry.request)
            && let Some(recovery_area) = &table.room.superblock.recovery_area
        {
            self.keep_reply(recovery_area, &session, usize::from(entry.operation), reply)?;
        }
        self.redone += 1;
        self.note_applied(lsn, table)
    }

    fn note_applied<K: BuildKeys, M: NodeMemory>(
        &mut self,
        lsn: Lsn,
        table: &Table<K, M>,
    ) -> Result<(), RecoverError> {
        if let Some(recovery_area) = &table.room.superblock.recovery_area {
            recovery_area.set_applied(lsn, table.segments.next_version)?;
        }
        self.applied = lsn;
        Ok(())
    }

    /// Keeps the reply to an operation that was done again. Those before it which changed nothing
    /// were noted when they were decided.
    fn keep_reply(
        &mut self,
        recovery_area: &RecoveryArea<impl NodeMemory>,
        session: &DedupSession,
        operation: usize,
        reply: WriteReply,
    ) -> Result<(), RecoverError> {
        for before in self.sessions.replies(session.client).len()..operation {
            if let Some(noted) = recovery_area.reply(session.place, before)? {
                self.sessions.done(session, before, noted);
            }
        }
        self.sessions.done(session, operation, reply);
        Ok(recovery_area.set_reply(session.place, session.request, operation, &reply)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_that_came_round_are_not_given_to_new_segments_while_others_have_them() {
        assert_eq!(generation_after(vec![]), 1);
        assert_eq!(generation_after(vec![7]), 8);
        assert_eq!(generation_after(vec![3, 1, 2]), 4);
        assert_eq!(generation_after(vec![1, u32::MAX]), 2);
        let mut came_round: Vec<u32> = (u32::MAX - 5..=u32::MAX).chain(0..7).collect();
        came_round.reverse();
        assert_eq!(generation_after(came_round), 7);
        assert_eq!(generation_after(vec![u32::MAX - 1, u32::MAX]), 0);
    }
}
