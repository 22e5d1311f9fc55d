//! Going on with the memory of a process that has ended, at whatever instant.

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{
    CHANGE_RECORD_BYTES, Change, ChangeRecord, Corrupt, Descriptor, DirectoryPage, LOG_HEAD_OFFSET,
    REUSE_OFFSET, SEQUENCE_OFFSET, SUPERBLOCK_BYTES, SegmentGeometry, SlotState, SlotWord, Superblock,
    TableRecord, decode_root,
};
use fpcache::message::WriteReply;
use fpcache::models::Segment;
use fpcache::put_into;
use fpcache_fabric::{FileIdentity, NodeMemory};
use fpcache_index::Directory;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::RecoverError;
use crate::budget::Grant;
use crate::clients::{Clients, MOST_CLIENTS, Writer};
use crate::durability::{Disk, LogReader, Lsn, Staging};
use crate::front::Front;
use crate::journal::entry::{self, Logged};
use crate::notes::{Identity, Notes, Replaced};
use crate::space::{Extent, Space};
use crate::table::extents::Outside;
use crate::table::{Parts, Table, TableError};

/// What was found in memory.
#[derive(Debug)]
pub(crate) struct Found<K: BuildKeys, M> {
    pub(crate) front: Front<K, M>,
    pub(crate) table: Option<Table<K>>,
    pub(crate) writers: Clients,
    pub(crate) redone: u64,
    pub(crate) finished_change: bool,
    /// Everything up to this entry is in the region.
    pub(crate) applied: Lsn,
}

/// Whose memory it is, if it can be gone on with in this start of the machine; else why not.
pub(crate) fn examine<M: NodeMemory>(
    region: &M,
    notes: &Notes<M>,
    boot: [u8; 16],
    files: [FileIdentity; 2],
) -> Result<Identity, String> {
    let identity = notes.identity().map_err(|e| e.to_string())?;
    let identity = identity.ok_or("its notes were never finished")?;
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
        return Err("region and notes do not belong together".into());
    }
    Ok(identity)
}

/// Takes the memory up: `incarnation` is the new memory node's.
pub(crate) fn take_up<K: BuildKeys, M: NodeMemory, D: Disk>(
    (region, grant): (Arc<M>, Arc<Grant>),
    notes: Notes<M>,
    identity: &Identity,
    incarnation: u64,
    node: u16,
    staging: &Staging<M>,
    disk: &mut D,
) -> Result<Found<K, M>, RecoverError> {
    let superblock = superblock::<K, M>(&*region, &notes)?;
    notes.begin(&Identity { incarnation, before: superblock.incarnation, ..*identity })?;
    // For an end in the midst of what follows.
    notes.set_or_clear_record::<K>(superblock.table.as_ref())?;
    let (applied, next_version) = notes.applied()?;
    let mut front = Front::resume(Arc::clone(&region), grant, notes.clone(), superblock);
    front.renew(incarnation)?;
    let mut writers = Clients::inherited();
    for place in 0..MOST_CLIENTS {
        match notes.request_of(place)? {
            None if notes.is_unused(place)? => break,
            noted => writers.restore(place, noted),
        }
    }
    let mut found = Found { front, table: None, writers, redone: 0, finished_change: false, applied };
    let Some(record) = superblock.table else {
        found.front.grant.discard_rest();
        return Ok(found);
    };

    found.finished_change = finish_change::<K, M>(&found.front, &record)?;
    let mut table = table(&found.front, node, record, next_version)?;
    table.claim_extents(&found.front)?;
    found.redo(&mut table, staging, disk)?;
    table.recount(&found.front)?;
    // No reader may believe any memory it knew of: what is free here may have been in quarantine.
    let head = found.front.superblock().log_head;
    found.front.set_reuse(head)?;
    found.front.grant.discard_rest();
    match table.finish_checkpoint(&mut found.front) {
        // Readers that begin wait until there is room for a directory.
        Ok(()) | Err(TableError::NoRoom { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    found.table = Some(table);
    Ok(found)
}

/// The superblock. Where the process ended while it was being rewritten, with the record that it was to have.
fn superblock<K: BuildKeys, M: NodeMemory>(region: &M, notes: &Notes<M>) -> Result<Superblock, RecoverError> {
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
            table: notes.record::<K>()?,
        }),
        Err(other) => Err(Corrupt::new("superblock", 0, other.to_string()).into()),
    }
}

/// Freezes what a committed change replaced; `true` if there was one.
fn finish_change<K: BuildKeys, M: NodeMemory>(
    front: &Front<K, M>,
    record: &TableRecord,
) -> Result<bool, RecoverError> {
    let Some(notes) = &front.notes else { return Ok(false) };
    let Some((head, old)) = notes.change()? else { return Ok(false) };
    let committed = front.superblock().log_head >= head;
    if committed {
        let geometry = record.parameters.geometry();
        old.iter().try_for_each(|replaced| freeze(&*front.region, &geometry, *replaced))?;
        front.region.release();
    }
    front.end_change()?;
    Ok(committed)
}

fn freeze<M: NodeMemory>(region: &M, geometry: &SegmentGeometry, old: Replaced) -> Result<(), RecoverError> {
    let Replaced { offset, cap, .. } = old;
    let start = offset + fpcache::layout::SEGMENT_HEADER_BYTES as u64;
    let first = offset + geometry.slots_offset(cap) as u64;
    region.fill_words(start, ((first - start) / 8) as usize, u64::MAX)?;
    let frozen = SlotWord::new(SlotState::Frozen, 0, 0).to_bits();
    for slot in 0..u64::from(cap) {
        region.store_relaxed(first + slot * geometry.slot_bytes as u64, frozen)?;
    }
    Ok(())
}

