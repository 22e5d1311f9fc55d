//! One client, which acts from operation to operation as FPCache's clients do over a card: lookups
//! by doorbell batches, changes by the memory node, a table that turns out to be out of date
//! brought up to date by the change log.

use std::borrow::Borrow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fpcache::Refresh;
use fpcache::layout::REUSE_OFFSET;
use fpcache::matching::Matcher;
use fpcache::message::keys::put_key;
use fpcache::message::{AskedKeys, Request as Message, WriteKind, decode_reply};
use fpcache::read::{Lookup, LookupScratch, Operation as ReadOperation, ReadError, ScanScratch, Step};
use fpcache::table::Table;
use fpcache::table_view::OpenError;
use fpcache_fabric::{Endpoint, RemoteAddr, Request as Posted};

use super::keys::Numbered;
use super::nodes::{Held, Node};
use super::recorded::Recorded;
use super::shared::Shared;
use super::turns::turn;
use crate::bench::{Answer, Operation, Progress};
use crate::nic::{Picos, Request, Verb};

/// How often a lookup brings the table up to date before it asks the memory node's processor, as in
/// a client process.
const REFRESHES: u32 = 8;

/// Bytes of a reply to a lookup beside the value.
const LOOKUP_REPLY: u32 = 24;

/// The lease of the reuse sequence that a memory node with clients by cards gives.
const LEASE: Picos = 1_000_000_000;

/// What a client keeps for the lookups of one memory node.
struct Buffers<K: Numbered> {
    /// None while a lookup has it.
    scratch: Option<Box<LookupScratch<K>>>,
    /// The count of hot caches when it got its handle.
    opened: Option<u64>,
    /// When the READ of the reuse sequence was posted that is known.
    leased_at: Cell<Option<Picos>>,
}

/// A client.
pub(super) struct Client<K: Numbered> {
    pub(super) shared: Rc<Shared<K>>,
    pub(super) me: usize,
    pub(super) scan: ScanScratch<K>,
    buffers: Vec<Buffers<K>>,
    /// Requests to memory nodes so far.
    pub(super) requests: u64,
    pub(super) value: Vec<u8>,
    pub(super) request: Vec<u8>,
    pub(super) reply: Vec<u8>,
}

impl<K: Numbered> Client<K> {
    pub(super) fn new(shared: Rc<Shared<K>>, me: usize) -> Self {
        let buffers = |_: &Node<K>| Buffers { scratch: None, opened: None, leased_at: Cell::default() };
        let buffers = shared.nodes.iter().map(buffers).collect();
        let (value, request, reply) = (Vec::new(), Vec::new(), Vec::new());
        let scan = ScanScratch::default();
        Self { shared, me, scan, buffers, requests: 0, value, request, reply }
    }

    /// Does one operation after another, for ever.
    pub(super) async fn run(mut self) {
        loop {
            let operation = self.shared.mail[self.me].borrow_mut().operation.take();
            let answer = match operation {
                Some(Operation::Read { key }) => self.look_up(key).await,
                Some(Operation::Update { key, value, .. }) => self.write(WriteKind::Update, key, value).await,
                Some(Operation::Insert { key, value }) => self.write(WriteKind::Put, key, value).await,
                Some(Operation::Scan { key, count }) => self.scan(key, count as usize).await,
                None => Answer::Failed("there is nothing to do".into()),
            };
            self.tell(Progress::Done(answer)).await;
        }
    }

    /// Says what it wants, and lets the model go on.
    pub(super) async fn tell(&self, progress: Progress) {
        self.shared.mail[self.me].borrow_mut().progress = Some(progress);
        turn().await;
    }

    /// Posts requests to a memory node; goes on when they take effect, and must [let](turn) them
    /// come back.
    async fn post(&self, node: usize, requests: impl Iterator<Item = (Verb, u32)>) {
        let to = self.shared.target_of(node);
        let requests = requests.map(|(verb, bytes)| Request { to, verb, bytes });
        self.shared.mail[self.me].borrow_mut().requests.extend(requests);
        self.tell(Progress::Post).await;
    }

    /// Whether what is known of a memory node's reuse sequence is younger than that.
    fn has_leased(&self, node: usize, age: Picos) -> bool {
        let now = self.shared.mail[self.me].borrow().now;
        self.buffers[node].leased_at.get().is_some_and(|at| now - at < age)
    }

