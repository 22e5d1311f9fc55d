//! The means by which a core connects, and what its readers hold of a connection.

use std::sync::Arc;

use fpcache::key_space::KeyKind;
use fpcache_fabric::{Clock, Connection, Deadline, FabricError, SystemClock, random_bits};

use crate::session::ReaderContext;

/// Makes connections of one kind.
pub(crate) trait Connector: Send + Sync + 'static {
    type Connection: Connection;

    /// Whether a word of the region is looked at as one of this process's own.
    const IS_MAPPED: bool = false;

    /// Whether reads take so long that a look at the clock is nothing beside them: a call's time
    /// then counts from its beginning, and not from the first thing that goes wrong.
    const IS_FAR: bool = false;

    fn connect(&self, deadline: Deadline) -> Result<Self::Connection, FabricError>;

    /// What the memory node's list of tables says of the table's keys, if there is one: the region
    /// of a table without parameters does not say.
    fn listed_kind(&self, _deadline: Deadline) -> Option<KeyKind> {
        None
    }

    /// The clock of deadlines and pauses.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    /// A number that no other client of the memory node has, in whichever process, under which
    /// changes are sent.
    fn identity(&self) -> Result<u64, FabricError> {
        random_bits()
    }
}

/// The endpoints of a connector's connections.
pub(crate) type EndpointOf<T> = <<T as Connector>::Connection as Connection>::Endpoint;

/// The contexts of a connector's connections.
pub(crate) type ContextOf<K, T> = ReaderContext<K, <T as Connector>::Connection>;

/// What one reader holds of a client: nothing before its first call, nor while it waits for another
/// table.
pub(crate) type HeldContext<K, T> = Option<ContextOf<K, T>>;
