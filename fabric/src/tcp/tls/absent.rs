//! Stand-ins for TLS in a program that was built without it: types without values.

use std::convert::Infallible;
use std::os::fd::BorrowedFd;

use super::{Fault, TlsError, TlsServing, TlsTrust};
use crate::tcp::address::TcpAddress;
use crate::tcp::socket::Moved;

/// Has no values.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct ClientSide(Infallible);

impl ClientSide {
    pub(in crate::tcp) fn of(_: &TlsTrust, address: &str) -> Result<Self, TlsError> {
        Err(TlsError::not_built(address))
    }

    pub(in crate::tcp) fn session(&self, _: &str, _: &TcpAddress) -> Result<TlsSession, TlsError> {
        match self.0 {}
    }
}

/// Has no values.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct ServerSide(Infallible);

impl ServerSide {
    pub(in crate::tcp) fn of(_: &TlsServing) -> Result<Self, TlsError> {
        Err(TlsError::not_built("a listener"))
    }

    pub(in crate::tcp) fn session(&self) -> Option<TlsSession> {
        match self.0 {}
    }
}

/// Has no values.
#[derive(Debug)]
pub(in crate::tcp) struct TlsSession(Infallible);

impl TlsSession {
    pub(in crate::tcp) fn send(&mut self, _: BorrowedFd<'_>, _: &[u8]) -> Moved {
        match self.0 {}
    }

    pub(in crate::tcp) fn receive(&mut self, _: BorrowedFd<'_>, _: &mut [u8]) -> Moved {
        match self.0 {}
    }

    pub(in crate::tcp) fn push_out(&mut self, _: BorrowedFd<'_>) -> Moved {
        match self.0 {}
    }

    pub(in crate::tcp) fn is_unsent(&self) -> bool {
        match self.0 {}
    }

    pub(in crate::tcp) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(in crate::tcp) fn fault(&self) -> Option<&Fault> {
        match self.0 {}
    }
}
