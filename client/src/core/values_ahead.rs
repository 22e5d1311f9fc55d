//! Values longer than a request, sent ahead of it in pieces.

use std::borrow::Cow;

use fpcache::key_space::BuildKeys;
use fpcache::message::{MAX_AHEAD_BYTES, Request, ValuePiece, decode_reply};
use fpcache_fabric::{Clock, Connection, Posted};

use super::sending::{SendLimits, Sending, Writer, send_for};

/// The values of one request's operations that go ahead of it, for as long as it may be sent again.
/// Where the caller waits that long they stay where they are: a copy of 16 MiB takes milliseconds
/// of a processor that others want.
#[derive(Debug, Default)]
pub(super) struct ValuesAhead<'v> {
    /// The operations they are of, and the values.
    values: Vec<(u32, Cow<'v, [u8]>)>,
}

impl<'v> ValuesAhead<'v> {
    /// Whether another value of this many bytes may be sent ahead of the same request.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let before: usize = self.values.iter().map(|(_, value)| value.len()).sum();
        before + bytes <= MAX_AHEAD_BYTES
    }

    /// Adds the value of an operation.
    pub(super) fn push(&mut self, operation: usize, value: &'v [u8]) {
        // A request has far fewer operations than a u32 counts.
        self.values.push((operation as u32, Cow::Borrowed(value)));
    }

    /// The value of the first of these operations.
    pub(super) fn first_value(&self) -> Option<&[u8]> {
        self.values.first().map(|(_, value)| &value[..])
    }

    /// The same, for a request whose values are not kept elsewhere.
    pub(super) fn into_owned(self) -> ValuesAhead<'static> {
        let owned = |(operation, value): (u32, Cow<'_, [u8]>)| (operation, Cow::Owned(value.into_owned()));
        ValuesAhead { values: self.values.into_iter().map(owned).collect() }
    }

    /// What has to be sent ahead of the request with this number of this client.
    fn pieces(&self, client: u64, request: u64, max_request: usize) -> impl Iterator<Item = ValuePiece<'_>> {
        self.values.iter().flat_map(move |(operation, value)| {
            ValuePiece::all((client, request, *operation), value, max_request)
        })
    }
}

impl Writer {
    /// Sends what goes ahead of the request, before every sending of it and over the same
    /// connection: with that the memory node drops it. The request is for one table: it goes to no
    /// other of its name.
    fn send_ahead<K: BuildKeys>(
        &mut self,
        ahead: &ValuesAhead<'_>,
        connection: &impl Connection,
        limits: SendLimits,
        clock: &dyn Clock,
    ) -> Result<(), Sending> {
        if connection.creation() != self.creation {
            return Err(Sending::OtherTable);
        }
        let Self { identity, requests, creation, request, reply, .. } = self;
        for piece in ahead.pieces(*identity, *requests, connection.max_request()) {
            Request::Value(piece).encode::<K>(*creation, request);
            let part = || limits.part(clock);
            send_for(connection, request, reply, limits.deadline, part).map_err(Sending::of_ahead)?;
            decode_reply(reply).map_err(Sending::of_refusal)?;
        }
        Ok(())
    }

    /// Posts the request, after what goes ahead of it.
    pub(super) fn post<K: BuildKeys>(
        &mut self,
        ahead: &ValuesAhead<'_>,
        connection: &impl Connection,
        sent_before: bool,
        limits: SendLimits,
        clock: &dyn Clock,
    ) -> Result<Posted, Sending> {
        self.send_ahead::<K>(ahead, connection, limits, clock)?;
        connection.post(self.encode::<K>(sent_before), limits.deadline).map_err(Sending::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_name_their_request_and_operation_and_make_up_its_value() {
        let mut ahead = ValuesAhead::default();
        let values = [vec![1; 100], vec![2; 1], vec![3; 64]];
        for (operation, value) in [0, 2, 5].into_iter().zip(&values) {
            ahead.push(operation, value);
        }
        let mut found: Vec<(u32, Vec<u8>)> = Vec::new();
        for piece in ahead.pieces(7, 9, 40 + 32) {
            assert_eq!((piece.client, piece.request), (7, 9));
            if piece.offset == 0 {
                found.push((piece.operation, Vec::new()));
            }
            let (_, value) = found.last_mut().expect("the first piece has offset 0");
            assert_eq!(value.len(), piece.offset as usize);
            value.extend_from_slice(piece.bytes);
        }
        assert!(found.into_iter().eq([0, 2, 5].into_iter().zip(values)));
    }

    #[test]
    fn no_more_goes_ahead_than_a_memory_node_takes() {
        let most = vec![0; MAX_AHEAD_BYTES - 10];
        let mut ahead = ValuesAhead::default();
        assert!(ahead.has_room(MAX_AHEAD_BYTES) && !ahead.has_room(MAX_AHEAD_BYTES + 1));
        assert_eq!(ahead.pieces(1, 1, 1000).count(), 0);
        ahead.push(0, &most);
        assert!(ahead.has_room(10) && !ahead.has_room(11));
        assert!(!ahead.into_owned().has_room(11));
    }
}
