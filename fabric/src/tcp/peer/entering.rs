//! A connection that is not let in yet: its greeting, and the proof that it knows a token.

use std::sync::Arc;

use super::stage::{Challenged, HeldRefusal, Proven, Stage};
use super::{Peer, PeerBuffers, Progressed};
use crate::error::FabricError;
use crate::shm::PROTOCOL_VERSION;
use crate::tcp::counters::HangUp;
use crate::tcp::failed_logins::HOLD;
use crate::tcp::handshake::{
    CREDENTIALS_REFUSED, Credentials, Greeting, Hello, MAX_GREETING_BYTES, NO_SUCH_CLIENT, OTHER_VERSION,
    PROOF_BYTES, Purpose, TLS_RECORD, TOKEN_NEEDED, TOKEN_UNKNOWN, TOO_MANY_CLIENTS, Welcome, challenge,
};
use crate::tcp::node::{Admission, Client, ClientCredentials, CloseReason, ToService};
use crate::tcp::socket::Moved;
use crate::tcp::token::{NODE, nonce};

impl Peer {
    /// Receives what has come, but no more than one byte beyond `most` in all; whether there was
    /// something.
    fn receive_up_to(&mut self, most: usize, buffers: &mut PeerBuffers) -> Result<bool, CloseReason> {
        let room = (most + 1).saturating_sub(self.rest.len());
        match self.stream.receive(&mut buffers.input[..room]) {
            Moved::Bytes(bytes) => self.rest.extend_from_slice(&buffers.input[..bytes]),
            Moved::Nothing => return Ok(false),
            Moved::Gone => return Err(self.lost()),
        }
        Ok(true)
    }

    /// Takes what has come of HELLO, and no more than that.
    pub(super) fn greet(&mut self, buffers: &mut PeerBuffers) -> Result<Progressed, CloseReason> {
        if !self.receive_up_to(MAX_GREETING_BYTES, buffers)? {
            return Ok(Progressed::Idle);
        }
        let greeting = Hello::read(&self.rest, PROTOCOL_VERSION);
        let hello = match greeting {
            Greeting::Incomplete => return Ok(Progressed::Active),
            _ => std::mem::take(&mut self.rest),
        };
        match greeting {
            Greeting::Incomplete => Ok(Progressed::Active),
            Greeting::Foreign if hello.starts_with(&TLS_RECORD) => {
                // An address without TLS tells its client so.
                self.refuse(&Welcome::refusal(PROTOCOL_VERSION, OTHER_VERSION, 0));
                Err(CloseReason::SPEAKS_TLS)
            }
            Greeting::Foreign => Err(CloseReason::FOREIGN),
            Greeting::Version(theirs) => {
                self.refuse(&Welcome::refusal(PROTOCOL_VERSION, OTHER_VERSION, 0));
                let peer = format!("the client at {}", self.origin);
                let error = FabricError::VersionMismatch { peer, ours: PROTOCOL_VERSION, theirs };
                buffers.shared.report(HangUp::OtherProtocol, error);
                Err(CloseReason::Parted)
            }
            Greeting::Credentials => {
                self.refuse(&Welcome::refusal(PROTOCOL_VERSION, CREDENTIALS_REFUSED, 0));
                Err(CloseReason::CREDENTIALS)
            }
            Greeting::Whole(_, Credentials::None) if self.needs_token => {
                self.refuse_peer(TOKEN_NEEDED, CloseReason::NO_TOKEN, buffers)
            }
            Greeting::Whole(purpose, Credentials::None) => {
                self.enter(purpose, ClientCredentials::OPEN, None, buffers)
            }
            Greeting::Whole(purpose, Credentials::Token) => self.challenge(purpose, hello, buffers),
        }
    }

    /// Asks for a proof.
    fn challenge(
        &mut self,
        purpose: Purpose,
        mut hello: Vec<u8>,
        buffers: &mut PeerBuffers,
    ) -> Result<Progressed, CloseReason> {
        if buffers.shared.tokens().is_empty() {
            self.refuse(&Welcome::refusal(PROTOCOL_VERSION, CREDENTIALS_REFUSED, 0));
            return Err(CloseReason::CREDENTIALS);
        }
        if let (Purpose::Join(membership), Some(place)) = (&purpose, &self.place)
            && buffers.shared.named(membership).is_some()
        {
            place.is_of_client();
        }
        let nonce = nonce().map_err(|error| {
            buffers.shared.report(HangUp::NoResources, error);
            CloseReason::Parted
        })?;
        let challenge = challenge(PROTOCOL_VERSION, &nonce);
        hello.extend_from_slice(&challenge);
        self.stage = Stage::Challenged(Box::new(Challenged { purpose, said: hello }));
        self.say(&challenge, buffers)
    }

    /// Takes the proof, and lets it in if it is one.
    pub(super) fn check_proof(&mut self, buffers: &mut PeerBuffers) -> Result<Progressed, CloseReason> {
        if !self.receive_up_to(PROOF_BYTES, buffers)? {
            return Ok(Progressed::Idle);
        }
        if self.rest.len() < PROOF_BYTES {
            return Ok(Progressed::Active);
        }
        let proof: Result<[u8; PROOF_BYTES], _> = std::mem::take(&mut self.rest).try_into();
        let stage = std::mem::replace(&mut self.stage, Stage::Greeting);
        let (Ok(proof), Stage::Challenged(challenged)) = (proof, stage) else {
            return Err(CloseReason::FOREIGN);
        };
        let Challenged { purpose, mut said } = *challenged;
        match buffers.shared.tokens().proven(&[&said], &proof) {
            Some((token, rights)) => {
                said.extend_from_slice(&proof);
                let entry = ClientCredentials { token: Some(token), rights };
                self.enter(purpose, entry, Some(Box::new(Proven { token, said })), buffers)
            }
            None => self.refuse_peer(TOKEN_UNKNOWN, CloseReason::WRONG_TOKEN, buffers),
        }
    }

