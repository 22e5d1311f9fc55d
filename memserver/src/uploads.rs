//! Values sent ahead of their request, in pieces.

use std::collections::HashMap;
use std::fmt;

use fpcache::layout::{MAX_VALUE_BYTES, RecordShape, ValueExtent};
use fpcache::message::{ErrorCode, MAX_AHEAD_BYTES, MAX_OPERATIONS, Piece, Refusal};
use fpcache_fabric::{AccessError, ClientId, NodeMemory};
use xxhash_rust::xxh3::Xxh3Default;

use crate::space::Extent;
use crate::table::values::value_at;

/// A value of which some pieces have come.
pub(crate) struct Upload {
    /// Where it is put; `None` if there was no room.
    memory: Option<Extent>,
    bytes: u32,
    arrived: u32,
    hash: Xxh3Default,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, bytes, arrived, .. } = self;
        f.debug_struct("Upload")
            .field("memory", memory)
            .field("bytes", bytes)
            .field("arrived", arrived)
            .finish()
    }
}

impl Upload {
    /// A value of this many bytes, for which this memory was found, or none.
    pub(crate) fn begin(memory: Option<Extent>, bytes: u32) -> Self {
        Self { memory, bytes, arrived: 0, hash: Xxh3Default::new() }
    }

    /// Puts the next piece where it belongs; `false` if it is not the next one.
    pub(crate) fn add(&mut self, region: &impl NodeMemory, piece: &Piece<'_>) -> Result<bool, AccessError> {
        let end = u64::from(piece.offset) + piece.bytes.len() as u64;
        if piece.offset != self.arrived || piece.value_bytes != self.bytes || end > u64::from(self.bytes) {
            return Ok(false);
        }
        if let Some(memory) = self.memory {
            region.write_bytes(memory.offset + u64::from(piece.offset), piece.bytes)?;
            self.hash.update(piece.bytes);
        }
        self.arrived += piece.bytes.len() as u32;
        Ok(true)
    }

    pub(crate) fn is_whole(&self, bytes: u32) -> bool {
        self.arrived == self.bytes && self.bytes == bytes
    }

    /// The value, for memory node `node`; `None` if there was no room for it.
    pub(crate) fn finish(&self, node: u16) -> Option<ValueExtent> {
        value_at(node, self.memory?, self.bytes, self.hash.digest())
    }

    pub(crate) fn memory(&self) -> Option<Extent> {
        self.memory
    }

    /// Bytes of the value.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// The values of one client, which belong to one of its requests.
#[derive(Debug)]
struct Ahead {
    /// Over which they come.
    connection: ClientId,
    request: u64,
    values: Vec<(u32, Upload)>,
    /// Bytes of all values, as long as they will be.
    bytes: u64,
}

impl Ahead {
    fn new(connection: ClientId, request: u64) -> Self {
        Self { connection, request, values: Vec::new(), bytes: 0 }
    }

