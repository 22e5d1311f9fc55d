//! The stages of a connection.

use std::sync::Arc;
use std::time::Instant;

use crate::tcp::handshake::Purpose;
use crate::tcp::node::Client;
use crate::tcp::token::Token;

/// How far it has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Has not said all of its HELLO.
    Greeting,
    /// Is to prove that it knows a token.
    Challenged(Box<Challenged>),
    /// Is not let in, and not told so yet.
    Held(HeldRefusal),
    /// Waits for the service to let it in; with a token if it has proven one.
    Waiting(Option<Box<Proven>>),
    /// Is served. Whether it is the socket that the client came with.
    Open { client: Arc<Client>, is_first: bool },
}

/// A connection that was asked to prove that it knows a token.
#[derive(Debug)]
pub(super) struct Challenged {
    pub(super) purpose: Purpose,
    /// The bytes that both sides have sent so far.
    pub(super) said: Vec<u8>,
}

/// The memory node's proof to a connection that has proven a token.
#[derive(Debug)]
pub(super) struct Proven {
    pub(super) token: Token,
    /// The bytes that both sides have sent up to WELCOME.
    pub(super) said: Vec<u8>,
}

/// A refusal that is held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldRefusal {
    pub(super) until: Instant,
    pub(super) status: u32,
}
