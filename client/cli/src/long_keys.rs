//! Notes of long keys, for which all slots of a new table have room, or have none.

use std::borrow::Borrow;

use fpcache_client::RecordShape;

use crate::keys::Keys;
use crate::records::RecordSet;

/// How many times the usual key the longest must have to be noted.
const MANY_TIMES: usize = 4;

/// What is to be known of a table with slots of this shape that was chosen for the longest of these
/// keys, if that is much longer than nearly all others.
pub(crate) fn note<K: Keys>(records: &impl RecordSet<K>, shape: &RecordShape) -> Option<String> {
    if shape.key_bytes.is_some() {
        return None;
    }
    let longest = records.lengths().longest as usize;
    let mut sample: Vec<usize> = records.sample().iter().map(|key| K::encoded_len(key.borrow())).collect();
    sample.sort_unstable();
    let usual = *sample.get((sample.len() * 99).div_ceil(100).checked_sub(1)?)?;
    if longest < MANY_TIMES * usual {
        return None;
    }
    let at = (0..records.known()).find(|i| K::encoded_len(records.key(*i).borrow()) == longest)?;
    let room = shape.room as usize;
    Some(format!(
        "{}: {} has the longest key, of {longest} bytes, where 99 of 100 have at most {usual}; every slot has room for it, {room} \
         bytes instead of {}: leave out such keys if they are mistakes",
        records.name(),
        records.place(at),
        room.saturating_sub(longest - usual)
    ))
}

/// What is to be known of a table with slots of this shape that was chosen for the longest of these
/// keys, if others follow that are not known.
pub(crate) fn note_of_rest<K: Keys>(records: &impl RecordSet<K>, shape: &RecordShape) -> Option<String> {
    let is_chosen = shape.key_bytes.is_none() && !records.are_all_known();
    is_chosen.then(|| {
        format!(
            "{}: slots have room for the longest key of the first {} records, of {} bytes; a record that needs more ends the import: \
             allow for it with --slot-bytes BYTES",
            records.name(),
            records.known(),
            records.lengths().longest
        )
    })
}
