//! TLS: what goes over `tcps://` is encrypted, to the peer that the certificate names; a client
//! with a wrong address or certificate learns what is wrong.

use std::path::PathBuf;

use fpcache_fabric::tcp::TlsTrust;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/tls")).join(name)
}

/// The options of a client that trusts the authority.
pub fn trust() -> TlsTrust {
    TlsTrust { authority: Some(file("authority.pem")), identity: None }
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_program_without_tls_says_so() {
    use fpcache_fabric::FabricError;
    use fpcache_fabric::tcp::{ConnectOptions, ListenOptions, Listener, TcpAddress, connect};

    let address: TcpAddress = "tcps://127.0.0.1:1".parse().unwrap();
    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::Tls(_)) && error.to_string().contains("--features tls"), "{error}");
    let error = Listener::bind(&[address], ListenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("--features tls") && error.contains("tcps://127.0.0.1:1"), "{error}");
}

#[cfg(feature = "tls")]
pub use with_tls::serving;

#[cfg(feature = "tls")]
mod with_tls {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use crate::suite::TestService;
    use fpcache_fabric::shm::ListenError;
    use fpcache_fabric::tcp::{
        AccessKeeper, ConnectOptions, ListenOptions, Listener, Rights, TcpAddress, TcpConnection,
        TlsIdentity, TlsServing, TlsTrust, Token, TokenSet, connect,
    };
    use fpcache_fabric::{
        Batch, ClientId, Connection, Deadline, Endpoint, Export, FabricError, Handled, HugePages, RemoteAddr,
        Service, Serving, SharedMemory,
    };

    use super::{file, trust};

    fn identity(name: &str) -> TlsIdentity {
        TlsIdentity { certificate: file(&format!("{name}.pem")), key: key(name, 0o600) }
    }

