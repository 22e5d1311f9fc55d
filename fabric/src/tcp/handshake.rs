//! The wire format of the handshake, without input or output.
//!
//! ```text
//! client: HELLO, 64 bytes, and after it      memory node: WELCOME, 128 bytes
//! credentials and the region's name
//! 0  8  magic "FPFABTCP"                      0  8  magic "FPFABTCP"
//! 8  4  protocol version                      8  4  protocol version
//! 12 4  bytes of the name, 0 to 64            12 4  status
//! 16 8  client to join, 0: none               16 8  region length in bytes
//! 24 16 the client's secret, to join          24 8  incarnation
//! 40 4  credentials: 0 none, 1 a token        32 8  creation
//! 44 4  bytes of credentials: 0, or 32        40 8  client
//! 48 16 zero                                  48 16 the client's secret
//! 64    credentials, then the name            64 8  offset of the watched word in the region; all ones: none
//!                                             72 4  bytes of a batch, at most
//!                                             76 4  bytes of the reply to a batch, at most
//!                                             80 4  bytes of a call, at most
//!                                             84 4  bytes of the answer to a call, at most
//!                                             88 8  bytes of area 2, which clients may change; 0: none
//!                                             96 8  detail of a refusal: the maximum of connections, or the user refused
//!                                             104 24 zero
//! ```
//! All integers are little-endian. The first 12 bytes of HELLO and the first 16 of WELCOME are the
//! same in all versions.
//!
//! A client with a token has a nonce of 32 bytes for credentials, and two messages come between:
//!
//! ```text
//! memory node: CHALLENGE, 48 bytes            client: PROOF, 32 bytes
//! 0  8  magic "FPFABTCP"                      HMAC-SHA256 by the token of "fpcache client 1", HELLO with all that
//! 8  4  protocol version                      comes after it, CHALLENGE
//! 12 4  status 8
//! 16 32 the memory node's nonce
//! ```
//! After a WELCOME that lets such a client in come 32 bytes more: HMAC-SHA256 by the same token of
//! "fpcache server 1", HELLO with all that comes after it, CHALLENGE, PROOF, WELCOME.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::frame::Limits;
use crate::region::RegionName;

/// The first bytes of a handshake.
pub const MAGIC: [u8; 8] = *b"FPFABTCP";

/// The first bytes of a client that speaks TLS: a handshake's record.
pub const TLS_RECORD: [u8; 2] = [0x16, 3];
/// The first byte of a TLS peer's answer to another protocol: an alert's record.
pub const TLS_ALERT: u8 = 0x15;

/// The client is let in.
pub const ADMITTED: u32 = 0;
/// The versions differ.
pub const OTHER_VERSION: u32 = 1;
/// The client's user is not let in.
pub const USER_REFUSED: u32 = 2;
/// The maximum of connections is reached.
pub const TOO_MANY_CLIENTS: u32 = 3;
/// There is no region of the name.
pub const NO_SUCH_REGION: u32 = 4;
/// The client that is to be joined is not there, or has another secret.
pub const NO_SUCH_CLIENT: u32 = 5;
/// Credentials that this memory node does not understand, or a token where it has none.
pub const CREDENTIALS_REFUSED: u32 = 6;
/// There is the region, but not what else it takes to let the client in, which may be there soon.
pub const NO_RESOURCES: u32 = 7;
/// A challenge follows.
pub const CHALLENGED: u32 = 8;
/// There is no way in without a token.
pub const TOKEN_NEEDED: u32 = 9;
/// The token is not one that the memory node knows.
pub const TOKEN_UNKNOWN: u32 = 10;

/// The kind of credentials that a token is.
const TOKEN: u32 = 1;
/// Bytes of a nonce, and of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of what WELCOME and CHALLENGE begin with.
pub const WELCOME_HEAD_BYTES: usize = 16;

/// No word is watched.
pub const NO_WORD: u64 = u64::MAX;

/// A client's first message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hello {
    magic: [u8; 8],
    version: u32,
    name_bytes: u32,
    join: Membership,
    credentials: u32,
    credential_bytes: u32,
    zero: [u8; 16],
}

/// Most bytes of HELLO, credentials and name.
pub const MAX_GREETING_BYTES: usize = size_of::<Hello>() + PROOF_BYTES + RegionName::MAX;

/// A client, as another socket of it joins it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Membership {
    /// Its number.
    pub client: u64,
    /// Its secret.
    pub secret: [u64; 2],
}

