//! Stand-ins for TLS in a program that was built without it.

use std::os::fd::BorrowedFd;

use super::{Fault, TlsError, TlsServing, TlsTrust};
use crate::absent::absent;
use crate::tcp::address::TcpAddress;
use crate::tcp::socket::Moved;

absent! {
    pub(in crate::tcp) ClientSide {
        fn session(&str, &TcpAddress) -> Result<TlsSession, TlsError>;
    }
    pub(in crate::tcp) ServerSide {
        fn session() -> Option<TlsSession>;
    }
    pub(in crate::tcp) TlsSession {
        fn send(BorrowedFd<'_>, &[u8]) -> Moved;
        fn receive(BorrowedFd<'_>, &mut [u8]) -> Moved;
        fn push_out(BorrowedFd<'_>) -> Moved;
        fn is_unsent() -> bool;
        fn is_handshaking() -> bool;
        fn fault() -> Option<&Fault>;
    }
}

impl ClientSide {
    pub(in crate::tcp) fn of(_: &TlsTrust, address: &str) -> Result<Self, TlsError> {
        Err(TlsError::not_built(address))
    }
}

impl ServerSide {
    pub(in crate::tcp) fn of(_: &TlsServing) -> Result<Self, TlsError> {
        Err(TlsError::not_built("a listener"))
    }
}
