//! Values sent ahead of their request, in pieces.

use std::collections::HashMap;
use std::fmt;

use fpcache::layout::{MAX_VALUE_BYTES, RecordShape, ValueExtent};
use fpcache::message::{ErrorCode, MAX_AHEAD_BYTES, MAX_OPERATIONS, Refusal, ValuePiece};
use fpcache_fabric::{AccessError, ClientId, NodeMemory};
use xxhash_rust::xxh3::Xxh3Default;

use crate::request_memory::{MOST_VALUES_OF_ALL, Transit, TransitGuard};
use crate::space::Extent;
use crate::table::values::value_at;

/// A value of which some pieces have come.
pub(crate) struct Upload {
    /// Where it is put, and the sum of what has come; `None` if there was no room.
    memory: Option<(Extent, Box<Xxh3Default>)>,
    bytes: u32,
    arrived: u32,
    /// Counts it among those of all tables.
    _held: TransitGuard,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, arrived, .. } = self;
        f.debug_struct("Upload")
            .field("memory", &self.memory())
            .field("bytes", bytes)
            .field("arrived", arrived)
            .finish()
    }
}

impl Upload {
    /// A value of this many bytes, for which this memory was found, or none.
    pub(crate) fn begin(memory: Option<Extent>, bytes: u32, held: TransitGuard) -> Self {
        let memory = memory.map(|memory| (memory, Box::new(Xxh3Default::new())));
        Self { memory, bytes, arrived: 0, _held: held }
    }

    /// Puts the next piece where it belongs; `false` if it is not the next one.
    pub(crate) fn add(
        &mut self,
        region: &impl NodeMemory,
        piece: &ValuePiece<'_>,
    ) -> Result<bool, AccessError> {
        let end = u64::from(piece.offset) + piece.bytes.len() as u64;
        if piece.offset != self.arrived || piece.value_bytes != self.bytes || end > u64::from(self.bytes) {
            return Ok(false);
        }
        if let Some((memory, hash)) = &mut self.memory {
            region.write_bytes(memory.offset + u64::from(piece.offset), piece.bytes)?;
            hash.update(piece.bytes);
        }
        self.arrived += piece.bytes.len() as u32;
        Ok(true)
    }

    pub(crate) fn is_whole(&self, bytes: u32) -> bool {
        self.arrived == self.bytes && self.bytes == bytes
    }

    /// The value, for memory node `node`; `None` if there was no room for it.
    pub(crate) fn finish(&self, node: u16) -> Option<ValueExtent> {
        let (memory, hash) = self.memory.as_ref()?;
        value_at(node, *memory, self.bytes, hash.digest())
    }

    pub(crate) fn memory(&self) -> Option<Extent> {
        self.memory.as_ref().map(|(memory, _)| *memory)
    }

    /// Bytes of the value.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// The values of one client, which belong to one of its requests: one at least.
#[derive(Debug)]
struct ClientUploads {
    /// Over which they come.
    connection: ClientId,
    request: u64,
    values: Vec<(u32, Upload)>,
    /// Bytes of all values, as long as they will be.
    bytes: u64,
}

/// What comes over one connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct ConnectionTotals {
    clients: usize,
    values: usize,
    bytes: u64,
}

/// Values that have come, or are coming, ahead of writes.
#[derive(Default, Debug)]
pub(crate) struct Uploads {
    by_client: HashMap<u64, ClientUploads>,
    by_connection: HashMap<ClientId, ConnectionTotals>,
}

/// Clients that may have values on their way over one connection: many threads share one.
const MOST_CLIENTS: usize = 256;

/// Values that may be on their way over one connection, or for one load; what is kept of each
/// beside its bytes takes up to 1 KiB. Those of all tables have a bound of their own
/// (`request_memory`).
pub(crate) const MOST_VALUES: usize = MAX_OPERATIONS;

/// Bytes of values that may be on their way over one connection to a region of `region_bytes`:
/// those of two requests, and half of the region where that is more, but no more than those of four
/// requests.
pub(crate) fn most_ahead(region_bytes: u64) -> u64 {
    (region_bytes / 2).clamp(2 * MAX_AHEAD_BYTES as u64, 4 * MAX_AHEAD_BYTES as u64)
}

