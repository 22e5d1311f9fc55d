//! The client's side of the handshake.

use crate::clock::Deadline;
use crate::error::FabricError;
use crate::region::RegionName;
use crate::tcp::address::TcpAddress;
use crate::tcp::frame::Limits;
use crate::tcp::handshake::{
    ADMITTED, CHALLENGED, CREDENTIALS_REFUSED, Hello, MAGIC, Membership, NO_RESOURCES, NO_SUCH_CLIENT,
    NO_SUCH_REGION, PROOF_BYTES, TLS_ALERT, TOKEN_NEEDED, TOKEN_UNKNOWN, TOO_MANY_CLIENTS, USER_REFUSED,
    WELCOME_BYTES, WELCOME_HEAD_BYTES, Welcome,
};
use crate::tcp::socket::{Moved, Ready, wait};
use crate::tcp::stream::{InVain, Stream};
use crate::tcp::tls::TlsError;
use crate::tcp::token::{CLIENT, NODE, Token, nonce};
use crate::verbs::MAX_REQUEST_BYTES;

/// The least limits of a memory node: a batch of a few requests, and a record of a slot of any
/// table.
const LEAST: u32 = 4 << 10;

/// A handshake.
pub(super) struct Greeting<'g> {
    pub(super) address: &'g TcpAddress,
    pub(super) name: &'g RegionName,
    pub(super) join: Option<Membership>,
    pub(super) token: Option<Token>,
    pub(super) version: u32,
    pub(super) deadline: Deadline,
}