    fn remove(&mut self, at: usize) -> Upload {
        let (_, upload) = self.values.swap_remove(at);
        self.bytes -= u64::from(upload.bytes());
        upload
    }
}

/// Values that have come, or are coming, ahead of writes.
#[derive(Default, Debug)]
pub(crate) struct Uploads {
    by_client: HashMap<u64, Ahead>,
}

/// Clients that may have values on their way over one connection: many threads share one.
const MOST_CLIENTS: usize = 256;

/// Values that may be on their way over one connection, or for one load; what is kept of each
/// beside its bytes takes 0.6 KiB.
pub(crate) const MOST_VALUES: usize = MAX_OPERATIONS;

/// Bytes of values that may be on their way over one connection to a region that has so many at
/// most: those of two requests, and half of the region where that is more, but no more than those
/// of four requests.
pub(crate) fn most_ahead(region_bytes: u64) -> u64 {
    (region_bytes / 2).clamp(2 * MAX_AHEAD_BYTES as u64, 4 * MAX_AHEAD_BYTES as u64)
}

/// Whether a piece can be one of a value of a table of this shape; the reason if not.
pub(crate) fn check(piece: &Piece<'_>, shape: &RecordShape) -> Result<(), Refusal> {
    let end = u64::from(piece.offset) + piece.bytes.len() as u64;
    if piece.bytes.is_empty() || end > u64::from(piece.value_bytes) {
        return Err(Refusal::new(
            ErrorCode::Invalid,
            "a piece of a value is empty or reaches past the value's end",
        ));
    }
    if piece.value_bytes as usize > MAX_VALUE_BYTES {
        let why = format!("a value of {} bytes exceeds the maximum of {MAX_VALUE_BYTES}", piece.value_bytes);
        return Err(Refusal::new(ErrorCode::BadData, why));
    }
    if shape.value_bytes.is_some() || piece.value_bytes as usize <= ValueExtent::REFERENCE_BYTES {
        let why = format!(
            "a value of {} bytes was sent ahead, but records of this table hold such values in their slots",
            piece.value_bytes
        );
        return Err(Refusal::new(ErrorCode::BadData, why));
    }
    Ok(())
}

/// The refusal of a piece that does not follow those before.
pub(crate) fn out_of_order() -> Refusal {
    Refusal::new(ErrorCode::Invalid, "a piece of a value is missing or was sent twice: send the value again")
}

impl Uploads {
    /// The value that a piece belongs to, if it is not the first one of it; and what of the
    /// client's is of no use any more.
    pub(crate) fn place(
        &mut self,
        connection: ClientId,
        piece: &Piece<'_>,
        most: u64,
        freed: &mut Vec<Extent>,
    ) -> Result<Option<&mut Upload>, Refusal> {
        let new = || Ahead::new(connection, piece.request);
        if piece.operation as usize >= MAX_OPERATIONS {
            let why = format!(
                "a value for operation {}, but a request has at most {MAX_OPERATIONS}",
                piece.operation
            );
            return Err(Refusal::new(ErrorCode::Invalid, why));
        }
        if !self.by_client.contains_key(&piece.client) {
            let others = self.by_client.values().filter(|ahead| ahead.connection == connection).count();
            if others >= MOST_CLIENTS {
                let why =
                    format!("values of more than {MOST_CLIENTS} clients are being sent over one connection");
                return Err(Refusal::new(ErrorCode::Busy, why));
            }
        }
        let others = if piece.offset == 0 { self.of_others(connection, piece.client) } else { (0, 0) };
        let ahead = self.by_client.entry(piece.client).or_insert_with(new);
        if piece.request < ahead.request {
            let why = "a value for a request older than the client's last one";
            return Err(Refusal::new(ErrorCode::Invalid, why));
        }
        if (piece.request, connection) != (ahead.request, ahead.connection) {
            freed.extend(ahead.values.iter().filter_map(|(_, upload)| upload.memory()));
            *ahead = new();
        }
        let at = ahead.values.iter().position(|(operation, _)| *operation == piece.operation);
        match at {
            Some(at) if piece.offset > 0 => Ok(Some(&mut ahead.values[at].1)),
            None if piece.offset > 0 => Err(out_of_order()),
            begun => {
                if let Some(at) = begun {
                    freed.extend(ahead.remove(at).memory());
                }
                if ahead.bytes + u64::from(piece.value_bytes) > MAX_AHEAD_BYTES as u64 {
                    let why = format!(
                        "more than {MAX_AHEAD_BYTES} bytes of values sent ahead of one request: split it"
                    );
                    return Err(Refusal::new(ErrorCode::BadData, why));
                }
                let (values, bytes) = (others.0 + ahead.values.len(), others.1 + ahead.bytes);
                if values >= MOST_VALUES || bytes + u64::from(piece.value_bytes) > most {
                    let why = format!(
                        "{values} values of {bytes} bytes are being sent over this connection, and at most {MOST_VALUES} of \
                         {most} bytes may be: wait for the writes of other threads, or use more connections"
                    );
                    return Err(Refusal::new(ErrorCode::Busy, why));
                }
                Ok(None)
            }
        }
    }

    /// Values of other clients on their way over a connection, and their bytes.
    fn of_others(&self, connection: ClientId, client: u64) -> (usize, u64) {
        let others = self.by_client.iter();
        let others = others.filter(|(other, ahead)| **other != client && ahead.connection == connection);
        others.fold((0, 0), |(values, bytes), (_, ahead)| (values + ahead.values.len(), bytes + ahead.bytes))
    }

