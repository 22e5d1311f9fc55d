//! The kinds of errors, by what a caller can do about them.

use fpcache::message::ErrorCode;
use fpcache::table_view::OpenError;
use fpcache_fabric::FabricError;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Retry, perhaps after a pause: the memory node is down, busy or has lost the table, or the
    /// deadline was short.
    Retry,
    /// Read before retrying: it is unknown whether the write took effect.
    Unknown,
    /// Change the call: its arguments or data are wrong.
    Invalid,
    /// Change the setup: more memory, another release, other permissions.
    Setup,
    /// Report a bug: something is inconsistent.
    Internal,
}

pub(crate) fn of_open(error: &OpenError) -> ErrorKind {
    use fpcache::layout::SuperblockError;
    match error {
        OpenError::Empty
        | OpenError::Moving { .. }
        | OpenError::Superblock(SuperblockError::Changing | SuperblockError::Dropped) => ErrorKind::Retry,
        OpenError::Superblock(SuperblockError::Corrupt(_)) | OpenError::Corrupt(_) => ErrorKind::Internal,
        OpenError::Budget { .. } => ErrorKind::Invalid,
        OpenError::Fabric(error) => of_fabric(error),
        _ => ErrorKind::Setup,
    }
}

pub(crate) fn of_code(code: ErrorCode) -> ErrorKind {
    match code {
        // Of a load all of it has to be repeated.
        ErrorCode::Busy
        | ErrorCode::NoTable
        | ErrorCode::OtherTable
        | ErrorCode::WrongRange { .. }
        | ErrorCode::NoSuchLoad => ErrorKind::Retry,
        ErrorCode::Invalid
        | ErrorCode::BadData
        | ErrorCode::NotEmpty
        | ErrorCode::TableExists
        | ErrorCode::BadName => ErrorKind::Invalid,
        ErrorCode::Full
        | ErrorCode::Version
        | ErrorCode::NotDurable
        | ErrorCode::NoSuchTable
        | ErrorCode::NoMemory
        | ErrorCode::ReadOnly => ErrorKind::Setup,
        ErrorCode::Forgotten => ErrorKind::Unknown,
        _ => ErrorKind::Internal,
    }
}

pub(crate) fn of_fabric(error: &FabricError) -> ErrorKind {
    if error.is_retryable() { ErrorKind::Retry } else { ErrorKind::Setup }
}
