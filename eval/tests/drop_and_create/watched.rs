//! A memory node whose changes are written down as they take effect.

use super::*;

/// In which life of the table each insert took effect, by its number; 0: in none.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) lives: [Vec<u32>; WRITERS],
    pub(super) faults: Vec<String>,
}

impl Ledger {
    pub(super) fn note(&mut self, number: u64, life: u32) {
        let (writer, count) = ((number >> 40) as usize, (number & ((1 << 40) - 1)) as usize);
        let Some(lives) = self.lives.get_mut(writer).filter(|_| count < 1 << 32) else {
            return self.faults.push(format!("{number:x} was inserted, which nobody asked for"));
        };
        lives.resize(lives.len().max(count + 1), 0);
        match lives[count] {
            0 => lives[count] = life,
            before if before == life => {}
            before => self.faults.push(format!("{number:x} took effect in the lives {before} and {life}")),
        }
    }

    pub(super) fn life_of(&self, writer: usize, count: u64) -> u32 {
        self.lives[writer].get(count as usize).copied().unwrap_or(0)
    }
}

/// A catalogue that is watched at its requests: what it does, and to which life of the table,
/// whatever the requests say of that.
pub(super) struct Watched {
    pub(super) catalogue: Catalogue,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) life: u32,
    pub(super) kind: KeyKind,
    pub(super) writes: u64,
    /// Requests whose replies come later, with the life of the table that has them.
    pub(super) owed: HashMap<ClientId, (u32, Vec<u8>)>,
    /// The reply that is held, whose it is, and until when.
    pub(super) held: Option<(ClientId, Vec<u8>, Instant)>,
}

impl Watched {
    /// Notes what a write that was answered so has done in this life of the table.
    pub(super) fn note(&self, life: u32, request: &[u8], reply: &[u8]) {
        match self.kind {
            KeyKind::U64 => self.note_in::<U64Keys>(life, request, reply),
            KeyKind::Bytes => self.note_in::<ByteKeys>(life, request, reply),
        }
    }

    pub(super) fn note_in<K: NumberedKeys>(&self, life: u32, request: &[u8], reply: &[u8]) {
        let (Ok(replies), Some(Ok(write))) = (decode_reply(reply), write_in::<K>(request)) else { return };
        let mut ledger = lock(&self.ledger);
        let replies = replies.chunks_exact(WriteReply::BYTES).map(|reply| WriteReply::decode(reply).unwrap());
        for (operation, reply) in write.operations::<K>().zip(replies) {
            let Ok(operation) = operation else { return };
            let value = operation.value.bytes().first_chunk().map_or(u64::MAX, |b| u64::from_le_bytes(*b));
            let is_ours = K::number(operation.key.borrow()) == value;
            match reply.status {
                WriteStatus::Done if is_ours => ledger.note(value, life),
                WriteStatus::Done => ledger.faults.push(format!("{:?}", operation.value)),
                _ => {}
            }
        }
    }
}

/// The write that a request is, whatever table it is meant for.
pub(super) fn write_in<K: NumberedKeys>(request: &[u8]) -> Option<Result<Write<'_>, ()>> {
    let creation = u64::from_le_bytes(*request.get(8..)?.first_chunk()?);
    match Request::decode::<K>(creation, request) {
        Ok(Request::Write(write)) => Some(Ok(write)),
        Ok(_) => None,
        Err(_) => Some(Err(())),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service for Watched {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        self.catalogue.export(name)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        let tables = TablesRequest::is_one(request).then(|| TablesRequest::decode(request).unwrap());
        let handled = self.catalogue.handle(client, request, reply);
        match tables {
            // Its one caller drops a table that is there. What was held or owed is lost with the
            // connections.
            Some(TablesRequest::Drop { .. }) => {
                (self.held, self.life) = (None, self.life + 1);
                self.owed.clear();
            }
            Some(TablesRequest::Create { kind, .. }) => self.kind = kind,
            Some(_) => {}
            None if handled == Handled::Later => {
                self.owed.insert(client, (self.life, request.to_vec()));
            }
            None => {
                self.note(self.life, request, reply);
                self.writes += 1;
                if self.writes.is_multiple_of(HELD) && self.held.is_none() {
                    let until = Instant::now() + Duration::from_millis(5);
                    self.held = Some((client, std::mem::take(reply), until));
                    return Handled::Later;
                }
            }
        }
        handled
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        if let Some((client, held, _)) = self.held.take_if(|(.., until)| Instant::now() >= *until) {
            *reply = held;
            return Some(client);
        }
        let client = self.catalogue.next_reply(reply)?;
        if let Some((life, request)) = self.owed.remove(&client) {
            self.note(life, &request, reply);
        }
        Some(client)
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.catalogue.next_farewell()
    }

    fn work(&mut self) -> Work {
        match (self.catalogue.work(), &self.held) {
            (Work::Nothing, Some((.., until))) => Work::At(*until),
            (work, _) => work,
        }
    }

    fn waker(&self) -> Option<Waker> {
        self.catalogue.waker()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.catalogue.connected(client, region);
    }

    fn disconnected(&mut self, client: ClientId) {
        self.catalogue.disconnected(client);
    }
}

/// A memory node on a thread of this process.
pub(super) struct Node {
    pub(super) url: String,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) _serving: Serving,
    pub(super) _directory: tempfile::TempDir,
}

impl Node {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let config = CatalogueConfig::of(64 << 20);
        let ledger = Arc::<Mutex<Ledger>>::default();
        let watched = Watched {
            catalogue: Catalogue::open(&config).unwrap(),
            ledger: Arc::clone(&ledger),
            life: 1,
            kind: KeyKind::U64,
            writes: 0,
            owed: HashMap::new(),
            held: None,
        };
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        let serving = listener.spawn(watched).unwrap();
        Self { url: address.to_string(), ledger, _serving: serving, _directory: directory }
    }

    pub(super) fn tables(&self) -> Tables {
        Tables::connect(&self.url).unwrap()
    }

    /// A client of the table, whichever there is at present.
    pub(super) fn client<K: NumberedKeys>(&self) -> TableClient<K> {
        let config = ClientConfig::default().with_table(name()).with_deadline(DEADLINE);
        until_there(|| TableClient::connect_with(&self.url, config))
    }
}