    /// What is posted now brings the reuse sequence.
    fn renew_lease(&self, node: usize) {
        self.buffers[node].leased_at.set(Some(self.shared.mail[self.me].borrow().now));
    }

    async fn look_up(&mut self, key: u64) -> Answer {
        let node = self.shared.node_of(key);
        let bytes = K::of_number(key, self.shared.sizes.key);
        let mut stale = 0;
        loop {
            let held = self.shared.held(self.me, node);
            let (table, version) = (Arc::clone(&held.table.borrow()), held.version.get());
            match self.attempt(node, &table, bytes.borrow()).await {
                Ok(value) => return Answer::Value(value),
                Err(ReadError::Contended { .. }) => {}
                Err(ReadError::Stale) => {
                    stale += 1;
                    match self.catch_up(node, version).await {
                        Ok(true) if stale <= REFRESHES => {}
                        Ok(_) => return self.ask(node, bytes.borrow()).await,
                        Err(error) => return Answer::Failed(error.to_string()),
                    }
                }
                Err(error) => return Answer::Failed(error.to_string()),
            }
        }
    }

    /// Looks a key up in a table as it is.
    async fn attempt(
        &mut self,
        node: usize,
        table: &Table<K>,
        key: &K::Key,
    ) -> Result<Option<u64>, ReadError> {
        let opened = self.shared.held(self.me, node).opened.get();
        let buffers = &mut self.buffers[node];
        let mut scratch = match buffers.scratch.take() {
            Some(scratch) if buffers.opened == Some(opened) => scratch,
            _ => {
                let scratch = LookupScratch::new(Matcher::detect());
                Box::new(match table.cache() {
                    Some(cache) => scratch.with_cache_handle(cache.handle(self.me as u64)),
                    None => scratch,
                })
            }
        };
        buffers.opened = Some(opened);
        let looked = self.drive(node, &mut Lookup::new(table, &mut scratch, [key])).await;
        let found = looked.map(|()| {
            let found = scratch.outcomes().next().and_then(|(_, value)| value);
            found.and_then(|value| value.first_chunk()).map(|word| u64::from_le_bytes(*word))
        });
        self.buffers[node].scratch = Some(scratch);
        found
    }

    /// Runs an operation over a memory node's endpoint.
    pub(super) async fn drive(
        &self,
        node: usize,
        operation: &mut impl ReadOperation,
    ) -> Result<(), ReadError> {
        let endpoint = &self.shared.nodes[node].endpoint;
        loop {
            match operation.step()? {
                Step::Post => {
                    self.shared.nodes[node].prefetch(operation.batch());
                    let requests = operation.batch().requests().map(|request| match request {
                        Posted::Read { len, .. } => (Verb::Read, len as u32),
                        // They READ and do nothing else.
                        _ => (Verb::Atomic, 8),
                    });
                    // As in `fabric/src/lease.rs`: with other READs when it is half over.
                    let is_due = !self.has_leased(node, LEASE / 2);
                    if is_due {
                        self.renew_lease(node);
                    }
                    let word = is_due.then_some((Verb::Read, 8));
                    self.post(node, word.into_iter().chain(requests)).await;
                    endpoint.borrow_mut().run(operation.batch())?;
                    turn().await;
                }
                // What absence rests on, and scans: known by a lease, or by a READ of its own after
                // the others. It is looked at as it is now, which tells of reuse sooner than a
                // lease: memory is reused at once here.
                Step::Check(until) => {
                    let is_known = self.has_leased(node, LEASE / 8 * 7);
                    if !is_known {
                        self.renew_lease(node);
                        self.post(node, std::iter::once((Verb::Read, 8))).await;
                    }
                    let reuse = endpoint.borrow_mut().load_after_reads(RemoteAddr::region(REUSE_OFFSET))?;
                    if !is_known {
                        turn().await;
                    }
                    if reuse > until {
                        return Err(ReadError::Stale);
                    }
                }
                Step::Done => return Ok(()),
            }
        }
    }

