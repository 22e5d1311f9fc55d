//! The handshake: the first bytes on the socket.
//!
//! ```text
//! client: HELLO, 32 bytes and a name  memory node: WELCOME, 80 bytes, with two descriptors if admitted
//! 0  8  magic "FPFABRIC"              0  8  magic "FPFABRIC"
//! 8  4  protocol version              8  4  protocol version
//! 12 4  bytes of the name, 0 to 64    12 4  status
//! 16 16 zero                          16 8  region length in bytes
//! 32    name of the region
//!                                     24 8  request capacity of the ring in bytes
//!                                     32 8  reply capacity of the ring in bytes
//!                                     40 8  incarnation
//!                                     48 8  client id
//!                                     56 8  detail of a refusal: the user refused, or the maximum of clients
//!                                     64 8  creation
//!                                     72 8  length of the scratch memory in bytes, or zero
//! ```
//! All integers are little-endian. The first 12 bytes of HELLO, its length without the name, and
//! the first 16 bytes of WELCOME are the same in all versions, so that two versions can tell each
//! other apart: a memory node looks at the version as soon as 32 bytes have come. The descriptors
//! are the region's, then the ring's, then, of a length that is not zero, that of memory that all
//! clients may read and change, their area 2.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::region::RegionName;

/// The version of handshake, ring and area numbering. Both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 5;

pub(super) const MAGIC: [u8; 8] = *b"FPFABRIC";

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Hello {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) name_bytes: u32,
    zero: [u8; 16],
}

impl Hello {
    /// Before the bytes of `name`.
    pub(super) fn new(version: u32, name: &RegionName) -> Self {
        // At most 64.
        let name_bytes = name.as_bytes().len() as u32;
        Self { magic: MAGIC, version, name_bytes, zero: [0; 16] }
    }
}

/// Most bytes of HELLO and name.
pub(super) const MAX_GREETING_BYTES: usize = size_of::<Hello>() + RegionName::MAX;

pub(super) const ADMITTED: u32 = 0;
pub(super) const OTHER_VERSION: u32 = 1;
pub(super) const USER_REFUSED: u32 = 2;
pub(super) const TOO_MANY_CLIENTS: u32 = 3;
pub(super) const NO_SUCH_REGION: u32 = 4;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Welcome {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) status: u32,
    pub(super) region_len: u64,
    pub(super) request_capacity: u64,
    pub(super) reply_capacity: u64,
    pub(super) incarnation: u64,
    pub(super) client: u64,
    pub(super) detail: u64,
    pub(super) creation: u64,
    pub(super) scratch_len: u64,
}

impl Welcome {
    pub(super) fn refusal(version: u32, status: u32, detail: u64) -> Self {
        Self { magic: MAGIC, version, status, detail, ..Self::new_zeroed() }
    }
}

/// Sends bytes and, with them, descriptors. The bytes fit any socket buffer, so this does not wait.
pub(super) fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives what has arrived of a WELCOME with its descriptors; the number of bytes is zero at the
/// end of the stream.
pub(super) fn receive_welcome(socket: impl AsFd) -> Result<(usize, Welcome, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut welcome = Welcome::refusal(0, 0, 0);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let buffer = &mut [IoSliceMut::new(welcome.as_mut_bytes())];
    let received = rustix::net::recvmsg(socket, buffer, &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((received.bytes, welcome, fds))
}

/// Whether a user may connect: the memory node's own, or one that was named.
pub(super) fn admits(owner: u32, allowed: &[u32], user: u32) -> bool {
    user == owner || allowed.contains(&user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_documented_size_and_bytes() {
        let hello = Hello::new(0x0102_0304, &RegionName::new("orders").unwrap());
        let (zero, head) = ([0; 16], b"FPFABRIC\x04\x03\x02\x01\x06\0\0\0");
        assert_eq!(hello.as_bytes(), [&head[..], &zero].concat());
        let welcome = Welcome::refusal(1, USER_REFUSED, 7);
        assert_eq!(welcome.as_bytes().len(), 80);
        assert_eq!(welcome.as_bytes()[12], 2);
        assert_eq!(welcome.as_bytes()[56], 7);
        let creation = 0x0102_0304_0506_0708;
        let bytes = Welcome { creation, ..welcome };
        assert_eq!(bytes.as_bytes()[64..], *b"\x08\x07\x06\x05\x04\x03\x02\x01\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn only_the_owner_and_named_users_get_in() {
        assert!(admits(1000, &[], 1000));
        assert!(!admits(1000, &[], 1001));
        assert!(!admits(1000, &[], 0), "root is not implied");
        assert!(admits(1000, &[1001, 0], 0));
    }
}
