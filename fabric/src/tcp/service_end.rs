//! The clients over sockets, as the thread that runs the service sees them.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::areas::Areas;
use super::counters::HangUp;
use super::frame::Limits;
use super::handshake::{ADMITTED, Membership, NO_RESOURCES, NO_SUCH_REGION, NO_WORD, TOKEN_UNKNOWN, Welcome};
use super::node::{
    Admission, Client, ClientCredentials, CloseReason, PeerKey, ServingState, ToService, ToThread,
};
use super::options::LIMITS;
use super::request_memory::Charge;
use super::socket::Origin;
use super::token::Rights;
use crate::error::FabricError;
use crate::random::random_bits;
use crate::region::{Export, RegionName};
use crate::room_queue::{RoomQueue, RoomTicket};
use crate::service::{ClientId, Handled, SHORT_BODY, Service};
use crate::shm::PROTOCOL_VERSION;

/// Numbers of clients over sockets begin here, above those of any clients over request rings.
const FIRST_CLIENT: u64 = 1 << 32;

/// A client, and where its answers go.
#[derive(Debug)]
struct ServedClient {
    client: Arc<Client>,
    peer: PeerKey,
    is_owed: bool,
    /// Whether the service takes its requests: not if it may only read and the service does not
    /// look at that.
    may_ask: bool,
}

/// A long request for which the service has no room.
#[derive(Debug)]
struct RoomRequest {
    client: ClientId,
    bytes: Vec<u8>,
    ticket: Option<RoomTicket>,
    /// Counts its bytes until it is taken or given up.
    _charge: Charge,
}

/// The service's side of the threads that serve sockets.
#[derive(Debug)]
pub(crate) struct ServiceSide {
    shared: Arc<ServingState>,
    served: HashMap<ClientId, ServedClient>,
    next_client: u64,
    /// Long requests for which the service has no room, in the order in which they came.
    waiting: VecDeque<RoomRequest>,
}

impl ServiceSide {
    pub(super) fn new(shared: Arc<ServingState>) -> Self {
        Self { shared, served: HashMap::new(), next_client: FIRST_CLIENT, waiting: VecDeque::new() }
    }

    /// Handles what has come: of each client at most one request. Whether there was something.
    pub(crate) fn sweep<S: Service>(&mut self, service: &mut S, queue: &mut RoomQueue) -> bool {
        let mut found = self.take_waiting(service, queue);
        for _ in 0..self.shared.service_side.len() {
            let Some(message) = self.shared.service_side.take() else { break };
            found = true;
            match message {
                ToService::Hello { peer, name, entry, origin, admission } => {
                    self.let_in(peer, &name, (entry, origin), admission, service);
                }
                ToService::Request { client, bytes, charge } => {
                    let mut ticket = None;
                    // One that was hung up on meanwhile waits for nothing.
                    let waits = bytes.len() > SHORT_BODY
                        && self.served.contains_key(&client)
                        && !queue.admits(&mut ticket, client, bytes.len(), service);
                    if waits {
                        self.waiting.push_back(RoomRequest { client, bytes, ticket, _charge: charge });
                    } else {
                        self.handle(client, &bytes, service, queue);
                    }
                }
                ToService::Gone(client) => self.hang_up_on(client, service, queue),
                ToService::TokensChanged => self.hang_up_on_withdrawn(service, queue),
                ToService::Rejected(error) => {
                    self.shared.reported();
                    service.rejected(&error);
                }
            }
        }
        found
    }

    /// Handles requests that have waited, as far as the service has room for them, those for each
    /// room in order.
    fn take_waiting<S: Service>(&mut self, service: &mut S, queue: &mut RoomQueue) -> bool {
        let (mut found, mut at) = (false, 0);
        while let Some(waiting) = self.waiting.get_mut(at) {
            if !queue.admits(&mut waiting.ticket, waiting.client, waiting.bytes.len(), service) {
                at += 1;
                continue;
            }
            let Some(taken) = self.waiting.remove(at) else { break };
            self.handle(taken.client, &taken.bytes, service, queue);
            found = true;
        }
        found
    }

    fn handle<S: Service>(
        &mut self,
        client: ClientId,
        request: &[u8],
        service: &mut S,
        queue: &mut RoomQueue,
    ) {
        // One that was hung up on meanwhile is none.
        let Some(of_client) = self.served.get_mut(&client) else { return };
        if of_client.is_owed {
            // Its socket is not read from before it has the answer: this cannot be, and the answers
            // could not be told apart.
            return self.hang_up_on(client, service, queue);
        }
        if !of_client.may_ask {
            self.shared.hung_up(&of_client.client.origin, CloseReason::READER_ASKS);
            return self.hang_up_on(client, service, queue);
        }
        let mut reply = Vec::new();
        match service.handle(client, request, &mut reply) {
            Handled::Now => self.send(client, reply),
            Handled::Later => of_client.is_owed = true,
        }
    }

    /// Sends the answer that is owed to a client, if it is one of these.
    pub(crate) fn settle(&mut self, client: ClientId, reply: &mut Vec<u8>) {
        if let Some(of_client) = self.served.get_mut(&client)
            && std::mem::take(&mut of_client.is_owed)
        {
            self.send(client, std::mem::take(reply));
        }
    }

    fn send(&self, client: ClientId, mut bytes: Vec<u8>) {
        let Some(ServedClient { peer, .. }) = self.served.get(&client) else { return };
        let len = bytes.len();
        if len > LIMITS.call_reply as usize {
            bytes = Vec::new();
        }
        self.shared.threads[peer.thread].post(ToThread::Reply { key: peer.key, len, bytes });
    }

