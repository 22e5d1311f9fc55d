//! Clients that have connected and not finished their greeting.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use zerocopy::FromBytes;

use crate::region::RegionName;
use crate::shm::handshake::{Hello, MAGIC, MAX_GREETING_BYTES, PROTOCOL_VERSION};

/// A client whose HELLO and name have not arrived in full.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) socket: OwnedFd,
    pub(super) user: u32,
    pub(super) process: Option<u32>,
    pub(super) since: Instant,
    pub(super) bytes: [u8; MAX_GREETING_BYTES],
    pub(super) arrived: usize,
}

/// How far a greeting is.
pub(super) enum Progress {
    Waiting,
    Gone,
    Greeted(Hello, RegionName),
}

impl Greeting {
    pub(super) fn advance(&mut self) -> Progress {
        loop {
            // Not more than this greeting: what follows is not part of it.
            let wanted = match self.hello() {
                None => size_of::<Hello>(),
                Some((hello, Some(name))) => return Progress::Greeted(hello, name),
                Some((hello, None)) => size_of::<Hello>() + hello.name_bytes as usize,
            };
            match rustix::net::recv(&self.socket, &mut self.bytes[self.arrived..wanted], RecvFlags::DONTWAIT)
            {
                Ok((_, 0)) => return Progress::Gone,
                Ok((_, bytes)) => self.arrived += bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Progress::Waiting,
                Err(_) => return Progress::Gone,
            }
        }
    }

    /// The part that has arrived: HELLO, and the name if that is there too. Of a HELLO that is not
    /// this version's, or names no name, the rest is not waited for.
    pub(super) fn hello(&self) -> Option<(Hello, Option<RegionName>)> {
        let (hello, rest) = Hello::read_from_prefix(&self.bytes[..self.arrived]).ok()?;
        let name_bytes = hello.name_bytes as usize;
        let is_ours = hello.magic == MAGIC && hello.version == PROTOCOL_VERSION;
        if !is_ours || name_bytes > RegionName::MAX {
            return Some((hello, Some(RegionName::default())));
        }
        Some((hello, rest.get(..name_bytes).and_then(|name| RegionName::new(name).ok())))
    }
}
