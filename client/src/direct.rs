//! Tables on one memory node, over any kind of connection, and what a reader holds of one.

use std::sync::Arc;

use fpcache::key_space::BuildKeys;

use crate::core::{Core, Held};
use crate::mapped::MappedNode;
use crate::remote::RemoteNode;
#[cfg(feature = "sim")]
use crate::simulated::SimulatedNode;

/// One [`Core`] per kind of connection, so that lookups are compiled for each.
#[derive(Clone)]
pub(crate) enum Direct<K: BuildKeys> {
    Mapped(Arc<Core<K, MappedNode>>),
    Remote(Arc<Core<K, RemoteNode>>),
    #[cfg(feature = "sim")]
    Simulated(Arc<Core<K, SimulatedNode>>),
}

/// A core and what one reader holds of it.
pub(crate) enum Place<K: BuildKeys> {
    Mapped(Arc<Core<K, MappedNode>>, Held<K, MappedNode>),
    Remote(Arc<Core<K, RemoteNode>>, Held<K, RemoteNode>),
    #[cfg(feature = "sim")]
    Simulated(Arc<Core<K, SimulatedNode>>, Held<K, SimulatedNode>),
}

/// Runs an expression with a core.
macro_rules! with_direct {
    ($direct:expr, $core:ident => $body:expr) => {
        match $direct {
            $crate::direct::Direct::Mapped($core) => $body,
            $crate::direct::Direct::Remote($core) => $body,
            #[cfg(feature = "sim")]
            $crate::direct::Direct::Simulated($core) => $body,
        }
    };
}
pub(crate) use with_direct;

/// Runs an expression with a core and what the reader holds of it.
macro_rules! with_place {
    ($place:expr, ($core:ident, $held:ident) => $body:expr) => {
        match $place {
            $crate::direct::Place::Mapped($core, $held) => $body,
            $crate::direct::Place::Remote($core, $held) => $body,
            #[cfg(feature = "sim")]
            $crate::direct::Place::Simulated($core, $held) => $body,
        }
    };
}
pub(crate) use with_place;

impl<K: BuildKeys> Direct<K> {
    /// A place for a reader, which holds nothing yet.
    pub(crate) fn place(&self) -> Place<K> {
        match self {
            Self::Mapped(core) => Place::Mapped(Arc::clone(core), None),
            Self::Remote(core) => Place::Remote(Arc::clone(core), None),
            #[cfg(feature = "sim")]
            Self::Simulated(core) => Place::Simulated(Arc::clone(core), None),
        }
    }

    /// Bytes of the table's region that are mapped in huge pages.
    pub(crate) fn huge_bytes(&self) -> Option<u64> {
        match self {
            Self::Mapped(core) => core.connection().region().huge_bytes(),
            _ => None,
        }
    }
}