    fn let_in<S: Service>(
        &mut self,
        peer: PeerKey,
        name: &RegionName,
        (entry, origin): (ClientCredentials, Origin),
        admission: Admission,
        service: &mut S,
    ) {
        match self.admit(name, (entry, origin), service) {
            Ok(client) => {
                let id = client.id();
                self.shared.enter(&client);
                service.connected(id, name.as_bytes());
                let may_ask = entry.rights == Rights::Write || service.may_only_read(id);
                self.served
                    .insert(id, ServedClient { client: Arc::clone(&client), peer, is_owed: false, may_ask });
                self.shared.threads[peer.thread].post(ToThread::Admit { key: peer.key, client, admission });
            }
            Err(error) => {
                let status = match &error {
                    FabricError::NoSuchRegion { .. } => NO_SUCH_REGION,
                    FabricError::TokenRefused { .. } => TOKEN_UNKNOWN,
                    _ => NO_RESOURCES,
                };
                let welcome = Box::new(Welcome::refusal(PROTOCOL_VERSION, status, 0));
                let error = Box::new(error);
                let refusal = ToThread::Refuse { key: peer.key, welcome, error, admission };
                self.shared.threads[peer.thread].post(refusal);
            }
        }
    }

    fn admit<S: Service>(
        &mut self,
        name: &RegionName,
        (entry, origin): (ClientCredentials, Origin),
        service: &mut S,
    ) -> Result<Arc<Client>, FabricError> {
        let address = || format!("the client at {origin}");
        if !self.shared.admits(&entry) {
            return Err(FabricError::token_withdrawn(address()));
        }
        let no_region = || FabricError::NoSuchRegion { address: address(), name: name.to_string() };
        let export: Export = service.export(name.as_bytes()).ok_or_else(no_region)?;
        let scratch = self.shared.options.scratch.clone().filter(|_| entry.rights == Rights::Write);
        let membership = Membership { client: self.next_client, secret: [random_bits()?, random_bits()?] };
        self.next_client += 1;
        let limits = match entry.rights {
            Rights::Write => LIMITS,
            // What only reads is short. So no request of a reader takes memory for long ones, nor
            // waits for the service's room.
            Rights::Read => Limits { call_request: LIMITS.call_request.min(SHORT_BODY as u32), ..LIMITS },
        };
        let welcome = Welcome {
            region_len: export.region_bytes(),
            incarnation: export.incarnation(),
            creation: export.creation(),
            membership,
            watched: export.watched().unwrap_or(NO_WORD),
            limits,
            scratch_len: scratch.as_ref().map_or(0, |memory| memory.len() as u64),
            ..Welcome::refusal(PROTOCOL_VERSION, ADMITTED, 0)
        };
        let areas = Areas {
            for_card: if self.shared.card.is_some() { export.map_for_card()? } else { export.map()? },
            region: export.map()?,
            backed_end: export.backed_end(),
            watched: export.watched(),
            lease: export.lease(),
            scratch,
            answers: export.answers(),
        };
        let active = AtomicU64::new(self.shared.began.elapsed().as_secs());
        let share = self.shared.request_memory.share(name);
        let (is_open, by_card) = (AtomicBool::new(true), AtomicUsize::new(0));
        Ok(Arc::new(Client { areas, welcome, entry, origin, share, is_open, active, by_card }))
    }

    /// Hangs up on clients whose tokens are none any more.
    fn hang_up_on_withdrawn<S: Service>(&mut self, service: &mut S, queue: &mut RoomQueue) {
        let withdrawn = |(id, of_client): (&ClientId, &ServedClient)| {
            (!self.shared.admits(&of_client.client.entry)).then_some((*id, of_client.client.origin))
        };
        let clients: Vec<(ClientId, Origin)> = self.served.iter().filter_map(withdrawn).collect();
        for (client, origin) in clients {
            let error = FabricError::token_withdrawn(format!("the client at {origin}"));
            self.shared.report(HangUp::NoRight, error);
            self.hang_up_on(client, service, queue);
        }
    }

    /// Hangs up on a client, if it is one of these.
    pub(crate) fn hang_up_on<S: Service>(
        &mut self,
        client: ClientId,
        service: &mut S,
        queue: &mut RoomQueue,
    ) {
        let Some(of_client) = self.served.remove(&client) else { return };
        self.waiting.retain_mut(|waiting| {
            let stays = waiting.client != client;
            if !stays {
                queue.leave(&mut waiting.ticket);
            }
            stays
        });
        of_client.client.is_open.store(false, Ordering::Release);
        self.shared.leave(client);
        for thread in &self.shared.threads {
            thread.post(ToThread::Part(client));
        }
        service.disconnected(client);
    }

    /// Hangs up on all.
    pub(crate) fn hang_up_on_all<S: Service>(&mut self, service: &mut S, queue: &mut RoomQueue) {
        let all: Vec<ClientId> = self.served.keys().copied().collect();
        all.into_iter().for_each(|client| self.hang_up_on(client, service, queue));
    }

    /// Says that the service's thread is about to sleep; `false` if there is something to do.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.shared.service_side.begin_sleep()
    }

    /// It is awake, and by these threads if so told.
    pub(crate) fn end_sleep(&self, was_woken: bool) {
        self.shared.service_side.end_sleep(was_woken);
    }
}

impl AsFd for ServiceSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.service_side.as_fd()
    }
}