    /// Keeps a value whose first piece has come.
    pub(crate) fn keep(&mut self, piece: &Piece<'_>, upload: Upload) {
        if let Some(ahead) = self.by_client.get_mut(&piece.client) {
            ahead.bytes += u64::from(upload.bytes());
            ahead.values.push((piece.operation, upload));
        }
    }

    /// The value that came ahead of an operation.
    pub(crate) fn get(&self, client: u64, request: u64, operation: usize) -> Option<&Upload> {
        let ahead = self.by_client.get(&client).filter(|ahead| ahead.request == request)?;
        ahead.values.iter().find(|(of, _)| *of as usize == operation).map(|(_, upload)| upload)
    }

    /// Takes the value that came ahead of an operation.
    pub(crate) fn take(&mut self, client: u64, request: u64, operation: usize) -> Option<Upload> {
        let ahead = self.by_client.get_mut(&client).filter(|ahead| ahead.request == request)?;
        let at = ahead.values.iter().position(|(of, _)| *of as usize == operation)?;
        Some(ahead.remove(at))
    }

    /// Drops what has come for this request of a client, or one before; returns its memory.
    pub(crate) fn drop_up_to(&mut self, client: u64, request: u64) -> Vec<Extent> {
        let is_old = self.by_client.get(&client).is_some_and(|ahead| ahead.request <= request);
        let ahead = if is_old { self.by_client.remove(&client) } else { None };
        ahead.map_or(Vec::new(), |ahead| memories(&ahead).collect())
    }

    /// Drops what has come over a connection; returns its memory.
    pub(crate) fn disconnected(&mut self, connection: ClientId) -> Vec<Extent> {
        let gone = self.by_client.extract_if(|_, ahead| ahead.connection == connection);
        gone.flat_map(|(_, ahead)| memories(&ahead).collect::<Vec<_>>()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }
}

fn memories(ahead: &Ahead) -> impl Iterator<Item = Extent> {
    ahead.values.iter().filter_map(|(_, upload)| upload.memory())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(client: u64, operation: u32, value_bytes: u32) -> Piece<'static> {
        Piece { client, request: 1, operation, value_bytes, offset: 0, bytes: b"first" }
    }

    #[test]
    fn a_connection_has_so_many_values_on_their_way_however_many_clients_it_serves() {
        const MIB: u32 = 1 << 20;
        let (mut uploads, mut freed) = (Uploads::default(), Vec::new());
        let mut begin = |uploads: &mut Uploads, connection, piece: &Piece<'_>| {
            let placed =
                uploads.place(ClientId(connection), piece, most_ahead(200 << 20), &mut freed).map(|_| ());
            placed
                .map(|()| uploads.keep(piece, Upload::begin(None, piece.value_bytes)))
                .map_err(|refusal| refusal.code)
        };
        assert_eq!((most_ahead(1 << 20), most_ahead(1 << 40)), (128 << 20, 256 << 20));
        for client in 0..8 {
            assert_eq!(begin(&mut uploads, 1, &piece(client, 0, 16 * MIB)), Ok(()));
        }
        assert_eq!(begin(&mut uploads, 1, &piece(9, 0, 16 * MIB)), Err(ErrorCode::Busy));
        assert_eq!(begin(&mut uploads, 2, &piece(10, 0, 16 * MIB)), Ok(()), "another connection");
        // A value that is sent again, or used, makes room.
        assert_eq!(begin(&mut uploads, 1, &piece(3, 0, 16 * MIB)), Ok(()), "sent anew");
        assert!(uploads.take(4, 1, 0).is_some());
        assert_eq!(begin(&mut uploads, 1, &piece(9, 1, 16 * MIB)), Ok(()));
        uploads.disconnected(ClientId(1));
        for value in 0..MOST_VALUES as u32 {
            assert_eq!(begin(&mut uploads, 1, &piece(u64::from(value % 2), value, 17)), Ok(()));
        }
        assert_eq!(begin(&mut uploads, 1, &piece(5, 0, 17)), Err(ErrorCode::Busy));
    }
}
