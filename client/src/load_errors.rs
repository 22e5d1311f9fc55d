//! Errors of loads.

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache::message::{ErrorCode, Refusal};

use crate::client::TableClient;
use crate::error::ClientError;

/// What the later calls of a load end with that has ended with this error, which is retryable where
/// nothing of the load is visible. They are not, as no call of that load will ever succeed.
pub(crate) fn has_ended(error: &ClientError) -> ClientError {
    if !error.is_retryable() {
        return error.clone();
    }
    let why = format!("the load has ended with an error: begin one anew, with all records; it was: {error}");
    Refusal::new(ErrorCode::Invalid, why).into()
}

/// The error of a load that did not end in one range, when this number of records is visible: all
/// of it cannot be repeated as if nothing had been done.
pub(crate) fn partly_loaded(keys: u64, error: ClientError) -> ClientError {
    if keys == 0 {
        return error;
    }
    let cause = match error {
        ClientError::OutcomeUnknown { why } => why,
        error => error.to_string(),
    };
    let why = format!("{keys} records are loaded, but not all: {cause}");
    ClientError::OutcomeUnknown { why }
}

/// Says of a load that was refused that the memory node may be for keys of another kind.
pub(crate) fn explained<K: BuildKeys>(
    client: &TableClient<K>,
    parameters: &TableParameters,
    error: ClientError,
) -> ClientError {
    let ClientError::Refused(refusal) = error else { return error };
    // Nothing else about a load of good parameters makes no sense to a memory node.
    if refusal.code != ErrorCode::Invalid || parameters.validate::<K>().is_err() {
        return refusal.into();
    }
    match client.key_kind() {
        Ok(Some(theirs)) if !theirs.is::<K>() => ClientError::OtherKeys { theirs, own: K::NAME },
        _ => {
            let why = format!(
                "{refusal}; if the table was made for other keys, use a client for these, or a table made for the kind {}",
                K::NAME
            );
            Refusal::new(refusal.code, why).into()
        }
    }
}
