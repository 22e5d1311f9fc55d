//! Every decoder of what a peer or a region may hold, over any bytes: for a property test of this
//! crate, and for libFuzzer, whose targets lie in `fuzz`.

use fpcache::group_tables::{GroupTables, Known, SegmentName};
use fpcache::key_space::{BuildKeys, ByteKeys, KeySpace, U64Keys};
use fpcache::layout::{
    ChangeRecord, DirectoryPage, GroupForm, Grouping, RecordShape, SegmentHeader, SegmentReplacement,
    Superblock, TABLE_RECORD_BYTES, TableParameters, TableRecord, decode_groups, decode_root, is_whole_table,
};
use fpcache::map::{Published, RangeMap};
use fpcache::message::keys::take_record;
use fpcache::message::{
    NodeStats, PROTOCOL_VERSION, RangeRequest, Request, SocketStats, TablesPage, TablesRequest, WriteReply,
    decode_reply,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Requests and replies.
pub fn messages(bytes: &[u8]) {
    both_messages::<U64Keys>(bytes);
    both_messages::<ByteKeys>(bytes);
    let _ = (TablesRequest::decode(bytes), RangeRequest::decode(bytes), TablesPage::decode(bytes));
    tables_requests(bytes);
    let _ = (RangeMap::decode(bytes), Published::read(bytes));
    map(bytes);
    let _ = (NodeStats::decode(bytes), SocketStats::decode(bytes));
    let _ = decode_reply(bytes);
    let _ = WriteReply::decode(bytes);
}

fn both_messages<K: BuildKeys>(bytes: &[u8]) {
    let _ = Request::decode::<K>(0, bytes);
    let mut stats = Vec::new();
    Request::Stats.encode::<K>(0, &mut stats);
    // With a header of this version and every operation there is.
    for operation in 0..16 {
        let mut request = stats.clone();
        request[0] = operation;
        request.extend_from_slice(bytes);
        if let Ok(Request::Write(write)) = Request::decode::<K>(0, &request) {
            assert!(write.operations::<K>().count() <= write.count as usize + 1);
        }
        let _ = (TablesRequest::decode(&request), RangeRequest::decode(&request));
    }
    for value_bytes in [Some(1), None] {
        let (shape, mut rest) = (RecordShape { key_bytes: None, value_bytes, room: 64 }, bytes);
        while let Some((_, after)) = take_record::<K>(&shape, rest) {
            assert!(after.len() < rest.len());
            rest = after;
        }
    }
}

/// Requests that no table gets, after the beginning of a header of this version: what was read is
/// written so that it is read again.
fn tables_requests(bytes: &[u8]) {
    for operation in 0..16 {
        let request = [&[operation, 0, PROTOCOL_VERSION as u8, 0], bytes].concat();
        if let Ok(request) = TablesRequest::decode(&request) {
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(TablesRequest::decode(&again), Ok(request));
        }
    }
}

/// A map with a header and a checksum that are right, of any count of ranges: what is read is what
/// is written.
fn map(bytes: &[u8]) {
    if bytes.len() < 56 {
        return;
    }
    let (mut map, ranges) = (bytes.to_vec(), u32::from(bytes[40] % 70));
    let (len, end) = (map.len() as u32, map.len() - 8);
    map[..8].copy_from_slice(b"FPRANGES");
    for (at, field) in [(8, 1), (12, len), (32, 1), (40, ranges)] {
        map[at..at + 4].copy_from_slice(&u32::to_le_bytes(field));
    }
    let checksum = xxh3_64(&map[..end]).to_le_bytes();
    map[end..].copy_from_slice(&checksum);
    if let Ok(read) = RangeMap::decode(&map) {
        assert_eq!(read.encode(), map);
    }
}

/// What lies in a region.
pub fn layout(bytes: &[u8]) {
    layout_of::<U64Keys>(bytes);
    layout_of::<ByteKeys>(bytes);
    let _ = SegmentHeader::decode(bytes, 0);
    let mut header = bytes.to_vec();
    header.resize(header.len().max(32), 0);
    let checksum = xxh3_64(&header[..28]) as u32;
    header[28..32].copy_from_slice(&checksum.to_le_bytes());
    let _ = SegmentHeader::decode(&header, 0);
    let _ = ChangeRecord::decode(bytes, 1);
    groups(bytes);
}

/// A table of groups, as it is and with a first word that is right: what is kept of it leads to
/// slots of its segment.
fn groups(bytes: &[u8]) {
    let _ = (decode_groups(7, bytes), is_whole_table(7, bytes));
    let hash = xxh3_64(bytes);
    let cap = (hash as u16 % 4096).max(1);
    for form in GroupForm::ALL {
        let Some(grouping) = Grouping::for_slots(form, 24) else { continue };
        let mut table = bytes.to_vec();
        table.resize(grouping.table_bytes(cap), 0xa5);
        let bits = table[0] % 15;
        let sum = xxh3_64_with_seed(&table[8..], 7 << 8 | u64::from(bits));
        table[..8].copy_from_slice(&(sum & !0xff | u64::from(bits)).to_le_bytes());
        assert!(is_whole_table(7, &table));
        let Some(tables) = GroupTables::new(grouping, 4, GroupTables::bytes_for(grouping, 4, 1 << 14)) else {
            continue;
        };
        let segment = SegmentName { address: 4096, generation: 7, cap };
        tables.keep(&segment, &table);
        for finest in [i64::MIN, -1, 0, 1 << 20, i64::MAX] {
            if let Known::Here((first, len)) = tables.find(&segment, finest, hash) {
                assert!(len == 0 || first + len <= u32::from(cap), "{first} + {len} of {cap}");
            }
        }
    }
}

fn layout_of<K: BuildKeys>(bytes: &[u8]) {
    let _ = Superblock::decode::<K>(bytes);
    let _ = TableParameters::decode::<K>(bytes);
    let mut record = bytes.to_vec();
    record.resize(TABLE_RECORD_BYTES, 0);
    let _ = TableRecord::decode::<K>(&record, 0);
    let _ = decode_root::<K>(bytes, 1 << 16);
    let _ = SegmentReplacement::<K>::decode(bytes);
    let _ = DirectoryPage::decode::<K>(bytes, 0, 0, &mut Vec::new());
    page::<K>(bytes);
}

/// A directory page with a header and a checksum that are right, of any count and any descriptors.
fn page<K: BuildKeys>(bytes: &[u8]) {
    const HEADER: usize = 16;
    let (mut page, _) = DirectoryPage::encode::<K>(&[], 0);
    let Some((count, body)) = bytes.split_first() else { return };
    let used = body.len().min(page.len() - HEADER);
    page[HEADER..HEADER + used].copy_from_slice(&body[..used]);
    page[4..6].copy_from_slice(&u16::from(*count).to_le_bytes());
    page[6..8].copy_from_slice(&(used as u16).to_le_bytes());
    page[8..16].copy_from_slice(&xxh3_64_with_seed(&body[..used], 0).to_le_bytes());
    let _ = DirectoryPage::decode::<K>(&page, 0, 0, &mut Vec::new());
}

/// How byte strings become numbers.
pub fn key_encoders(bytes: &[u8]) {
    let _ = U64Keys::decode_encoders(bytes);
    if let Ok(encoders) = ByteKeys::decode_encoders(bytes) {
        let again = ByteKeys::decode_encoders(&ByteKeys::encode_encoders(&encoders));
        assert!(again.is_ok(), "what was read is written so that it is read again");
    }
}
