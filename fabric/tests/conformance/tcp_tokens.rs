//! Tokens: a client that knows one gets in, with the rights that it has; others do not, and learn
//! why.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::suite::TestService;
use fpcache_fabric::shm::PROTOCOL_VERSION;
use fpcache_fabric::tcp::{
    AccessKeeper, ConnectOptions, HangUp, ListenOptions, Listener, Rights, SocketCounters, TcpAddress,
    TcpConnection, Token, TokenSet, connect,
};
use fpcache_fabric::{
    AreaId, Batch, ClientId, Connection, Deadline, Endpoint, ErrorKind, Export, FabricError, Handled,
    HugePages, OneRegion, RegionName, RemoteAddr, Service, Serving, SharedMemory,
};

struct Noting {
    inner: TestService,
    export: Export,
    readers: Arc<Mutex<Vec<ClientId>>>,
    rejected: Arc<Mutex<Vec<String>>>,
}

impl Service for Noting {
    fn export(&mut self, _: &[u8]) -> Option<Export> {
        Some(self.export.clone())
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.inner.handle(client, request, reply)
    }

    fn may_only_read(&mut self, client: ClientId) -> bool {
        self.readers.lock().unwrap().push(client);
        true
    }

    fn rejected(&mut self, error: &FabricError) {
        self.rejected.lock().unwrap().push(error.to_string());
    }
}

struct Node {
    addresses: Vec<TcpAddress>,
    keeper: AccessKeeper,
    counters: SocketCounters,
    readers: Arc<Mutex<Vec<ClientId>>>,
    rejected: Arc<Mutex<Vec<String>>>,
    _serving: Serving,
    _directory: tempfile::TempDir,
}

impl Node {
    /// At a loopback address and a unix socket.
    fn start(tokens: TokenSet, require_token: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
        region.store_release(64, 77).unwrap();
        let export = Export::new(&region, fd, 1).unwrap().with_watched(0);
        let scratch = Some(Arc::new(SharedMemory::anonymous(4096).unwrap()));
        let options =
            ListenOptions { tokens, require_token, scratch, io_threads: 2, ..ListenOptions::default() };
        let unix = TcpAddress::at_path(directory.path().join("node.sock")).unwrap();
        let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap(), unix], options).unwrap();
        let (readers, rejected) = Default::default();
        let inner = TestService::default();
        let service =
            Noting { inner, export, readers: Arc::clone(&readers), rejected: Arc::clone(&rejected) };
        Self {
            addresses: listener.addresses().to_vec(),
            keeper: listener.access_keeper(),
            counters: listener.counters(),
            readers,
            rejected,
            _serving: listener.spawn(service).unwrap(),
            _directory: directory,
        }
    }

    fn connect(&self, token: Option<Token>) -> Result<TcpConnection, FabricError> {
        connect(&self.addresses[0], ConnectOptions { token, ..ConnectOptions::default() })
    }

    fn tells(&self, words: &str) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !self.rejected.lock().unwrap().iter().any(|why| why.contains(words)) {
            assert!(Instant::now() < patience, "{words}: {:?}", self.rejected.lock().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(self.counters.snapshot().hang_ups(HangUp::NoRight) > 0, "{:?}", self.counters);
    }
}

fn token() -> Token {
    Token::random().unwrap()
}

fn reads(connection: &TcpConnection) -> Result<(), FabricError> {
    let mut word = [0];
    connection.endpoint().read_words(RemoteAddr::region(64), &mut word)?;
    assert_eq!(word, [77]);
    let mut reply = Vec::new();
    connection.call(&[TestService::ECHO, 5], &mut reply, Deadline::after(Duration::from_secs(5)))?;
    assert_eq!(reply, [5]);
    Ok(())
}

fn changes(connection: &TcpConnection) -> Result<(), FabricError> {
    let mut batch = Batch::new();
    batch.compare_swap(RemoteAddr { area: AreaId(2), offset: 0 }, 0, 1);
    connection.endpoint().run(&mut batch)
}