    /// Brings the compute node's table up to date, unless another client does or has done so since
    /// the version it had. Whether another attempt is worth while: models in pages know only the
    /// last checkpoint.
    pub(super) async fn catch_up(&self, node: usize, seen: u64) -> Result<bool, OpenError> {
        let held = self.shared.held(self.me, node);
        if held.is_refreshing.get() {
            held.waiting.borrow_mut().push(self.me);
            self.tell(Progress::Waits).await;
            return Ok(true);
        }
        if held.version.get() != seen {
            return Ok(true);
        }
        held.is_refreshing.set(true);
        let refreshed = self.refresh(node, held).await;
        held.is_refreshing.set(false);
        self.shared.woken.borrow_mut().append(&mut held.waiting.borrow_mut());
        refreshed
    }

    async fn refresh(&self, node: usize, held: &Held<K>) -> Result<bool, OpenError> {
        let table = Arc::clone(&held.table.borrow());
        let refreshed = self.recorded(node, |endpoint| table.refreshed(endpoint)).await?;
        let newer = match refreshed {
            Refresh::Current => return Ok(table.view().models().paged().is_none()),
            Refresh::Newer(table) => table,
            Refresh::Lost => {
                let opened =
                    self.recorded(node, |endpoint| Table::open(endpoint, &self.shared.options)).await?;
                held.opened.set(held.opened.get() + 1);
                opened
            }
        };
        *held.table.borrow_mut() = Arc::new(newer);
        held.version.set(held.version.get() + 1);
        Ok(true)
    }

    /// Runs what READs a table, in this moment, and lets the time of its round trips pass before
    /// its result is there: somewhat older than a card would have brought it, which any table may
    /// be.
    async fn recorded<R>(&self, node: usize, read: impl FnOnce(&mut Recorded<'_>) -> R) -> R {
        let (result, trips) = {
            let mut endpoint = self.shared.nodes[node].endpoint.borrow_mut();
            let mut recorded = Recorded::new(&mut endpoint);
            (read(&mut recorded), recorded.trips)
        };
        for trip in trips {
            self.post(node, trip.into_iter().map(|bytes| (Verb::Read, bytes))).await;
            // Its processor goes on while clients wait for what it does.
            self.shared.work(node);
            turn().await;
        }
        result
    }

    /// Has the memory node's processor look a key up.
    async fn ask(&mut self, node: usize, key: &K::Key) -> Answer {
        let mut keys = Vec::new();
        put_key::<K>(key, &mut keys);
        Message::Get(AskedKeys { count: 1, bytes: &keys }).encode::<K>(0, &mut self.request);
        self.call(node, LOOKUP_REPLY + self.shared.sizes.value as u32).await;
        looked_up(&self.reply)
    }

    /// Has a memory node publish a newer directory, as a client does whose models lie in pages.
    pub(super) async fn ask_for_directory(&mut self, node: usize) {
        Message::Get(AskedKeys { count: 0, bytes: &[] }).encode::<K>(0, &mut self.request);
        self.call(node, LOOKUP_REPLY).await;
    }

    /// Sends the request to a memory node's processor, and takes the reply.
    async fn call(&mut self, node: usize, reply: u32) {
        self.call_for(node, reply, 0).await;
    }

    /// The same for a request that takes the processor so much longer than a short one.
    pub(super) async fn call_for(&mut self, node: usize, reply: u32, longer: Picos) {
        let core = Some(self.shared.core_of(node));
        let verb = Verb::Call { service: self.shared.put + longer, reply, core };
        self.post(node, std::iter::once((verb, self.request.len() as u32))).await;
        let besides: Picos = self.shared.nodes[node].call(&self.request, &mut self.reply);
        self.shared.besides.set(besides);
        turn().await;
    }
}

/// What the memory node's reply says of a lookup: a status, 0 for a value, the token, the value.
fn looked_up(reply: &[u8]) -> Answer {
    match decode_reply(reply) {
        Err(refusal) => Answer::Failed(refusal.to_string()),
        Ok(body) => match (body.first(), body.get(16..24).and_then(|value| value.first_chunk())) {
            (Some(0), Some(value)) => Answer::Value(Some(u64::from_le_bytes(*value))),
            (Some(2), _) => Answer::Value(None),
            _ => Answer::Failed("the memory node's reply to a lookup is cut short".into()),
        },
    }
}
