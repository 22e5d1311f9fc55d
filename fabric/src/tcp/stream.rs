//! A connected socket that bytes go over: as they are, or encrypted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::socket::{self, Moved};
use super::tls::{Fault, Session};

/// A socket that never blocks, and the session over it if there is one. Whatever receives less than there is room for has
/// emptied the socket, so that it is announced when more comes.
#[derive(Debug)]
pub(super) struct Stream<S = OwnedFd> {
    socket: S,
    session: Option<Box<Session>>,
}

impl<S: AsFd> Stream<S> {
    pub(super) fn new(socket: S, session: Option<Session>) -> Self {
        Self { socket, session: session.map(Box::new) }
    }

    /// The same over another holder of the socket.
    pub(super) fn map<T>(self, holder: impl FnOnce(S) -> T) -> Stream<T> {
        Stream { socket: holder(self.socket), session: self.session }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Sends what fits.
    #[inline]
    pub(super) fn send(&mut self, bytes: &[u8]) -> Moved {
        match &mut self.session {
            None => socket::send(&self.socket, bytes),
            Some(session) => session.send(self.socket.as_fd(), bytes),
        }
    }

    /// Receives what is there. The buffer must have room.
    #[inline]
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Moved {
        match &mut self.session {
            None => socket::receive(&self.socket, into),
            Some(session) => session.receive(self.socket.as_fd(), into),
        }
    }

    /// Whether what was sent is not with the socket yet.
    #[inline]
    pub(super) fn is_unsent(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_unsent())
    }

    /// Sends what is not with the socket yet.
    #[inline]
    pub(super) fn push_out(&mut self) -> Moved {
        match &mut self.session {
            None => Moved::Nothing,
            Some(session) => session.push_out(self.socket.as_fd()),
        }
    }

    /// Whether there is a session.
    #[inline]
    pub(super) fn is_encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// Whether nothing can be sent before the peer has said more.
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// What ended it, if it was encrypted and that went wrong.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.session.as_ref()?.fault()
    }
}

impl<S: AsFd> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
