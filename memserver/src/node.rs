//! The memory node: its region, its table, the requests it answers.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use fpcache::key_space::KeySpace;
use fpcache::layout::{SEQUENCE_OFFSET, SUPERBLOCK_BYTES, Superblock, TableParameters, TableRecord};
use fpcache::message::{ErrorCode, MessageError, NodeStats, Refusal, Request, encode_reply};
use fpcache_fabric::{AccessError, ClientId, Service, SharedMemory};

use crate::allocator::Allocator;
use crate::loader::{LoadError, Loader};

/// A memory node over one region, which nobody else writes.
#[derive(Debug)]
pub struct MemoryNode<K: KeySpace> {
    region: Arc<SharedMemory>,
    node: u16,
    superblock: Superblock,
    allocator: Allocator,
    next_generation: u32,
    loading: Option<(ClientId, Loader<K>)>,
    clients: u64,
    requests: u64,
    started: Instant,
}

/// The client a load from this process counts as.
const SELF: ClientId = ClientId(u64::MAX);

impl<K: KeySpace> MemoryNode<K> {
    /// A memory node with an empty region. `incarnation` must differ from that of any earlier memory node its clients
    /// may have known; `node` is its number in segments' addresses.
    pub fn new(
        region: Arc<SharedMemory>,
        incarnation: u64,
        node: u16,
        now: Instant,
    ) -> Result<Self, AccessError> {
        let region_bytes = region.len() as u64;
        let superblock =
            Superblock { incarnation, region_bytes, sequence: 0, reuse_sequence: 0, table: None };
        let node = Self {
            allocator: Allocator::new(SUPERBLOCK_BYTES as u64, region_bytes),
            region,
            node,
            superblock,
            next_generation: 1,
            loading: None,
            clients: 0,
            requests: 0,
            started: now,
        };
        node.region.write_bytes(0, &node.superblock.encode::<K>())?;
        Ok(node)
    }

    /// The region.
    pub fn region(&self) -> &Arc<SharedMemory> {
        &self.region
    }

    /// Loads records from this process: `keys` in ascending order, and `value(i, out)` to fill in the value of the
    /// `i`-th one, which has the size in `parameters`.
    pub fn load(
        &mut self,
        parameters: TableParameters,
        keys: impl ExactSizeIterator<Item = K::Key>,
        value: impl FnMut(usize, &mut [u8]),
    ) -> Result<TableRecord, Refusal> {
        self.begin(SELF, parameters, keys.len() as u64)?;
        let loaded = self.load_all(keys, value, parameters.value_bytes as usize);
        if loaded.is_err() {
            self.abort(SELF);
        }
        loaded
    }

    fn load_all(
        &mut self,
        keys: impl Iterator<Item = K::Key>,
        mut value: impl FnMut(usize, &mut [u8]),
        value_bytes: usize,
    ) -> Result<TableRecord, Refusal> {
        let region = Arc::clone(&self.region);
        let loader = self.loader(SELF)?;
        let mut bytes = vec![0; value_bytes];
        for (i, key) in keys.enumerate() {
            value(i, &mut bytes);
            loader.push(&region, key, &bytes).map_err(|e| e.refusal())?;
        }
        self.commit(SELF)
    }

    /// Counters for `stats`.
    pub fn stats(&self) -> NodeStats {
        let table = self.superblock.table;
        NodeStats {
            incarnation: self.superblock.incarnation,
            region_bytes: self.superblock.region_bytes,
            used_bytes: self.allocator.used(),
            keys: table.map_or(0, |t| t.keys),
            segments: table.map_or(0, |t| t.segments),
            clients: self.clients,
            requests: self.requests,
            uptime_ms: self.started.elapsed().as_millis() as u64,
        }
    }

