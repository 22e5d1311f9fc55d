//! Messages with bytes after their end are refused, whatever they are: their sender would mean
//! something else.

use fpcache::key_space::{ByteKeys, KeyKind, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::message::keys::put_key;
use fpcache::message::{
    AskedKeys, NodeStats, RecordChunk, Request, Sent, TablesPage, TablesRequest, ValuePiece, WriteBatch,
    WriteKind, WriteOperation,
};
use proptest::prelude::*;

const KINDS: [WriteKind; 5] =
    [WriteKind::Insert, WriteKind::Put, WriteKind::Update, WriteKind::Delete, WriteKind::CompareAndSet];

/// Whether a memory node would take the request: all of it makes sense.
fn is_taken<K: KeySpace>(creation: u64, bytes: &[u8]) -> bool {
    match Request::decode::<K>(creation, bytes) {
        Ok(Request::Write(write)) => write.operations::<K>().all(|operation| operation.is_ok()),
        decoded => decoded.is_ok(),
    }
}

/// All kinds of requests to a table, of `count` keys, operations or records.
fn requests<K: KeySpace>(
    keys: &[&K::Key],
    value: &[u8],
    check: impl Fn(&Request<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let (mut batch, mut encoded) = (WriteBatch::default(), Vec::new());
    for (key, kind) in keys.iter().zip(KINDS.iter().cycle()) {
        let (value, expected) = match kind {
            WriteKind::Delete => (&[][..], RecordToken::default()),
            WriteKind::CompareAndSet => (value, RecordToken::of(3, b"any")),
            _ => (value, RecordToken::default()),
        };
        let value = Sent::Here(value);
        batch.push::<K>(&WriteOperation { kind: *kind, key: *key, hint: None, expected, value });
        put_key::<K>(key, &mut encoded);
    }
    let shape = RecordShape { value_bytes: None, ..RecordShape::fixed(8, 8) };
    let key_bytes = K::FIXED_BYTES.map(|bytes| bytes as u16);
    let parameters =
        TableParameters { shape: RecordShape { key_bytes, ..shape }, ..TableParameters::default() };
    let count = keys.len() as u32;
    let piece =
        ValuePiece { client: 1, request: 2, operation: 3, value_bytes: 1 << 20, offset: 0, bytes: value };
    let all = [
        Request::Stats,
        Request::Sockets,
        Request::LoadBegin { load: 1, parameters, expected_keys: 3, encoders: value },
        Request::LoadChunk(1, RecordChunk { first: 0, count, records: &encoded }),
        Request::LoadCommit(1),
        Request::LoadAbort(1),
        batch.request(5, 6, true),
        Request::Get(AskedKeys { count, bytes: &encoded }),
        Request::Value(piece),
    ];
    all.iter().try_for_each(check)
}

fn with_more<K: KeySpace>(
    keys: &[&K::Key],
    value: &[u8],
    creation: u64,
    more: &[u8],
) -> Result<(), TestCaseError> {
    requests::<K>(keys, value, |request| {
        let mut bytes = Vec::new();
        request.encode::<K>(creation, &mut bytes);
        prop_assert!(is_taken::<K>(creation, &bytes), "{:?}", request);
        let whole = bytes.len();
        bytes.extend_from_slice(more);
        prop_assert!(!is_taken::<K>(creation, &bytes), "with {} more: {:?}", more.len(), request);
        for end in 0..whole {
            prop_assert!(!is_taken::<K>(creation, &bytes[..end]), "cut to {}: {:?}", end, request);
        }
        Ok(())
    })
}

proptest! {
    #[test]
    fn requests_with_bytes_after_their_end_are_refused(
        numbers in prop::collection::vec(any::<u64>(), 0..8),
        strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..8),
        value in prop::collection::vec(any::<u8>(), 0..30),
        creation: u64,
        more in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        with_more::<U64Keys>(&numbers.iter().collect::<Vec<_>>(), &value, creation, &more)?;
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        with_more::<ByteKeys>(&strings, &value, creation, &more)?;
    }

    #[test]
    fn so_are_requests_about_tables_and_replies(
        name in "[a-z]{1,60}", region: u64, more in prop::collection::vec(b'a'..=b'z', 1..4),
    ) {
        let name = name.parse().unwrap();
        let requests = [
            TablesRequest::Create { name, kind: KeyKind::Bytes, region_bytes: Some(region | 1) },
            TablesRequest::List { after: Some(name) },
            TablesRequest::List { after: None },
            TablesRequest::Drop { name },
        ];
        for request in requests {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            prop_assert_eq!(TablesRequest::decode(&bytes), Ok(request));
            bytes.extend_from_slice(&more);
            prop_assert!(TablesRequest::decode(&bytes).is_err(), "{:?}", request);
        }
        let mut replies = [Vec::new(), Vec::new()];
        NodeStats::default().encode(&mut replies[0]);
        TablesPage::default().encode(&mut replies[1]);
        prop_assert!(NodeStats::decode(&replies[0]).is_ok() && TablesPage::decode(&replies[1]).is_ok());
        replies.iter_mut().for_each(|reply| reply.extend_from_slice(&more));
        prop_assert!(NodeStats::decode(&replies[0]).is_err() && TablesPage::decode(&replies[1]).is_err());
    }
}