impl Greeting<'_> {
    /// Says HELLO and takes WELCOME, and no byte more: that of one who was let in, or of one who
    /// would join a client that is not there.
    pub(super) fn exchange(&self, stream: &mut Stream) -> Result<Welcome, FabricError> {
        self.shake_hands(stream)?;
        let nonce = self.token.map(|_| nonce()).transpose()?;
        let mut said = Hello::encode(self.version, self.name, self.join, nonce.as_ref());
        self.say(stream, &said)?;
        let (mut head, mut status) = self.take_head(stream)?;
        let mut proves = None;
        if status == CHALLENGED {
            // A client without a token is not asked.
            let token =
                self.token.ok_or_else(|| self.protocol("it asks for a token that it was not told of"))?;
            let mut asked = [0; PROOF_BYTES];
            self.take(stream, &mut asked)?;
            said.extend_from_slice(&head);
            said.extend_from_slice(&asked);
            let proof = token.prove(&CLIENT, &[&said]);
            said.extend_from_slice(&proof);
            self.say(stream, &proof)?;
            (head, status) = self.take_head(stream)?;
            proves = Some(token);
        }
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..WELCOME_HEAD_BYTES].copy_from_slice(&head);
        self.take(stream, &mut bytes[WELCOME_HEAD_BYTES..])?;
        let welcome = Welcome::decode(&bytes).ok_or_else(|| self.protocol("its welcome is none"))?;
        if status == NO_SUCH_CLIENT && self.join.is_some() {
            return Ok(welcome);
        }
        self.check(&welcome, status)?;
        if let Some(token) = proves {
            let mut proof = [0; PROOF_BYTES];
            self.take(stream, &mut proof)?;
            if !token.is_proven(&NODE, &[&said, &bytes], &proof) {
                return Err(self.not_proven());
            }
        } else if self.token.is_some() {
            return Err(self.not_proven());
        }
        Ok(welcome)
    }

    /// Says a few bytes. A client that was refused before it spoke learns why from what it then
    /// takes.
    fn say(&self, stream: &mut Stream, bytes: &[u8]) -> Result<(), FabricError> {
        match stream.send_all(bytes, self.deadline) {
            Ok(()) | Err(InVain::Gone) => Ok(()),
            Err(InVain::TimedOut) => {
                Err(FabricError::DeadlinePassed { waiting_for: "the memory node to take a greeting" })
            }
        }
    }

    /// Begins the TLS session under the protocol, where there is one.
    fn shake_hands(&self, stream: &mut Stream) -> Result<(), FabricError> {
        while stream.is_handshaking() {
            if stream.push_out() == Moved::Gone {
                return Err(self.lost(stream));
            }
            // Nothing comes of the protocol before HELLO.
            match stream.receive(&mut [0; 1]) {
                Moved::Nothing => {
                    let is_over = !stream.is_handshaking();
                    if !is_over && wait(&*stream, stream.is_unsent(), self.deadline) == Ready::TimedOut {
                        return Err(FabricError::DeadlinePassed { waiting_for: "a TLS handshake" });
                    }
                }
                Moved::Bytes(_) => return Err(self.protocol("it spoke before it was greeted")),
                Moved::Gone => return Err(self.lost(stream)),
            }
        }
        Ok(())
    }

    /// Why nothing comes any more. One that is being killed has accepted and says nothing: it is
    /// worth coming again.
    fn lost(&self, stream: &Stream) -> FabricError {
        match stream.fault() {
            Some(fault) => TlsError::handshake(self.address, &fault.why, fault.remedy).into(),
            None => FabricError::Disconnected { peer: self.address.to_string().into() },
        }
    }

    /// The part that is the same in all versions, and the status.
    fn take_head(&self, stream: &mut Stream) -> Result<([u8; WELCOME_HEAD_BYTES], u32), FabricError> {
        let (mut head, mut have) = ([0; WELCOME_HEAD_BYTES], 0);
        while have < head.len() {
            let taken = stream.receive_some(&mut head[have..], self.deadline);
            have += taken.map_err(|why| self.not_welcomed(stream, why))?;
            // It tells whether the rest is worth waiting for.
            if head[0] == TLS_ALERT {
                return Err(self.protocol("it speaks TLS: write tcps://"));
            }
            let known = have.min(MAGIC.len());
            if head[..known] != MAGIC[..known] {
                return Err(self.protocol("its welcome has another magic number"));
            }
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let theirs = word(8);
        if theirs != self.version {
            let peer = format!("memory node {}", self.address);
            return Err(FabricError::VersionMismatch { peer, ours: self.version, theirs });
        }
        Ok((head, word(12)))
    }

    fn take(&self, stream: &mut Stream, into: &mut [u8]) -> Result<(), FabricError> {
        stream.receive_all(into, self.deadline).map_err(|why| self.not_welcomed(stream, why))
    }

    fn not_welcomed(&self, stream: &Stream, why: InVain) -> FabricError {
        match why {
            InVain::Gone => self.lost(stream),
            InVain::TimedOut if self.join.is_none() => {
                FabricError::NoWelcome { address: self.address.to_string() }
            }
            // It has welcomed this client before.
            InVain::TimedOut => FabricError::DeadlinePassed { waiting_for: "the memory node's welcome" },
        }
    }

    fn check(&self, welcome: &Welcome, status: u32) -> Result<(), FabricError> {
        let address = self.address.to_string();
        match status {
            ADMITTED => {}
            USER_REFUSED => {
                return Err(FabricError::UserRefused {
                    user: u32::try_from(welcome.detail).unwrap_or(u32::MAX),
                    address,
                    remedy: "connect as its owner, or have it started with --allow-user for this user",
                });
            }
            NO_SUCH_REGION => return Err(FabricError::NoSuchRegion { address, name: self.name.to_string() }),
            NO_RESOURCES => return Err(FabricError::NoResources { address }),
            TOO_MANY_CLIENTS => return Err(FabricError::TooManyClients { address, max: welcome.detail }),
            NO_SUCH_CLIENT => return Err(FabricError::Disconnected { peer: address.into() }),
            TOKEN_NEEDED => {
                return Err(self.refused(
                    "requires a token",
                    "give this client one that the memory node knows: --token-file or FPCACHE_TOKEN_FILE names a file that \
                     has it alone",
                ));
            }
            TOKEN_UNKNOWN => {
                return Err(self.refused(
                    "does not know this client's token",
                    "give it one of those in the memory node's --token-file",
                ));
            }
            CREDENTIALS_REFUSED => {
                return Err(self.refused(
                    "has no tokens, and so cannot prove to know this client's",
                    "something else may answer there; if it is the right one, start it with --token-file",
                ));
            }
            _ => return Err(self.protocol("its welcome has an unknown status")),
        }
        let Limits { batch_bytes, reply_bytes, call_request, call_reply } = welcome.limits;
        let most = MAX_REQUEST_BYTES as u32;
        let fits = [batch_bytes, reply_bytes].iter().all(|bytes| (LEAST..=most).contains(bytes))
            && reply_bytes.is_multiple_of(8)
            && call_request <= most
            && call_reply <= most;
        if fits { Ok(()) } else { Err(self.protocol("its welcome has limits that cannot be")) }
    }

    fn refused(&self, why: &'static str, remedy: &'static str) -> FabricError {
        FabricError::TokenRefused { address: format!("memory node {}", self.address), why, remedy }
    }

    fn not_proven(&self) -> FabricError {
        self.refused(
            "did not prove that it knows this client's token",
            "something else answers at this address, or stands between: correct the address",
        )
    }

    pub(super) fn protocol(&self, what: &'static str) -> FabricError {
        FabricError::Protocol { peer: format!("the listener at {}", self.address), what }
    }
}
