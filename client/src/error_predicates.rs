//! What can be asked of the client's errors.

use fpcache::message::MessageError;
use fpcache::read::ReadError;
use fpcache::table_view::OpenError;
use fpcache_fabric::{ErrorKind as FabricErrorKind, FabricError};

use crate::error::ClientError;
use crate::error_kind::{ErrorKind, of_code, of_fabric, of_open};

impl ClientError {
    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Url(_)
            | Self::TableName(_)
            | Self::Parameters(_)
            | Self::ValueSize { .. }
            | Self::KeySize { .. }
            | Self::ValueTooLong { .. }
            | Self::RecordSize { .. }
            | Self::NotWords { .. }
            | Self::TableExists { .. }
            | Self::RangesBudget { .. }
            | Self::ArrayLengths { .. } => ErrorKind::Invalid,
            Self::Open(error) => of_open(error),
            Self::Refused(refusal) => of_code(refusal.code),
            Self::Message(MessageError::Version(_))
            | Self::Token(_)
            | Self::Embedded(_)
            | Self::OtherKeys { .. }
            | Self::OtherParameters { .. }
            | Self::NoSuchTable { .. }
            | Self::TableClosed { .. }
            | Self::MapUnusable(_)
            | Self::MapsDisagree { .. }
            | Self::NotFollowed { .. }
            | Self::NoRoom { .. }
            | Self::DiskFull { .. }
            | Self::NotDurable { .. }
            | Self::Damaged { .. } => ErrorKind::Setup,
            Self::NodeAway { error, .. } => of_fabric(error),
            Self::Message(_) => ErrorKind::Internal,
            Self::Fabric(error) => of_fabric(error),
            Self::Deadline { .. } | Self::Emptied | Self::TableNotWhole { .. } => ErrorKind::Retry,
            Self::OutcomeUnknown { .. } => ErrorKind::Unknown,
        }
    }

    /// Whether a record does not fit the table as it is made.
    pub(crate) fn is_misfit(&self) -> bool {
        matches!(self, Self::ValueSize { .. } | Self::KeySize { .. } | Self::RecordSize { .. })
    }

    /// Whether a memory node refused a change that the table could have: for lack of room, because
    /// it could not be logged, or because of damage. Nothing was changed by it. Of
    /// [`apply`](crate::TableClient::apply) this tells that all other changes were sent, and that
    /// each has its reply.
    pub fn is_of_refused_change(&self) -> bool {
        matches!(
            self,
            Self::NoRoom { .. } | Self::DiskFull { .. } | Self::NotDurable { .. } | Self::Damaged { .. }
        )
    }

    /// Whether the same call may succeed later; of a [`Load`](crate::Load), which ends with its
    /// first error, a new load of all records.
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Retry
    }

    /// Whether there was no answer within the deadline, or within the time to connect, and no
    /// record was changed. A change whose answer did not come in time
    /// [may have taken effect](Self::may_have_taken_effect), and is not meant; calls that create
    /// tables, set their parameters or drop ranges are, also where they may yet be executed: they
    /// can be repeated.
    pub fn is_timeout(&self) -> bool {
        let is_late = |error: &FabricError| error.kind() == FabricErrorKind::Deadline;
        matches!(self, Self::Deadline { .. }) || self.of_fabric().is_some_and(is_late)
    }

    /// Whether the memory node, or one of several, is down, cannot be reached, or lets no more
    /// clients in. One that says nothing is known by [`is_timeout`](Self::is_timeout) alone.
    pub fn is_unavailable(&self) -> bool {
        self.of_fabric().is_some_and(|error| {
            let is_full =
                matches!(error, FabricError::TooManyClients { .. } | FabricError::NoResources { .. });
            error.kind() == FabricErrorKind::Reconnect || is_full
        })
    }

    /// Whether the change, or the load, that failed with this may have taken effect, or may still:
    /// read before it is repeated. Otherwise a change has not, and does not. Of a group the replies
    /// tell it of the changes before the one that failed. Of a load what was visible before it
    /// failed stays, whatever the error: the ranges that were finished, of a table over several
    /// memory nodes, and the records that were sent, where they are inserted.
    ///
    /// [`Tables::create`](crate::Tables::create) and
    /// [`Tables::drop_table`](crate::Tables::drop_table) may be executed later, too, where this
    /// says so: list the tables. Other calls that create tables or drop ranges, as those of
    /// [`Nodes`](crate::Nodes), are not told apart so, and can be repeated.
    pub fn may_have_taken_effect(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }

    /// What the fabric said, in whatever place.
    fn of_fabric(&self) -> Option<&FabricError> {
        match self {
            Self::Fabric(error)
            | Self::NodeAway { error, .. }
            | Self::Open(OpenError::Fabric(error))
            | Self::Deadline { last: ReadError::Fabric(error), .. } => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn late() -> FabricError {
        FabricError::DeadlinePassed { waiting_for: "a reply" }
    }

    fn connecting() -> FabricError {
        FabricError::Connecting { address: "tcp://x".into(), source: Box::new(late()) }
    }

    /// Each kind of call told it by another variant, and no predicate by all of them.
    #[test]
    fn a_deadline_that_passed_is_a_timeout_whatever_call_it_was_of() {
        let (deadline, node) = (Duration::from_secs(1), || "tcp://x".to_owned());
        for error in [
            ClientError::Deadline { deadline, last: ReadError::Contended { attempts: 3 } },
            ClientError::Deadline { deadline, last: late().into() },
            late().into(),
            FabricError::Crowded.into(),
            connecting().into(),
            ClientError::NodeAway { node: node(), error: late() },
            OpenError::Fabric(late()).into(),
            ClientError::Deadline { deadline, last: late().into() }.at("tcp://x"),
        ] {
            assert!(error.is_timeout() && !error.is_unavailable(), "{error}");
            assert!(error.is_retryable() && !error.may_have_taken_effect(), "{error}");
        }
    }

    /// What a reader said of it whose directory was out of date.
    #[test]
    fn a_memory_node_that_falls_silent_while_a_table_is_fetched_is_named() {
        let error = ClientError::from(OpenError::Fabric(late())).at("tcp://x");
        assert!(matches!(&error, ClientError::NodeAway { node, .. } if node == "tcp://x"), "{error}");
        assert!(error.is_timeout());
    }

    #[test]
    fn a_memory_node_that_is_gone_or_full_is_unavailable() {
        for gone in [
            FabricError::Disconnected { peer: "it".into() },
            FabricError::NoMemoryNode { address: "tcp://x".into(), path: String::new() },
            FabricError::TooManyClients { address: "tcp://x".into(), max: 1 },
        ] {
            for error in [
                ClientError::from(gone.clone()),
                ClientError::NodeAway { node: "tcp://x".into(), error: gone.clone() },
                OpenError::Fabric(gone).into(),
            ] {
                assert!(error.is_unavailable() && !error.is_timeout() && error.is_retryable(), "{error}");
            }
        }
    }

    #[test]
    fn an_unknown_outcome_is_neither_a_timeout_nor_harmless() {
        let error = ClientError::OutcomeUnknown { why: "no reply".to_owned() };
        assert!(error.may_have_taken_effect() && !error.is_timeout() && !error.is_retryable());
    }

    #[test]
    fn bad_names_and_parameters_are_errors_of_the_call() {
        let open = || -> Result<(), ClientError> {
            let _: fpcache::TableName = "a b".parse()?;
            Ok(())
        };
        let error = open().unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("a b"), "{error}");
    }
}
