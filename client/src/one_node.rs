//! Tables on one memory node, over any kind of connection, and what readers hold of them.

use std::marker::PhantomData;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;

use crate::core::{Core, HeldContext};
use crate::mapped::MappedNode;
use crate::remote::RemoteNode;
#[cfg(feature = "sim")]
use crate::simulated::SimulatedNode;

/// What is kept of a table, by the kind of its connection: lookups are compiled for each.
#[derive(Clone)]
pub(crate) enum ByKind<K: BuildKeys, W: Ownership> {
    Mapped(W::Of<Core<K, MappedNode>, HeldContext<K, MappedNode>>),
    Remote(W::Of<Core<K, RemoteNode>, HeldContext<K, RemoteNode>>),
    #[cfg(feature = "sim")]
    Simulated(W::Of<Core<K, SimulatedNode>, HeldContext<K, SimulatedNode>>),
}

/// How a core `C` is owned, and beside it what one reader holds of it, `H`.
pub(crate) trait Ownership {
    type Of<C: 'static, H: 'static>;
}

/// The core, which handles share.
#[derive(Clone)]
pub(crate) enum Shared {}

impl Ownership for Shared {
    type Of<C: 'static, H: 'static> = Arc<C>;
}

pub(crate) type SharedCore<K> = ByKind<K, Shared>;

/// An ownership by which reads can be made: with what a reader holds.
pub(crate) trait Holds: Ownership {
    fn held<C: 'static, H: 'static>(place: &mut Self::Of<C, H>) -> (&C, &mut H);
}

/// The core, and what a reader of its own holds.
#[derive(Debug)]
pub enum Owned {}

impl Ownership for Owned {
    type Of<C: 'static, H: 'static> = (Arc<C>, H);
}

impl Holds for Owned {
    #[inline(always)]
    fn held<C: 'static, H: 'static>(place: &mut Self::Of<C, H>) -> (&C, &mut H) {
        (&place.0, &mut place.1)
    }
}

pub(crate) type ReaderCore<K> = ByKind<K, Owned>;

/// The core and what a thread holds, lent for one call.
pub(crate) struct Borrowed<'h>(PhantomData<&'h ()>);

impl<'h> Ownership for Borrowed<'h> {
    type Of<C: 'static, H: 'static> = (&'h C, &'h mut H);
}

impl Holds for Borrowed<'_> {
    #[inline(always)]
    fn held<C: 'static, H: 'static>(place: &mut Self::Of<C, H>) -> (&C, &mut H) {
        (place.0, place.1)
    }
}

/// Runs an expression with what there is for the kind of connection in use.
macro_rules! with_direct {
    ($direct:expr, $what:pat => $body:expr) => {
        match $direct {
            $crate::one_node::ByKind::Mapped($what) => $body,
            $crate::one_node::ByKind::Remote($what) => $body,
            #[cfg(feature = "sim")]
            $crate::one_node::ByKind::Simulated($what) => $body,
        }
    };
}
pub(crate) use with_direct;

impl<K: BuildKeys> SharedCore<K> {
    /// A place for a reader, which holds nothing yet.
    pub(crate) fn place(&self) -> ReaderCore<K> {
        match self {
            Self::Mapped(core) => ReaderCore::Mapped((Arc::clone(core), None)),
            Self::Remote(core) => ReaderCore::Remote((Arc::clone(core), None)),
            #[cfg(feature = "sim")]
            Self::Simulated(core) => ReaderCore::Simulated((Arc::clone(core), None)),
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