    fn begin(
        &mut self,
        client: ClientId,
        parameters: TableParameters,
        expected_keys: u64,
    ) -> Result<(), Refusal> {
        if let Some(table) = &self.superblock.table {
            let why = format!(
                "this memory node already holds {} keys: restart it to load another data set, or start a second one \
                 under another name",
                table.keys
            );
            return Err(Refusal::new(ErrorCode::NotEmpty, why));
        }
        if self.loading.is_some() {
            let why =
                "another load into this memory node is in progress: wait until it is finished or given up";
            return Err(Refusal::new(ErrorCode::Busy, why));
        }
        let capacity = self.superblock.region_bytes;
        // The bytes of a load that never committed were never visible: they are simply used again.
        let loader =
            Loader::new(parameters, expected_keys, self.allocator, capacity, self.node, self.next_generation)
                .map_err(|e| e.refusal())?;
        self.loading = Some((client, loader));
        Ok(())
    }

    fn loader(&mut self, client: ClientId) -> Result<&mut Loader<K>, Refusal> {
        match &mut self.loading {
            Some((owner, loader)) if *owner == client => Ok(loader),
            _ => Err(Refusal::new(
                ErrorCode::Invalid,
                "no load is in progress on this connection: begin one first; if one was, the memory node gave it up \
                 when the connection broke",
            )),
        }
    }

    fn commit(&mut self, client: ClientId) -> Result<TableRecord, Refusal> {
        self.loader(client)?;
        let Some((_, loader)) = self.loading.take() else {
            return Err(Refusal::new(ErrorCode::Internal, "the load vanished"));
        };
        let finished = loader.finish(&self.region).map_err(|e| e.refusal())?;
        self.allocator = finished.allocator;
        self.next_generation = finished.next_generation;
        self.publish(finished.record).map_err(|e| LoadError::from(e).refusal())?;
        Ok(finished.record)
    }

    /// Makes a table visible: odd sequence, record, even sequence.
    fn publish(&mut self, record: TableRecord) -> Result<(), AccessError> {
        let before = self.superblock.sequence;
        self.superblock.table = Some(record);
        self.superblock.sequence = before + 1;
        self.region.store_release(SEQUENCE_OFFSET, before + 1)?;
        fence(Ordering::Release);
        self.region.write_bytes(0, &self.superblock.encode::<K>())?;
        self.superblock.sequence = before + 2;
        self.region.store_release(SEQUENCE_OFFSET, before + 2)
    }

    fn answer(&mut self, client: ClientId, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        let request = Request::decode::<K>(request).map_err(|e| match e {
            MessageError::Version(_) => Refusal::new(ErrorCode::Version, e.to_string()),
            MessageError::Malformed(_) => Refusal::new(ErrorCode::Invalid, e.to_string()),
        })?;
        let mut body = Vec::new();
        match request {
            Request::Stats => self.stats().encode(&mut body),
            Request::LoadBegin { parameters, expected_keys } => {
                self.begin(client, parameters, expected_keys)?;
            }
            Request::LoadChunk(chunk) => {
                let region = Arc::clone(&self.region);
                let pushed = self.loader(client)?.push_chunk(&region, chunk.first, chunk.keys, chunk.values);
                if let Err(error) = pushed {
                    self.loading = None;
                    return Err(error.refusal());
                }
            }
            Request::LoadCommit => {
                let record = self.commit(client)?;
                body.extend(record.keys.to_le_bytes());
                body.extend(record.segments.to_le_bytes());
            }
            Request::LoadAbort => self.abort(client),
        }
        Ok(body)
    }

    /// Gives up `client`'s load, if it has one.
    fn abort(&mut self, client: ClientId) {
        self.loading.take_if(|(owner, _)| *owner == client);
    }
}

impl<K: KeySpace> Service for MemoryNode<K> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) {
        self.requests += 1;
        let result = self.answer(client, request);
        encode_reply(result.as_deref(), reply);
    }

    fn connected(&mut self, _: ClientId) {
        self.clients += 1;
    }

    fn disconnected(&mut self, client: ClientId) {
        self.clients = self.clients.saturating_sub(1);
        self.abort(client);
    }
}
