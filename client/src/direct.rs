//! Tables on one memory node, over any kind of connection, and what readers hold of them.

use std::marker::PhantomData;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;

use crate::core::{Core, Held};
use crate::mapped::MappedNode;
use crate::remote::RemoteNode;
#[cfg(feature = "sim")]
use crate::simulated::SimulatedNode;

/// What is kept of a table, by the kind of its connection: lookups are compiled for each.
#[derive(Clone)]
pub(crate) enum ByKind<K: BuildKeys, W: What> {
    Mapped(W::Of<Core<K, MappedNode>, Held<K, MappedNode>>),
    Remote(W::Of<Core<K, RemoteNode>, Held<K, RemoteNode>>),
    #[cfg(feature = "sim")]
    Simulated(W::Of<Core<K, SimulatedNode>, Held<K, SimulatedNode>>),
}

/// Which of a core `C` and what one reader holds of it, `H`, is kept, and how.
pub(crate) trait What {
    type Of<C: 'static, H: 'static>;
}

/// The core, shared.
#[derive(Clone)]
pub(crate) enum Cores {}

impl What for Cores {
    type Of<C: 'static, H: 'static> = Arc<C>;
}

pub(crate) type Direct<K> = ByKind<K, Cores>;

/// What a reader is made of.
pub(crate) trait Holds: What {
    fn held<C: 'static, H: 'static>(place: &mut Self::Of<C, H>) -> (&C, &mut H);
}

/// The core, and what a reader holds for itself.
#[derive(Debug)]
pub enum Own {}

impl What for Own {
    type Of<C: 'static, H: 'static> = (Arc<C>, H);
}

impl Holds for Own {
    #[inline(always)]
    fn held<C: 'static, H: 'static>(place: &mut Self::Of<C, H>) -> (&C, &mut H) {
        (&place.0, &mut place.1)
    }
}

pub(crate) type Place<K> = ByKind<K, Own>;

/// The core and what a thread holds, lent for one call.
pub(crate) struct Lent<'h>(PhantomData<&'h ()>);

impl<'h> What for Lent<'h> {
    type Of<C: 'static, H: 'static> = (&'h C, &'h mut H);
}

impl Holds for Lent<'_> {
    #[inline(always)]
    fn held<C: 'static, H: 'static>(place: &mut Self::Of<C, H>) -> (&C, &mut H) {
        (place.0, place.1)
    }
}

/// Runs an expression with what there is for the kind of connection in use.
macro_rules! with_direct {
    ($direct:expr, $what:pat => $body:expr) => {
        match $direct {
            $crate::direct::ByKind::Mapped($what) => $body,
            $crate::direct::ByKind::Remote($what) => $body,
            #[cfg(feature = "sim")]
            $crate::direct::ByKind::Simulated($what) => $body,
        }
    };
}
pub(crate) use with_direct;

impl<K: BuildKeys> Direct<K> {
    /// A place for a reader, which holds nothing yet.
    pub(crate) fn place(&self) -> Place<K> {
        match self {
            Self::Mapped(core) => Place::Mapped((Arc::clone(core), None)),
            Self::Remote(core) => Place::Remote((Arc::clone(core), None)),
            #[cfg(feature = "sim")]
            Self::Simulated(core) => Place::Simulated((Arc::clone(core), None)),
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