#[test]
fn a_token_lets_in_with_its_rights() {
    let (write, also_write, read) = (token(), token(), token());
    let tokens = TokenSet::default().with(write, Rights::Write).with(read, Rights::Read);
    let node = Node::start(tokens.with(also_write, Rights::Write), true);
    for token in [write, also_write] {
        let writer = node.connect(Some(token)).unwrap();
        reads(&writer).unwrap();
        changes(&writer).unwrap();
    }
    assert!(node.readers.lock().unwrap().is_empty());
    let reader = node.connect(Some(read)).unwrap();
    reads(&reader).unwrap();
    assert!(changes(&reader).is_err(), "a reader changes nothing");
    assert_eq!(node.readers.lock().unwrap().len(), 1, "the service is told");
    reads(&reader).unwrap();
    // What only reads is short; longer requests of a reader take no memory and no room from
    // writers.
    assert!(reader.max_request() <= 16 << 10 && node.connect(Some(write)).unwrap().max_request() >= 1 << 20);
    let long = vec![TestService::ECHO; 17 << 10];
    let soon = Deadline::after(Duration::from_secs(5));
    let error = reader.call(&long, &mut Vec::new(), soon).unwrap_err();
    assert!(matches!(error, FabricError::RequestTooLong { .. }), "{error}");
    // Over a unix socket the operating system says who is there.
    let local = ConnectOptions { token: Some(token()), ..ConnectOptions::default() };
    reads(&connect(&node.addresses[1], local).unwrap()).unwrap();
}

#[test]
fn nobody_gets_in_without_a_token_or_with_another_and_learns_why() {
    let node = Node::start(TokenSet::default().with(token(), Rights::Write), true);
    let name = node.addresses[0].to_string();
    for (given, why) in [(None, "requires a token"), (Some(token()), "does not know this client's token")] {
        let error = node.connect(given).unwrap_err();
        assert!(matches!(error, FabricError::TokenRefused { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&name) && text.contains(why) && text.contains("give "), "{text}");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false));
    }
    node.tells("no token");
    node.tells("does not know a token");
    // One that cannot prove that it is the memory node is not believed.
    let open = Node::start(TokenSet::default(), false);
    let error = open.connect(Some(token())).unwrap_err().to_string();
    assert!(error.contains("no tokens") && error.contains("--token-file"), "{error}");
    assert!(!error.contains("leave"), "nobody is told to do without a proof: {error}");
    reads(&open.connect(None).unwrap()).unwrap();
}

#[test]
fn over_the_loopback_interface_a_token_is_needed_only_if_told() {
    let read = token();
    let node = Node::start(TokenSet::default().with(read, Rights::Read), false);
    changes(&node.connect(None).unwrap()).unwrap();
    let reader = node.connect(Some(read)).unwrap();
    reads(&reader).unwrap();
    assert!(changes(&reader).is_err());
}

/// A service that does not look at who may only read.
struct Careless(TestService);

impl Service for Careless {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.0.handle(client, request, reply)
    }
}

#[test]
fn a_service_that_does_not_look_at_rights_gets_no_request_of_a_reader() {
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
    region.store_release(64, 77).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let (write, read) = (token(), token());
    let tokens = TokenSet::default().with(write, Rights::Write).with(read, Rights::Read);
    let options = ListenOptions { tokens, require_token: true, ..ListenOptions::default() };
    let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
    let address = listener.addresses()[0].clone();
    let service = OneRegion::new(RegionName::default(), export, Careless(TestService::default()));
    let _serving = listener.spawn(service).unwrap();
    let come = |token| {
        connect(&address, ConnectOptions { token: Some(token), ..ConnectOptions::default() }).unwrap()
    };
    reads(&come(write)).unwrap();
    let reader = come(read);
    reader.endpoint().read_words(RemoteAddr::region(64), &mut [0]).unwrap();
    let soon = Deadline::after(Duration::from_secs(5));
    let error = reader.call(&[TestService::COUNT], &mut Vec::new(), soon).unwrap_err();
    assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    let mut reply = Vec::new();
    come(write).call(&[TestService::COUNT], &mut reply, soon).unwrap();
    assert_eq!(reply, 1u64.to_le_bytes(), "the service has seen the writer's request alone");
}