    /// A copy of a key with this mode: those of the repository have what its checkout gave them.
    fn key(name: &str, mode: u32) -> PathBuf {
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let copy = COPIES.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!("{name}-{}-{copy}.key", std::process::id()));
        fs::copy(file(&format!("{name}.key")), &new).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        let key = folder.join(format!("{name}-{mode:o}.key"));
        // Whole at once: other tests may be reading it.
        fs::rename(&new, &key).unwrap();
        key
    }

    #[test]
    fn a_key_that_others_may_read_is_not_used() {
        let of =
            |key| TlsServing { identity: TlsIdentity { key, ..identity("node") }, client_authority: None };
        let bind = |key| {
            let options = ListenOptions { tls: Some(of(key)), ..ListenOptions::default() };
            Listener::bind(&["tcps://127.0.0.1:0".parse().unwrap()], options)
        };
        for mode in [0o644, 0o620, 0o604] {
            let error = bind(key("node", mode)).map(drop).unwrap_err();
            assert!(matches!(error, ListenError::Tls(_)), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        bind(key("node", 0o640)).unwrap();
        // Nor is one that a client shows.
        let node = Node::of(serving());
        let identity = TlsIdentity { key: key("client", 0o644), ..identity("client") };
        let url = node.addresses[0].to_string();
        fails(node.connect(TlsTrust { identity: Some(identity), ..trust() }), &["chmod 600", &url]);
    }

    /// The options of a memory node at localhost.
    pub fn serving() -> TlsServing {
        TlsServing { identity: identity("node"), client_authority: None }
    }

    struct Noting {
        export: Export,
        inner: TestService,
        rejected: Arc<Mutex<Vec<String>>>,
    }

    impl Service for Noting {
        fn export(&mut self, _: &[u8]) -> Option<Export> {
            Some(self.export.clone())
        }

        fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
            self.inner.handle(client, request, reply)
        }

        fn rejected(&mut self, error: &FabricError) {
            self.rejected.lock().unwrap().push(error.to_string());
        }
    }

    struct Node {
        /// Encrypted, and not.
        addresses: Vec<TcpAddress>,
        keeper: AccessKeeper,
        rejected: Arc<Mutex<Vec<String>>>,
        _serving: Serving,
    }

    impl Node {
        fn start(options: ListenOptions) -> Self {
            let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
            region.store_release(64, 77).unwrap();
            let export = Export::new(&region, fd, 1).unwrap().with_watched(0);
            let addresses = ["tcps://127.0.0.1:0", "tcp://127.0.0.1:0"].map(|at| at.parse().unwrap());
            let listener = Listener::bind(&addresses, options).unwrap();
            let rejected = Arc::<Mutex<Vec<String>>>::default();
            let service = Noting { export, inner: TestService::default(), rejected: Arc::clone(&rejected) };
            Self {
                addresses: listener.addresses().to_vec(),
                keeper: listener.access_keeper(),
                rejected,
                _serving: listener.spawn(service).unwrap(),
            }
        }

        fn of(tls: TlsServing) -> Self {
            Self::start(ListenOptions { tls: Some(tls), ..ListenOptions::default() })
        }

        fn connect(&self, trust: TlsTrust) -> Result<TcpConnection, FabricError> {
            connect(&self.addresses[0].clone().trusting(trust), ConnectOptions::default())
        }

        /// Where another protocol's client would connect to.
        fn socket(&self, which: usize) -> TcpStream {
            let text = self.addresses[which].to_string();
            let at: SocketAddr = text.split_once("://").unwrap().1.parse().unwrap();
            let socket = TcpStream::connect(at).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            socket
        }

        fn tells(&self, words: &str) {
            let patience = Instant::now() + Duration::from_secs(60);
            while !self.rejected.lock().unwrap().iter().any(|why| why.contains(words)) {
                assert!(Instant::now() < patience, "{words}: {:?}", self.rejected.lock().unwrap());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn reads(connection: &TcpConnection) {
        let mut word = [0];
        connection.endpoint().read_words(RemoteAddr::region(64), &mut word).unwrap();
        assert_eq!(word, [77]);
    }

    #[track_caller]
    fn fails(outcome: Result<TcpConnection, FabricError>, words: &[&str]) {
        let error = outcome.unwrap_err();
        let text = error.to_string();
        assert!(words.iter().all(|words| text.contains(words)) && !error.is_retryable(), "{text}");
    }

    #[test]
    fn a_memory_node_is_believed_by_its_certificate() {
        let node = Node::of(serving());
        reads(&node.connect(trust()).unwrap());
        let stranger = TlsTrust { authority: Some(file("stranger.pem")), identity: None };
        fails(node.connect(stranger), &["UnknownIssuer", "ca=FILE"]);
        let elsewhere = TlsServing { identity: identity("elsewhere"), client_authority: None };
        fails(Node::of(elsewhere).connect(trust()), &["not valid for", "write one of the names"]);
        node.tells("no TLS with it");
    }

    #[test]
    fn clients_show_a_certificate_where_one_is_asked_for() {
        let node = Node::of(TlsServing { client_authority: Some(file("authority.pem")), ..serving() });
        let known = TlsTrust { identity: Some(identity("client")), ..trust() };
        reads(&node.connect(known).unwrap());
        fails(node.connect(trust()), &["CertificateRequired", "cert=FILE&key=FILE"]);
        // The memory node's own says that it is one of servers.
        let other = TlsTrust { identity: Some(identity("node")), ..trust() };
        assert!(matches!(node.connect(other), Err(FabricError::Tls(_))));
    }

    /// Neither the files nor the handshake are of one address alone.
    #[test]
    fn errors_before_there_is_a_session_name_the_address() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcps://{}", silent.local_addr().unwrap());
        let address: TcpAddress = url.parse().unwrap();
        let nowhere = TlsTrust { authority: Some("/nowhere.pem".into()), identity: None };
        fails(
            connect(&address.clone().trusting(nowhere), ConnectOptions::default()),
            &["/nowhere.pem", &url],
        );
        let deadline = Deadline::after(Duration::from_millis(50));
        let options = ConnectOptions { deadline, ..ConnectOptions::default() };
        let error = connect(&address.trusting(trust()), options).unwrap_err();
        assert!(error.to_string().contains("a TLS handshake") && error.to_string().contains(&url), "{error}");
    }

    #[test]
    fn clients_of_the_other_kind_are_told() {
        let node = Node::of(serving());
        let plain = node.addresses[0].to_string().replace("tcps://", "tcp://").parse().unwrap();
        fails(connect(&plain, ConnectOptions::default()), &["speaks TLS", "tcps://"]);
        let encrypted = node.addresses[1].to_string().replace("tcp://", "tcps://");
        let encrypted = encrypted.parse::<TcpAddress>().unwrap().trusting(trust());
        fails(connect(&encrypted, ConnectOptions::default()), &["does not speak TLS", "tcp://"]);
        node.tells("it does not speak TLS");
        node.tells("it speaks TLS, and this address is one of tcp://");
    }

    #[test]
    fn tokens_are_needed_beneath_tls_too() {
        let token = Token::random().unwrap();
        let node = Node::start(ListenOptions {
            tls: Some(serving()),
            tokens: TokenSet::default().with(token, Rights::Write),
            require_token: true,
            ..ListenOptions::default()
        });
        let at = node.addresses[0].clone().trusting(trust());
        reads(&connect(&at, ConnectOptions { token: Some(token), ..ConnectOptions::default() }).unwrap());
        fails(node.connect(trust()), &["requires a token"]);
    }

    #[test]
    fn another_certificate_is_shown_from_then_on() {
        let node = Node::of(TlsServing { identity: identity("elsewhere"), client_authority: None });
        fails(node.connect(trust()), &["not valid for"]);
        let broken = TlsIdentity { key: key("client", 0o600), ..identity("node") };
        let broken = TlsServing { identity: broken, client_authority: None };
        let error = node.keeper.replace_certificate(&broken).unwrap_err();
        assert!(error.to_string().contains("name the key that belongs to it"), "{error}");
        fails(node.connect(trust()), &["not valid for"]);
        node.keeper.replace_certificate(&serving()).unwrap();
        reads(&node.connect(trust()).unwrap());
    }

    /// The thread that reads certificates again is that of signals: it was deaf from then on.
    #[test]
    fn a_pipe_in_place_of_a_certificate_is_not_waited_for() {
        let node = Node::of(serving());
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let of_pipe = TlsIdentity { certificate: pipe, ..identity("node") };
        let error = node
            .keeper
            .replace_certificate(&TlsServing { identity: of_pipe, client_authority: None })
            .unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
        reads(&node.connect(trust()).unwrap());
    }

    #[test]
    fn listening_needs_a_certificate() {
        let address: TcpAddress = "tcps://127.0.0.1:0".parse().unwrap();
        let error = Listener::bind(std::slice::from_ref(&address), ListenOptions::default()).unwrap_err();
        assert!(error.to_string().contains("there is no certificate to show"), "{error}");
        let of_clients: TcpAddress = "tcps://127.0.0.1:0?ca=/a.pem".parse().unwrap();
        let options = ListenOptions { tls: Some(serving()), ..ListenOptions::default() };
        let error = Listener::bind(&[of_clients], options).unwrap_err().to_string();
        assert!(error.contains("--tls-client-ca"), "{error}");
        let nowhere = TlsIdentity { certificate: file("none.pem"), ..identity("node") };
        let tls = Some(TlsServing { identity: nowhere, client_authority: None });
        let error =
            Listener::bind(&[address], ListenOptions { tls, ..ListenOptions::default() }).unwrap_err();
        assert!(error.to_string().contains("none.pem"), "{error}");
    }

    #[test]
    fn whoever_does_not_finish_a_handshake_is_hung_up_on() {
        let greeting_time = Duration::from_secs(2);
        let node =
            Node::start(ListenOptions { tls: Some(serving()), greeting_time, ..ListenOptions::default() });
        let client = node.connect(trust()).unwrap();
        // The head of a record that never comes, and a record that is none.
        let mut slow = node.socket(0);
        slow.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        let mut wrong = node.socket(0);
        wrong.write_all(&[&[0x16, 3, 1, 0, 4][..], &[0xff; 4]].concat()).unwrap();
        for socket in [&mut slow, &mut wrong] {
            let began = Instant::now();
            // Hung up on, perhaps after an alert.
            let _ = socket.read_to_end(&mut Vec::new());
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        node.tells("did not greet in time");
        reads(&client);
    }

    #[test]
    fn replies_wait_for_a_slow_reader_and_come_whole() {
        let node = Node::of(serving());
        let client = node.connect(trust()).unwrap();
        let mut endpoint = client.endpoint();
        let count = 400;
        for _ in 0..count {
            let mut batch = Batch::new();
            // Far more than sockets hold.
            batch.read(RemoteAddr::region(64), 128 << 10);
            endpoint.post(batch).map_err(|rejected| rejected.error).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut back = 0;
        let patience = Instant::now() + Duration::from_secs(30);
        while back < count {
            assert!(Instant::now() < patience, "{back} of {count} came back");
            if let Some(completion) = endpoint.poll() {
                completion.result.unwrap();
                back += 1;
            }
        }
        reads(&client);
    }
}
