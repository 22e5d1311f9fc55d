//! The endpoint and the connection that all backends over mapped memory share.

mod areas;
mod connection;
mod endpoint;
mod in_place;
mod link;

pub(crate) use areas::Area;
pub use connection::MappedConnection;
pub(crate) use connection::Parts;
pub(crate) use endpoint::Anchor;
pub use endpoint::MappedEndpoint;
pub use in_place::MappedInPlace;
pub(crate) use link::Link;