/// Any user may put a socket file somewhere: a path means a memory node of one's own user, or of
/// the one that is named.
#[test]
fn whoever_listens_at_a_path_is_another_user_than_the_one_that_is_named() {
    let node = Node::start(TokenSet::default(), false);
    let path = node.addresses[1].to_string();
    let own = rustix::process::geteuid().as_raw();
    let named = |user: u32| path.replace("tcp+unix://", &format!("tcp+unix://{user}@")).parse().unwrap();
    reads(&connect(&named(own), ConnectOptions::default()).unwrap()).unwrap();
    let error = connect(&named(own + 1), ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::UserRefused { user, .. } if user == own), "{error}");
    assert!(error.to_string().contains("tcp+unix://UID@/PATH"), "{error}");
    let error = Listener::bind(&[named(own + 1)], ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("names a memory node of user"), "{error}");
}

#[test]
fn addresses_that_others_reach_need_tokens() {
    let anywhere: TcpAddress = "tcp://0.0.0.0:0".parse().unwrap();
    let error = Listener::bind(std::slice::from_ref(&anywhere), ListenOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("other machines reach") && text.contains("--token-file"), "{text}");
    assert!(text.contains("token new"), "{text}");
    let options = ListenOptions { require_token: true, ..ListenOptions::default() };
    let error = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap_err();
    assert!(error.to_string().contains("a token is required of all clients"), "{error}");
}