/// The table whose directory is that of the checkpoint with all changes since.
fn table<K: BuildKeys, M: NodeMemory>(
    front: &Front<K, M>,
    node: u16,
    record: TableRecord,
    next_version: u32,
) -> Result<Table<K>, RecoverError> {
    let region = &*front.region;
    let mut root = vec![0; record.root_bytes as usize];
    region.read_bytes(record.root, &mut root)?;
    if xxh3_64_with_seed(&root, record.checkpoint) != record.root_checksum {
        return Err(Corrupt::new("directory root", record.root, "its checksum does not match").into());
    }
    let mut published = vec![Extent::new(record.root, root.len() as u64)];
    let mut descriptors: Vec<Descriptor<K>> = Vec::new();
    let mut page = vec![0; K::PAGE_BYTES];
    let entries = decode_root::<K>(&root)
        .ok_or_else(|| Corrupt::new("directory root", record.root, "an entry is cut short"))?;
    for entry in entries {
        region.read_bytes(entry.page, &mut page)?;
        DirectoryPage::decode(&page, entry.page, record.checkpoint, &mut descriptors)?;
        published.push(Extent::new(entry.page, K::PAGE_BYTES as u64));
    }
    let pair = |d: &Descriptor<K>| (d.lo.clone(), Segment::from(d));
    let encoders = encoders::<K, M>(region, &record)?;
    let damaged = |why: String| Corrupt::new("directory", record.root, why);
    let mut directory =
        Directory::from_sorted(descriptors.iter().map(pair).collect()).map_err(|e| damaged(e.to_string()))?;
    replay_changes::<K, M>(region, &record, front.superblock().log_head, &mut directory)?;

    let geometry = record.parameters.geometry();
    let log = Extent::new(record.log, record.log_records * CHANGE_RECORD_BYTES as u64);
    let encoders_extent = Extent::new(record.encoders, record.encoders_bytes);
    let mut used: Vec<Extent> = published.iter().copied().chain([log]).collect();
    used.extend((record.encoders_bytes > 0).then_some(encoders_extent));
    let mut generation = 0;
    for (_, segment) in &directory {
        generation = generation.max(segment.generation());
        let bytes = geometry.segment_bytes(segment.model().cap) as u64;
        used.push(Extent::new(segment.address().offset(), bytes));
    }
    // What a budget grants anew ends after all of it.
    let end = used.iter().map(|extent| extent.offset + extent.len).max().unwrap_or(0);
    let taken = front.grant.claim(end);
    taken
        .map_err(|why| Corrupt::new("directory", record.root, format!("its memory cannot be had: {why}")))?;
    let space =
        Space::around(SUPERBLOCK_BYTES as u64, front.grant.end(), used).with_more(Arc::clone(&front.grant));
    let next_generation = generation.wrapping_add(1);
    let parts = Parts {
        record,
        encoders,
        directory,
        space,
        published,
        next_generation,
        next_version: next_version.max(2),
        keys: 0,
        outside: Outside::default(),
    };
    Ok(Table::new(node, parts))
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
            let change =
                Change::<K>::decode(&shares).ok_or_else(|| damaged(sequence, "it cannot be read"))?;
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

impl<K: BuildKeys, M: NodeMemory> Found<K, M> {
    /// Does what was written down and not done.
    fn redo<D: Disk>(
        &mut self,
        table: &mut Table<K>,
        staging: &Staging<M>,
        disk: &mut D,
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
        // The ring has given some of them back: they are in the log's files.
        let (reader, _) = LogReader::open(disk, Some(staging.lineage()))?;
        let mut records = reader.records(&*disk, from)?;
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

    fn redo_one(&mut self, table: &mut Table<K>, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        let logged = entry::decode::<K>(payload, &table.shape())
            .ok_or_else(|| RecoverError::Undecodable { what: format!("entry {lsn} of the log") })?;
        // The values of entries lie in the region still.
        let Logged::Effect(entry) = logged else { return Ok(()) };
        let at = (entry.segment, entry.generation, entry.slot);
        let done =
            table.redo(&self.front, entry.kind, at, entry.key.borrow(), entry.version, &entry.value)?;
        let reply = done.ok_or(RecoverError::Misfit { lsn })?;
        if let Some(writer) = self.writers.with_request(entry.client, entry.request) {
            self.keep_reply(&writer, usize::from(entry.operation), reply)?;
        }
        if let Some(notes) = &self.front.notes {
            notes.set_applied(lsn, table.next_version())?;
        }
        self.applied = lsn;
        self.redone += 1;
        Ok(())
    }

    /// Keeps the reply to an operation that was done again. Those before it which changed nothing were noted when they were
    /// decided.
    fn keep_reply(
        &mut self,
        writer: &Writer,
        operation: usize,
        reply: WriteReply,
    ) -> Result<(), RecoverError> {
        let Some(notes) = &self.front.notes else { return Ok(()) };
        for before in self.writers.replies(writer.client).len()..operation {
            if let Some(noted) = notes.reply(writer.place, before)? {
                self.writers.done(writer, before, noted);
            }
        }
        self.writers.done(writer, operation, reply);
        Ok(notes.set_reply(writer.place, writer.request, operation, &reply)?)
    }
}
