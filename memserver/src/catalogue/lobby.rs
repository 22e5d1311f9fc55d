//! The lobby: the region of clients that name no table.

use std::sync::Arc;

use fpcache::key_space::U64Keys;
use fpcache::layout::{REUSE_OFFSET, SUPERBLOCK_BYTES, Superblock};
use fpcache::map::{MAPS_BYTES, MAPS_OFFSET, RangeMap, encode_published};
use fpcache_fabric::{AccessError, Export, HugePages, NodeMemory, SharedMemory};

use super::error::TableOpenError;

/// The creation number of the lobby, and of no table.
pub(super) const NO_TABLE: u64 = 0;

/// The region of those who name no table: a superblock without one, and the maps of the tables that
/// have ranges here.
#[derive(Debug)]
pub(super) struct Lobby {
    region: Arc<SharedMemory>,
    export: Export,
    /// How often maps were published.
    sequence: u64,
}

impl Lobby {
    pub(super) fn new(incarnation: u64) -> Result<Self, TableOpenError> {
        let bytes = SUPERBLOCK_BYTES + MAPS_BYTES;
        let (region, fd) = SharedMemory::create_memfd("fpcache-lobby", bytes, HugePages::No)
            .map_err(|source| TableOpenError::Region { capacity: bytes as u64, source })?;
        let superblock = Superblock {
            incarnation,
            region_bytes: bytes as u64,
            sequence: 0,
            reuse_sequence: 0,
            log_head: 0,
            table: None,
        };
        region.write_bytes(0, &superblock.encode::<U64Keys>())?;
        let export =
            Export::new(&region, fd, incarnation)?.with_creation(NO_TABLE).with_watched(REUSE_OFFSET);
        let mut lobby = Self { region: Arc::new(region), export, sequence: 0 };
        lobby.publish([].into_iter())?;
        Ok(lobby)
    }

    pub(super) fn export(&self) -> Export {
        self.export.clone()
    }

    /// Puts maps where clients READ them.
    pub(super) fn publish<'m>(
        &mut self,
        maps: impl Iterator<Item = &'m RangeMap>,
    ) -> Result<(), AccessError> {
        /// Bytes before the maps.
        const HEAD: usize = 64;
        self.sequence += 1;
        // Room was looked for before a map was taken.
        let Some(bytes) = encode_published(self.sequence, maps) else { return Ok(()) };
        let (head, maps) = bytes.split_at(HEAD.min(bytes.len()));
        self.region.write_bytes(MAPS_OFFSET + HEAD as u64, maps)?;
        self.region.release();
        self.region.write_bytes(MAPS_OFFSET, head)
    }
}