#[test]
fn tokens_change_while_a_node_serves() {
    let (old, kept, new) = (token(), token(), token());
    let tokens = TokenSet::default().with(kept, Rights::Write);
    let node = Node::start(tokens.clone().with(old, Rights::Write), true);
    let (by_old, by_kept) = (node.connect(Some(old)).unwrap(), node.connect(Some(kept)).unwrap());
    let mut endpoint = by_old.endpoint();
    endpoint.read_words(RemoteAddr::region(64), &mut [0]).unwrap();
    node.keeper.replace_tokens(tokens.with(new, Rights::Write));
    // Clients of a token that is gone go with it, over all their sockets.
    let patience = Instant::now() + Duration::from_secs(60);
    while by_old.is_alive() {
        assert!(Instant::now() < patience, "it lives on");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(endpoint.read_words(RemoteAddr::region(64), &mut [0]).is_err());
    node.tells("the client at 127.0.0.1:");
    node.tells("withdrawn");
    assert!(matches!(node.connect(Some(old)), Err(FabricError::TokenRefused { .. })));
    reads(&by_kept).unwrap();
    reads(&node.connect(Some(new)).unwrap()).unwrap();
}

/// HELLO of a client with a token, or of one that joins another.
fn hello(nonce: Option<[u8; 32]>, join: Option<&[u8; 128]>) -> Vec<u8> {
    let mut hello = b"FPFABTCP".to_vec();
    hello.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    hello.resize(64, 0);
    if let Some(welcome) = join {
        hello[16..24].copy_from_slice(&welcome[40..48]);
        hello[24..40].copy_from_slice(&welcome[48..64]);
    }
    if let Some(nonce) = nonce {
        (hello[40], hello[44]) = (1, 32);
        hello.extend_from_slice(&nonce);
    }
    hello
}

fn socket(node: &Node) -> TcpStream {
    let port = node.addresses[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn take<const N: usize>(socket: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).unwrap();
    bytes
}

/// The status of an answer without a proof.
fn status(socket: &mut TcpStream) -> u8 {
    take::<128>(socket)[12]
}

/// What passes between a client and the node is recorded by one who stands between, and sent again.
#[test]
fn what_was_seen_of_an_exchange_lets_nobody_in() {
    let known = token();
    let node = Node::start(TokenSet::default().with(known, Rights::Write), true);
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: TcpAddress = format!("tcp://{}", between.local_addr().unwrap()).parse().unwrap();
    let client = std::thread::spawn(move || {
        connect(&address, ConnectOptions { token: Some(known), ..ConnectOptions::default() })
    });
    let (mut from, _) = between.accept().unwrap();
    let mut to = socket(&node);
    let hello = take::<96>(&mut from);
    to.write_all(&hello).unwrap();
    let challenge = take::<48>(&mut to);
    from.write_all(&challenge).unwrap();
    let proof = take::<32>(&mut from);
    to.write_all(&proof).unwrap();
    let welcome = take::<128>(&mut to);
    let mut node_proof = take::<32>(&mut to);
    // A client does not believe who cannot prove, even if all else is right.
    node_proof[31] ^= 1;
    from.write_all(&[&welcome[..], &node_proof].concat()).unwrap();
    let error = client.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("did not prove"), "{error}");

    // The same again, the proof that the node gave, and a proof that is cut.
    for sent in [&proof, &node_proof, &challenge[16..].try_into().unwrap()] {
        let mut again = socket(&node);
        again.write_all(&hello).unwrap();
        assert_ne!(take::<48>(&mut again), challenge, "every challenge is new");
        again.write_all(sent).unwrap();
        assert_eq!(status(&mut again), 10);
    }
    // Proofs for other challenges: two at once.
    let (mut one, mut other) = (socket(&node), socket(&node));
    for socket in [&mut one, &mut other] {
        socket.write_all(&self::hello(Some([7; 32]), None)).unwrap();
        assert_eq!(take::<48>(socket)[12], 8);
    }
    // A client's number and secret, which can be seen, do not do either.
    let mut join = socket(&node);
    join.write_all(&self::hello(None, Some(&welcome))).unwrap();
    assert_eq!(status(&mut join), 9);
    let mut join = socket(&node);
    join.write_all(&self::hello(Some([7; 32]), Some(&welcome))).unwrap();
    take::<48>(&mut join);
    join.write_all(&[0; 32]).unwrap();
    assert_eq!(status(&mut join), 10);
}

#[test]
fn a_socket_joins_only_by_the_right_that_its_client_came_by() {
    let known = token();
    let node = Node::start(TokenSet::default().with(known, Rights::Read), false);
    // Without a token, which the loopback interface lets in: it may write, and the reader's sockets
    // may not.
    let mut first = socket(&node);
    first.write_all(&hello(None, None)).unwrap();
    let welcome = take::<128>(&mut first);
    let mut join = socket(&node);
    join.write_all(&hello(None, Some(&welcome))).unwrap();
    assert_eq!(status(&mut join), 0);
    let reader = node.connect(Some(known)).unwrap();
    reads(&reader).unwrap();
    // One that says that it has a token and then proves nothing holds no other up.
    let mut silent = socket(&node);
    silent.write_all(&hello(Some([1; 32]), Some(&welcome))).unwrap();
    take::<48>(&mut silent);
    silent.write_all(&[3; 33]).unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    reads(&reader).unwrap();
}

/// A client that fails again and again waits for the refusal; one that knows a token does not, also
/// at the same address.
#[test]
fn failures_cost_their_address_time_and_others_none() {
    let known = token();
    let node = Node::start(TokenSet::default().with(known, Rights::Write), true);
    let mut slow = 0;
    for _ in 0..7 {
        let began = Instant::now();
        assert!(matches!(node.connect(Some(token())), Err(FabricError::TokenRefused { .. })));
        slow += u32::from(began.elapsed() >= Duration::from_millis(900));
    }
    assert!(slow >= 2, "failures after the first are held back");
    // One that waits is not in the way: once at least, where others use this machine.
    let passes = (0..3).any(|_| {
        let mut held = socket(&node);
        held.write_all(&hello(None, None)).unwrap();
        let began = Instant::now();
        reads(&node.connect(Some(known)).unwrap()).unwrap();
        let took = began.elapsed();
        assert_eq!(status(&mut held), 9);
        assert_eq!(held.read(&mut [0]).unwrap(), 0);
        took < Duration::from_millis(700)
    });
    assert!(passes, "whoever knows a token waited for one that was refused");
    assert!(node.counters.hang_ups() >= 8);
}