/// A greeting, as far as it has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeting {
    /// More must come.
    Incomplete,
    /// Not of this protocol.
    Foreign,
    /// Another version's.
    Version(u32),
    /// With credentials of no known kind.
    Credentials,
    /// A whole one.
    Whole(Purpose, Credentials),
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client that wants the region of this name.
    Region(RegionName),
    /// Another socket of a client.
    Join(Membership),
}

/// The credentials in a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// Nothing.
    None,
    /// That it knows a token.
    Token,
}

/// A memory node's challenge to a client that says that it knows a token.
#[must_use]
pub fn challenge(version: u32, nonce: &[u8; PROOF_BYTES]) -> [u8; WELCOME_HEAD_BYTES + PROOF_BYTES] {
    let mut bytes = [0; WELCOME_HEAD_BYTES + PROOF_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&CHALLENGED.to_le_bytes());
    bytes[16..].copy_from_slice(nonce);
    bytes
}

impl Hello {
    /// The greeting of a new client, or of another socket of one; with a nonce that of one that
    /// knows a token.
    #[must_use]
    pub fn encode(
        version: u32,
        name: &RegionName,
        join: Option<Membership>,
        nonce: Option<&[u8; PROOF_BYTES]>,
    ) -> Vec<u8> {
        let name = if join.is_some() { &[][..] } else { name.as_bytes() };
        let hello = Self {
            magic: MAGIC,
            version,
            // At most 64.
            name_bytes: name.len() as u32,
            join: join.unwrap_or_else(Membership::new_zeroed),
            credentials: nonce.map_or(0, |_| TOKEN),
            credential_bytes: nonce.map_or(0, |_| PROOF_BYTES as u32),
            zero: [0; 16],
        };
        [hello.as_bytes(), nonce.map_or(&[][..], |nonce| nonce), name].concat()
    }

    /// The greeting that these bytes begin. No more than [`MAX_GREETING_BYTES`] are ever looked at.
    #[must_use]
    pub fn read(bytes: &[u8], version: u32) -> Greeting {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Greeting::Foreign;
        }
        if let Some(theirs) = bytes.get(8..12) {
            let theirs = u32::from_le_bytes([theirs[0], theirs[1], theirs[2], theirs[3]]);
            if theirs != version {
                return Greeting::Version(theirs);
            }
        }
        let Ok((hello, rest)) = Self::read_from_prefix(bytes) else { return Greeting::Incomplete };
        let (credentials, credential_bytes) = match (hello.credentials, hello.credential_bytes as usize) {
            (0, 0) => (Credentials::None, 0),
            (TOKEN, PROOF_BYTES) => (Credentials::Token, PROOF_BYTES),
            _ => return Greeting::Credentials,
        };
        let name_bytes = hello.name_bytes as usize;
        if hello.zero != [0; 16] || name_bytes > RegionName::MAX {
            return Greeting::Foreign;
        }
        let is_join = hello.join.client != 0;
        if is_join && name_bytes != 0 {
            return Greeting::Foreign;
        }
        let Some(name) = rest.get(credential_bytes..credential_bytes + name_bytes) else {
            return Greeting::Incomplete;
        };
        if rest.len() != credential_bytes + name_bytes {
            // A client waits for an answer before it says more.
            return Greeting::Foreign;
        }
        let purpose = match is_join {
            false => RegionName::new(name).ok().map(Purpose::Region),
            true => Some(Purpose::Join(hello.join)),
        };
        purpose.map_or(Greeting::Foreign, |purpose| Greeting::Whole(purpose, credentials))
    }
}

/// A memory node's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Its protocol version.
    pub version: u32,
    /// Whether the client is let in.
    pub status: u32,
    /// Bytes of the region.
    pub region_len: u64,
    /// Which life of the region this is.
    pub incarnation: u64,
    /// Which region of the name.
    pub creation: u64,
    /// For further sockets.
    pub membership: Membership,
    /// The watched word's offset in the region, or [`NO_WORD`].
    pub watched: u64,
    /// How long frames may be.
    pub limits: Limits,
    /// Bytes of area 2.
    pub scratch_len: u64,
    /// The detail of a refusal.
    pub detail: u64,
    /// Reserved.
    pub zero: [u8; 24],
}

/// Bytes of WELCOME.
pub const WELCOME_BYTES: usize = size_of::<Welcome>();

impl Welcome {
    /// A refusal, of no client.
    #[must_use]
    pub fn refusal(version: u32, status: u32, detail: u64) -> Self {
        Self { magic: MAGIC, version, status, watched: NO_WORD, detail, ..Self::new_zeroed() }
    }

