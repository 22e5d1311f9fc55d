//! Checks whether changes fit a table, and how their values are sent.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{MAX_VALUE_BYTES, RecordShape, ValueExtent, ValuePlace};
use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation};

use crate::error::ClientError;

/// How an operation's value is sent: ahead if it is to be external and no request has room for it.
pub(super) fn sent<'v, K: BuildKeys>(
    operation: &WriteOperation<'v, &K::Key>,
    shape: &RecordShape,
    max_request: usize,
) -> Sent<'v> {
    let (key, value) = (operation.key, operation.value);
    let is_external = || shape.place(K::encoded_len(key), value.len()) == Some(ValuePlace::External);
    match operation.kind != WriteKind::Delete
        && !WriteBatch::default().has_room::<K>(key, &value, max_request)
        && is_external()
    {
        // Values have at most 16 MiB.
        true => Sent::Ahead(value.len() as u32),
        false => value,
    }
}

/// The error of the first record that cannot be the table's.
pub(crate) fn misfit<'v, K: BuildKeys>(
    mut operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>>,
    shape: &RecordShape,
) -> Option<ClientError> {
    let check = |o: WriteOperation<'_, &K::Key>| match o.kind {
        WriteKind::Delete => check_key::<K>(o.key),
        _ => check_record::<K>(o.key, o.value.bytes(), shape),
    };
    operations.find_map(|operation| check(operation).err())
}

/// Whether a record can be the table's.
pub(crate) fn check_record<K: BuildKeys>(
    key: &K::Key,
    value: &[u8],
    shape: &RecordShape,
) -> Result<(), ClientError> {
    check_key::<K>(key)?;
    let (got, key_bytes) = (value.len(), K::encoded_len(key));
    if shape.fits(key_bytes, got) {
        return Ok(());
    }
    let key = K::show(key);
    Err(match shape.value_bytes {
        Some(expected) if expected as usize != got => {
            ClientError::ValueSize { key, got, expected: expected as usize }
        }
        _ => match shape.key_bytes {
            Some(expected) if usize::from(expected) != key_bytes => ClientError::KeySize {
                key,
                why: format!("it has {key_bytes} bytes, the table's keys have {expected}"),
            },
            _ if shape.value_bytes.is_none() && got > MAX_VALUE_BYTES => {
                ClientError::ValueTooLong { key, got }
            }
            _ => {
                let beside = if shape.value_bytes.is_none() { ValueExtent::REFERENCE_BYTES } else { got };
                let (room, needs) = (shape.room as usize, key_bytes + got.min(beside));
                ClientError::RecordSize { key, got: key_bytes + got, room, needs }
            }
        },
    })
}

/// Whether there can be a table with this key.
pub(crate) fn check_key<K: BuildKeys>(key: &K::Key) -> Result<(), ClientError> {
    K::check(key).map_err(|why| ClientError::KeySize { key: K::show(key), why })
}
