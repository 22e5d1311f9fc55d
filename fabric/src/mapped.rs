//! What the backends over mapped memory share: the endpoint, and the connection it comes from.

mod connection;
mod endpoint;
mod in_place;

pub use connection::MappedConnection;
pub(crate) use connection::Parts;
pub use endpoint::MappedEndpoint;
pub(crate) use endpoint::{Anchor, Area, Link, SPIN};
pub use in_place::MappedInPlace;