    /// The watched word's offset, if there is one.
    #[must_use]
    pub fn watched(&self) -> Option<u64> {
        Some(self.watched).filter(|offset| *offset != NO_WORD)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        zerocopy::transmute!(*self)
    }

    /// The answer in these bytes; `None` if they are not of this protocol.
    #[must_use]
    pub fn decode(bytes: &[u8; WELCOME_BYTES]) -> Option<Self> {
        let welcome: Self = zerocopy::transmute!(*bytes);
        (welcome.magic == MAGIC).then_some(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_has_the_documented_bytes() {
        let hello = Hello::encode(3, &RegionName::new("orders").unwrap(), None, None);
        assert_eq!(hello, [&b"FPFABTCP\x03\0\0\0\x06\0\0\0"[..], &[0; 48], b"orders"].concat());
        let known = Hello::encode(4, &RegionName::new("orders").unwrap(), None, Some(&[7; 32]));
        let head = &b"FPFABTCP\x04\0\0\0\x06\0\0\0"[..];
        let credentials = b"\x01\0\0\0\x20\0\0\0";
        assert_eq!(known, [head, &[0; 24], credentials, &[0; 16], &[7; 32], b"orders"].concat());
        let asked = challenge(4, &[9; 32]);
        assert_eq!(asked[..], [&b"FPFABTCP\x04\0\0\0\x08\0\0\0"[..], &[9; 32]].concat());
        let member = Membership { client: 7, secret: [8, 9] };
        let join = Hello::encode(3, &RegionName::new("orders").unwrap(), Some(member), None);
        assert_eq!((join.len(), &join[12..25], join[32]), (64, &b"\0\0\0\0\x07\0\0\0\0\0\0\0\x08"[..], 9));
        assert_eq!(Hello::read(&join, 3), Greeting::Whole(Purpose::Join(member), Credentials::None));
    }

    #[test]
    fn a_greeting_is_read_as_it_comes() {
        let name = RegionName::new("orders").unwrap();
        let hello = Hello::encode(3, &name, None, None);
        let known = Hello::encode(3, &name, None, Some(&[0xff; 32]));
        for hello in [&hello, &known] {
            for len in 0..hello.len() {
                assert_eq!(Hello::read(&hello[..len], 3), Greeting::Incomplete, "{len}");
                let early = if len < 12 { Greeting::Incomplete } else { Greeting::Version(3) };
                assert_eq!(Hello::read(&hello[..len], 4), early);
            }
        }
        let region = Purpose::Region(name);
        assert_eq!(Hello::read(&hello, 3), Greeting::Whole(region, Credentials::None));
        assert_eq!(Hello::read(&known, 3), Greeting::Whole(region, Credentials::Token));
        assert_eq!(Hello::read(b"GET", 3), Greeting::Foreign);
        let changed = |at: usize| {
            let mut hello = hello.clone();
            hello[at] = 77;
            Hello::read(&hello, 3)
        };
        assert_eq!(changed(12), Greeting::Foreign);
        assert_eq!(changed(40), Greeting::Credentials);
        assert_eq!(changed(63), Greeting::Foreign);
        assert_eq!(Hello::read(&[&hello[..], b"x"].concat(), 3), Greeting::Foreign);
    }

    #[test]
    fn a_welcome_has_the_documented_bytes() {
        let limits = Limits { batch_bytes: 0x11, reply_bytes: 0x12, call_request: 0x13, call_reply: 0x14 };
        let welcome = Welcome {
            magic: MAGIC,
            version: 3,
            status: 4,
            region_len: 5,
            incarnation: 6,
            creation: 7,
            membership: Membership { client: 8, secret: [9, 10] },
            watched: 40,
            limits,
            scratch_len: 0x15,
            detail: 0x16,
            zero: [0; 24],
        };
        let bytes = welcome.encode();
        let at = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
        assert_eq!(&bytes[..16], b"FPFABTCP\x03\0\0\0\x04\0\0\0");
        let words = [16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120].map(at);
        let (batch, call) = (0x12_0000_0011, 0x14_0000_0013);
        assert_eq!(words, [5, 6, 7, 8, 9, 10, 40, batch, call, 0x15, 0x16, 0, 0, 0]);
        assert_eq!(Welcome::decode(&bytes), Some(welcome));
        let refusal = Welcome::refusal(3, TOO_MANY_CLIENTS, 9);
        assert_eq!(Welcome::decode(&refusal.encode()), Some(refusal));
        assert_eq!(Welcome::decode(&[0; WELCOME_BYTES]), None);
    }
}
