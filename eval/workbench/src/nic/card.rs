//! Cards, stage by stage.

use super::server::Server;

/// A node's card.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Card {
    pub(super) issue: Server,
    pub(super) serve: Server,
    pub(super) transmit: Server,
    pub(super) receive: Server,
}