    /// Goes on with a connection that may come in.
    fn enter(
        &mut self,
        purpose: Purpose,
        entry: ClientCredentials,
        proven: Option<Box<Proven>>,
        buffers: &mut PeerBuffers,
    ) -> Result<Progressed, CloseReason> {
        let admission = match buffers.shared.admit() {
            Ok(admission) => admission,
            Err(most) => {
                self.refuse(&Welcome::refusal(PROTOCOL_VERSION, TOO_MANY_CLIENTS, most as u64));
                let peer = format!("the client at {}", self.origin);
                buffers.shared.report(HangUp::TooMany, FabricError::beyond_maximum(peer, most as u64));
                return Err(CloseReason::Parted);
            }
        };
        self.place = None;
        match purpose {
            Purpose::Region(name) => {
                self.stage = Stage::Waiting(proven);
                let (peer, origin) = (self.key, self.origin);
                buffers.shared.service_side.post(ToService::Hello { peer, name, entry, origin, admission });
                Ok(Progressed::Active)
            }
            Purpose::Join(membership) => {
                self.stage = Stage::Waiting(proven);
                match buffers.shared.member(&membership, &entry) {
                    Some(client) => self.open(client, false, admission, buffers).map(|()| Progressed::Active),
                    None => {
                        self.refuse(&Welcome::refusal(PROTOCOL_VERSION, NO_SUCH_CLIENT, 0));
                        Err(CloseReason::NO_CLIENT)
                    }
                }
            }
        }
    }

    /// Does not let it in, and tells it so: at once, or later if its address has failed too often.
    fn refuse_peer(
        &mut self,
        status: u32,
        end: CloseReason,
        buffers: &mut PeerBuffers,
    ) -> Result<Progressed, CloseReason> {
        if !buffers.shared.attempts.failed(&self.origin, buffers.now) {
            self.refuse(&Welcome::refusal(PROTOCOL_VERSION, status, 0));
            return Err(end);
        }
        buffers.shared.hung_up(&self.origin, end);
        self.stage = Stage::Held(HeldRefusal { until: buffers.now + HOLD, status });
        Ok(Progressed::Active)
    }

    /// Lets it in.
    pub(in crate::tcp) fn open(
        &mut self,
        client: Arc<Client>,
        is_first: bool,
        admission: Admission,
        buffers: &mut PeerBuffers,
    ) -> Result<(), CloseReason> {
        self.admission = Some(admission);
        let welcome = client.welcome.encode();
        let stage = std::mem::replace(&mut self.stage, Stage::Open { client, is_first });
        let mut bytes = welcome.to_vec();
        if let Stage::Waiting(Some(proven)) = stage {
            bytes.extend_from_slice(&proven.token.prove(&NODE, &[&proven.said, &welcome]));
        }
        self.say(&bytes, buffers).map(drop)
    }

    /// Sends a few bytes.
    fn say(&mut self, bytes: &[u8], buffers: &mut PeerBuffers) -> Result<Progressed, CloseReason> {
        self.stream.queue().extend_from_slice(bytes);
        self.send_rest()?;
        if self.is_unsent() {
            self.stuck_since = Some(buffers.now);
        }
        Ok(Progressed::Active)
    }

    /// Says why it is not let in. It may have gone already.
    pub(in crate::tcp) fn refuse(&mut self, welcome: &Welcome) {
        self.stream.send(&welcome.encode());
    }

    /// Says what was held back, if something was.
    pub(in crate::tcp) fn send_held_refusal(&mut self) {
        if let Stage::Held(HeldRefusal { status, .. }) = self.stage {
            self.refuse(&Welcome::refusal(PROTOCOL_VERSION, status, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::region::RegionName;
    use crate::serving::StopHandle;
    use crate::tcp::listener::Listener;
    use crate::tcp::options::ListenOptions;

    /// Each left a message to the service, however long that was busy.
    #[test]
    fn peers_that_greet_and_leave_wait_for_a_busy_service_within_the_maximum() {
        const MAX: usize = 20;
        let options = ListenOptions { io_threads: 1, max_connections: MAX, ..ListenOptions::default() };
        let mut listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
        let url = listener.addresses()[0].to_string();
        let at = url.strip_prefix("tcp://").unwrap();
        // Nothing takes what comes to the service.
        let _threads = listener.start(&StopHandle::new().unwrap()).unwrap();
        let (counters, service_side) = (listener.counters(), &listener.counters().shared.service_side);
        let seen = || service_side.len() as u64 + counters.hang_ups();
        let hello = Hello::encode(PROTOCOL_VERSION, &RegionName::default(), None, None);
        let begun = Instant::now();
        for _ in 0..10 * MAX {
            let before = seen();
            let mut peer = TcpStream::connect(at).unwrap();
            peer.write_all(&hello).unwrap();
            while seen() == before {
                assert!(begun.elapsed() < Duration::from_secs(60), "a greeting was not seen");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let mut greeted = 0;
        while let Some(message) = service_side.take() {
            greeted += usize::from(matches!(message, ToService::Hello { .. }));
        }
        assert_eq!((greeted, counters.connections()), (MAX, 0));
    }
}