/// Whether a piece can be one of a value of a table of this shape; the reason if not.
pub(crate) fn check(piece: &ValuePiece<'_>, shape: &RecordShape) -> Result<(), Refusal> {
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

/// The refusal of a value for which there is no room, for all the others on their way to the memory
/// node's tables.
pub(crate) fn too_many() -> Refusal {
    let why = format!(
        "values are being sent to this memory node ahead of many other requests, and at most {MOST_VALUES_OF_ALL} may \
         be, of which no table has more than it leaves to others: wait for the writes of other clients"
    );
    Refusal::new(ErrorCode::Busy, why)
}

impl Uploads {
    /// The value that a piece belongs to, if it is not the first one of it; and what of the
    /// client's is of no use any more. For a first one `transit` must have room.
    pub(crate) fn place(
        &mut self,
        connection: ClientId,
        piece: &ValuePiece<'_>,
        (most, transit): (u64, &Transit),
        freed: &mut Vec<Extent>,
    ) -> Result<Option<&mut Upload>, Refusal> {
        if piece.operation as usize >= MAX_OPERATIONS {
            let why = format!(
                "a value for operation {}, but a request has at most {MAX_OPERATIONS}",
                piece.operation
            );
            return Err(Refusal::new(ErrorCode::Invalid, why));
        }
        match self.by_client.get(&piece.client) {
            Some(ahead) if piece.request < ahead.request => {
                let why = "a value for a request older than the client's last one";
                return Err(Refusal::new(ErrorCode::Invalid, why));
            }
            Some(ahead) if (piece.request, connection) != (ahead.request, ahead.connection) => {
                freed.extend(self.remove(piece.client));
            }
            _ => {}
        }
        if piece.offset > 0 {
            let ahead = self.by_client.get_mut(&piece.client);
            let upload = ahead.and_then(|ahead| {
                ahead.values.iter_mut().find(|(operation, _)| *operation == piece.operation)
            });
            return upload.map(|(_, upload)| Some(upload)).ok_or_else(out_of_order);
        }
        let begun = self.take(piece.client, piece.request, piece.operation as usize);
        freed.extend(begun.and_then(|upload| upload.memory()));
        self.check_room(connection, piece, most)?;
        if transit.has_room_for_value() { Ok(None) } else { Err(too_many()) }
    }

    /// Whether a value can begin to come over this connection.
    fn check_room(&self, connection: ClientId, piece: &ValuePiece<'_>, most: u64) -> Result<(), Refusal> {
        let ConnectionTotals { clients, values, bytes } = self.tally(connection);
        let ahead = self.by_client.get(&piece.client);
        if ahead.is_none() && clients >= MOST_CLIENTS {
            let why =
                format!("values of more than {MOST_CLIENTS} clients are being sent over one connection");
            return Err(Refusal::new(ErrorCode::Busy, why));
        }
        let own = ahead.map_or(0, |ahead| ahead.bytes);
        if own + u64::from(piece.value_bytes) > MAX_AHEAD_BYTES as u64 {
            let why =
                format!("more than {MAX_AHEAD_BYTES} bytes of values sent ahead of one request: split it");
            return Err(Refusal::new(ErrorCode::BadData, why));
        }
        if values >= MOST_VALUES || bytes + u64::from(piece.value_bytes) > most {
            let why = format!(
                "{values} values of {bytes} bytes are being sent over this connection, and at most {MOST_VALUES} of \
                 {most} bytes may be: wait for the writes of other threads, or use more connections"
            );
            return Err(Refusal::new(ErrorCode::Busy, why));
        }
        Ok(())
    }

    /// What comes over a connection.
    fn tally(&self, connection: ClientId) -> ConnectionTotals {
        self.by_connection.get(&connection).copied().unwrap_or_default()
    }

    /// Keeps a value whose first piece has come over this connection.
    pub(crate) fn keep(&mut self, connection: ClientId, piece: &ValuePiece<'_>, upload: Upload) {
        let tally = self.by_connection.entry(connection).or_default();
        let ahead = self.by_client.entry(piece.client).or_insert_with(|| {
            tally.clients += 1;
            ClientUploads { connection, request: piece.request, values: Vec::new(), bytes: 0 }
        });
        tally.values += 1;
        tally.bytes += u64::from(upload.bytes());
        ahead.bytes += u64::from(upload.bytes());
        ahead.values.push((piece.operation, upload));
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
        let (_, upload) = ahead.values.swap_remove(at);
        ahead.bytes -= u64::from(upload.bytes());
        let (connection, is_last) = (ahead.connection, ahead.values.is_empty());
        if is_last {
            self.by_client.remove(&client);
        }
        let gone =
            ConnectionTotals { clients: usize::from(is_last), values: 1, bytes: u64::from(upload.bytes()) };
        self.count_off(connection, gone);
        Some(upload)
    }

    /// Drops what has come of a client; returns its memory.
    fn remove(&mut self, client: u64) -> Vec<Extent> {
        let Some(ahead) = self.by_client.remove(&client) else { return Vec::new() };
        let gone = ConnectionTotals { clients: 1, values: ahead.values.len(), bytes: ahead.bytes };
        self.count_off(ahead.connection, gone);
        memories(&ahead).collect()
    }

    fn count_off(&mut self, connection: ClientId, gone: ConnectionTotals) {
        let Some(tally) = self.by_connection.get_mut(&connection) else { return };
        tally.clients -= gone.clients;
        tally.values -= gone.values;
        tally.bytes -= gone.bytes;
        if tally.values == 0 {
            self.by_connection.remove(&connection);
        }
    }

    /// Drops what has come for this request of a client, or one before; returns its memory.
    pub(crate) fn drop_up_to(&mut self, client: u64, request: u64) -> Vec<Extent> {
        let is_old = self.by_client.get(&client).is_some_and(|ahead| ahead.request <= request);
        if is_old { self.remove(client) } else { Vec::new() }
    }

    /// Drops what has come over a connection; returns its memory.
    pub(crate) fn disconnected(&mut self, connection: ClientId) -> Vec<Extent> {
        if self.by_connection.remove(&connection).is_none() {
            return Vec::new();
        }
        let gone = self.by_client.extract_if(|_, ahead| ahead.connection == connection);
        gone.flat_map(|(_, ahead)| memories(&ahead).collect::<Vec<_>>()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }
}

fn memories(ahead: &ClientUploads) -> impl Iterator<Item = Extent> {
    ahead.values.iter().filter_map(|(_, upload)| upload.memory())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(client: u64, operation: u32, value_bytes: u32) -> ValuePiece<'static> {
        ValuePiece { client, request: 1, operation, value_bytes, offset: 0, bytes: b"first" }
    }

    /// Begins to send a value over a connection.
    fn begin(
        uploads: &mut Uploads,
        transit: &Transit,
        connection: u64,
        piece: &ValuePiece<'_>,
    ) -> Result<(), ErrorCode> {
        let (connection, most) = (ClientId(connection), most_ahead(200 << 20));
        let placed = uploads.place(connection, piece, (most, transit), &mut Vec::new()).map(drop);
        placed.map_err(|refusal| refusal.code)?;
        uploads.keep(connection, piece, Upload::begin(None, piece.value_bytes, transit.hold_value()));
        Ok(())
    }

    /// What comes over each connection, counted anew.
    fn counted(uploads: &Uploads) -> HashMap<ClientId, ConnectionTotals> {
        let mut counted: HashMap<ClientId, ConnectionTotals> = HashMap::new();
        for ahead in uploads.by_client.values() {
            assert!(!ahead.values.is_empty(), "nothing is kept of clients without values");
            let bytes = ahead.values.iter().map(|(_, upload)| u64::from(upload.bytes())).sum();
            assert_eq!(ahead.bytes, bytes);
            let tally = counted.entry(ahead.connection).or_default();
            tally.clients += 1;
            tally.values += ahead.values.len();
            tally.bytes += bytes;
        }
        counted
    }

    #[test]
    fn all_connections_have_so_many_values_on_their_way_and_leave_other_tables_some() {
        let (mut uploads, transit) = (Uploads::default(), Transit::default());
        let begun = |uploads: &mut Uploads, transit: &Transit, connections: std::ops::Range<u64>| {
            let all = connections.flat_map(|connection| (0..1000).map(move |value| (connection, value)));
            all.filter(|(connection, value)| {
                begin(
                    uploads,
                    transit,
                    *connection,
                    &piece(connection * 8 + u64::from(value % 8), *value, 17),
                )
                .is_ok()
            })
            .count()
        };
        assert_eq!(begun(&mut uploads, &transit, 0..40), MOST_VALUES_OF_ALL / 2, "as many as are left");
        uploads.disconnected(ClientId(0));
        assert_eq!(begun(&mut uploads, &transit, 40..42), 1000, "as many as have gone");
        let (mut others, beside) = (Uploads::default(), transit.beside());
        assert_eq!(begun(&mut others, &beside, 0..10), MOST_VALUES_OF_ALL / 4);
        assert_eq!(begun(&mut uploads, &transit, 42..43), 0);
        // However many others there are, a table has a few.
        let tables: Vec<_> = (0..20).map(|_| (Uploads::default(), transit.beside())).collect();
        let each = tables.into_iter().map(|(mut uploads, own)| (begun(&mut uploads, &own, 0..9), uploads));
        assert!(each.collect::<Vec<_>>().iter().all(|(begun, _)| *begun >= 16));
    }

    #[test]
    fn what_comes_over_a_connection_is_told_without_looking_at_all_clients() {
        let (mut uploads, transit) = (Uploads::default(), Transit::default());
        let mut random = 7u64;
        for step in 0..5000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let draw = |bits: u32, below: u64| (random >> bits) % below;
            let (connection, client, request) = (draw(20, 3), draw(30, 5), draw(40, 3));
            let operation = draw(50, 4) as u32;
            match draw(60, 8) {
                0..=4 => {
                    let piece = ValuePiece { request, ..piece(client, operation, 17 + step) };
                    let _ = begin(&mut uploads, &transit, connection, &piece);
                }
                5 => drop(uploads.take(client, request, operation as usize)),
                6 => drop(uploads.drop_up_to(client, request)),
                _ => drop(uploads.disconnected(ClientId(connection))),
            }
            assert_eq!(uploads.by_connection, counted(&uploads), "step {step}");
        }
    }

    #[test]
    fn a_connection_has_so_many_values_on_their_way_however_many_clients_it_serves() {
        const MIB: u32 = 1 << 20;
        let (mut uploads, transit) = (Uploads::default(), Transit::default());
        let begin = |uploads: &mut Uploads, connection, piece: &ValuePiece<'_>| {
            begin(uploads, &transit, connection, piece)
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
