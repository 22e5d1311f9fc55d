//! Questions about a region over sockets: answered by the threads that serve them, or refused,
//! without harm to other clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::suite::TestService;
use fpcache_fabric::shm::PROTOCOL_VERSION;
use fpcache_fabric::tcp::{ConnectOptions, ListenOptions, Listener, TcpConnection, connect};
use fpcache_fabric::{
    ANSWERS, Answered, Answers, Batch, Connection, Endpoint, Export, FabricError, HugePages, Landing,
    OneRegion, RegionName, RemoteAddr, Serving, SharedMemory, ThreadMemory, local,
};

/// Answers with the question's bytes as words, one each; "many" with all the words there are.
#[derive(Debug, Default)]
struct Echo {
    asked: AtomicUsize,
}

impl Answers for Echo {
    fn answer(&self, memory: &mut ThreadMemory, question: &[u8], reply: &mut [u64]) -> Answered {
        self.asked.fetch_add(1, Ordering::Relaxed);
        *memory.of(|| 0u64) += 1;
        if question == b"many" {
            reply.fill(9);
            return Answered { words: usize::MAX, cost: usize::MAX };
        }
        if question == b"dear" {
            std::thread::sleep(std::time::Duration::from_millis(1));
            return Answered { words: 0, cost: 1 << 20 };
        }
        reply.iter_mut().zip(question).for_each(|(word, byte)| *word = u64::from(*byte));
        Answered { words: reply.len().min(question.len()), cost: question.len() }
    }
}

struct Node {
    echo: Option<Arc<Echo>>,
    port: u16,
    connection: TcpConnection,
    _serving: Serving,
}

impl Node {
    fn start(answers: bool) -> Self {
        Self::with_threads(2, answers)
    }

    fn with_threads(io_threads: usize, answers: bool) -> Self {
        let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
        region.store_relaxed(64, 77).unwrap();
        let mut export = Export::new(&region, fd, 1).unwrap().with_watched(0);
        let echo = answers.then(Arc::<Echo>::default);
        if let Some(echo) = &echo {
            export = export.with_answers(Arc::clone(echo) as Arc<dyn Answers>);
        }
        let options = ListenOptions { io_threads, ..ListenOptions::default() };
        let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
        let address = listener.addresses()[0].clone();
        let port = address.to_string().rsplit(':').next().unwrap().parse().unwrap();
        let service = OneRegion::new(RegionName::default(), export, TestService::default());
        let serving = listener.spawn(service).unwrap();
        let connection = connect(&address, ConnectOptions::default()).unwrap();
        Self { echo, port, connection, _serving: serving }
    }

    /// A client's socket, and the bytes of its welcome.
    fn admitted(&self) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let mut hello = b"FPFABTCP".to_vec();
        hello.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        hello.resize(64, 0);
        socket.write_all(&hello).unwrap();
        socket.read_exact(&mut [0; 128]).unwrap();
        socket
    }
}

fn ask(question: &[u8], words: usize) -> (Batch, Landing) {
    let mut batch = Batch::new();
    // What a batch before has left does not show.
    let landing = batch.read(RemoteAddr::region(64), 8);
    batch.clear();
    assert!(!landing.is_empty());
    let landing = batch.ask(question, words);
    (batch, landing)
}

/// The bytes of a question's frame.
fn frame(question: &[u8], sum: u64, words: u32) -> Vec<u8> {
    let mut head = [(8 + question.len() as u32).to_le_bytes(), words.to_le_bytes(), [0; 4], [0; 4]].concat();
    head[10] = 5;
    [&head[..], &sum.to_le_bytes(), question].concat()
}

#[test]
fn questions_are_answered_in_their_turn_among_reads() {
    let node = Node::start(true);
    let mut endpoint = node.connection.endpoint();
    assert!(endpoint.answers());
    for (question, words, expected) in [
        (&b"ab"[..], 4, &[97, 98, 0, 0][..]),
        (b"", 2, &[0, 0]),
        (b"abc", 1, &[97]),
        (b"abc", 0, &[]),
        (b"many", 3, &[9, 9, 9]),
    ] {
        let (mut batch, landing) = ask(question, words);
        endpoint.run(&mut batch).unwrap();
        assert_eq!(batch.words(landing), expected);
    }
    // Long ones, up to the limits.
    let (mut batch, landing) = ask(&[5; 16 << 10], 32 << 10);
    endpoint.run(&mut batch).unwrap();
    assert!(batch.words(landing)[..16 << 10].iter().all(|word| *word == 5));
    assert!(batch.words(landing)[16 << 10..].iter().all(|word| *word == 0));
    for (bytes, words) in [((16 << 10) + 1, 1), (1, (32 << 10) + 1)] {
        let (mut batch, _) = ask(&vec![5; bytes], words);
        assert!(matches!(endpoint.run(&mut batch), Err(FabricError::TooLong { .. })));
    }
    // Many in flight, READs between them.
    let mut landings = Vec::new();
    for which in 0..100u8 {
        let (batch, landing) = ask(&[which; 3], 2);
        let mut read = Batch::new();
        let word = read.read(RemoteAddr::region(64), 8);
        endpoint.post(batch).unwrap();
        endpoint.post(read).unwrap();
        landings.push((which, landing, word));
    }
    for (which, landing, word) in landings {
        let mut next = || loop {
            if let Some(done) = endpoint.poll() {
                done.result.unwrap();
                return done.batch;
            }
        };
        assert_eq!(next().words(landing), [u64::from(which); 2]);
        assert_eq!(next().u64(word), 77);
    }
    assert!(endpoint.answers());
    let counts = endpoint.meter().snapshot();
    assert_eq!(counts.round_trips, 206);
    assert_eq!(counts.reads, 100, "a question is no READ");
    // Those that were run, and the replies to those that were posted.
    assert_eq!(counts.bytes_from, 8 * (2 + 1 + 3 + (16 << 10)) + 100 * 16 + 100 * 8);
}

#[test]
fn where_nobody_answers_that_is_said_once() {
    let node = Node::start(false);
    let mut endpoint = node.connection.endpoint();
    let (mut batch, landing) = ask(b"abc", 3);
    endpoint.run(&mut batch).unwrap();
    assert_eq!(batch.words(landing), [0; 3]);
    assert!(!endpoint.answers() && !node.connection.endpoint().answers());
    let mut word = [0];
    endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap();
    assert_eq!(word, [77], "the connection is as good as before");
    // Over mapped memory questions are not answered.
    let region = Arc::new(SharedMemory::anonymous(4096).unwrap());
    let hub = local::Hub::new(region, local::LocalOptions::default()).unwrap();
    let mut endpoint = hub.connect().unwrap().endpoint();
    let (mut batch, _) = ask(b"abc", 3);
    assert!(!endpoint.answers());
    assert!(matches!(endpoint.run(&mut batch), Err(FabricError::NoSuchArea { .. })));
}

#[test]
fn damaged_questions_are_not_answered_and_those_that_cannot_be_end_the_connection() {
    let node = Node::start(true);
    let mut socket = node.admitted();
    socket.write_all(&frame(b"abc", 1, 3)).unwrap();
    let mut head = [0; 16];
    socket.read_exact(&mut head).unwrap();
    assert_eq!((&head[..4], &head[6..8]), (&[0; 4][..], &[2, 0][..]), "damaged");
    let echo = node.echo.as_ref().unwrap();
    assert_eq!(echo.asked.load(Ordering::Relaxed), 0);
    // A reply longer than any may be; a question longer than any may be; one without its checksum.
    let mut short = frame(b"", 0, 1);
    short[0] = 7;
    for bad in [frame(b"abc", 1, (32 << 10) + 1), frame(&[0; (16 << 10) + 1], 1, 1), short] {
        let mut socket = node.admitted();
        socket.write_all(&bad[..16]).unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "hung up");
    }
    let (mut batch, landing) = ask(b"a", 1);
    node.connection.endpoint().run(&mut batch).unwrap();
    assert_eq!(batch.words(landing), [97]);
}

/// The question was sent with the READ's words for its length, and the memory node hung up: all
/// endpoints of the connection were cut off.
#[test]
fn a_question_among_reads_is_refused_and_the_connection_lives_on() {
    let node = Node::start(true);
    let mut endpoint = node.connection.endpoint();
    let read_first = |batch: &mut Batch| {
        batch.read(RemoteAddr::region(64), 1 << 19);
        batch.ask(b"abc", 1);
    };
    let asked_first = |batch: &mut Batch| {
        batch.ask(b"abc", 1);
        batch.read(RemoteAddr::region(64), 1 << 19);
    };
    for fill in [&read_first as &dyn Fn(&mut Batch), &asked_first] {
        let mut batch = Batch::new();
        fill(&mut batch);
        let refused = endpoint.run(&mut batch);
        assert!(matches!(refused, Err(FabricError::NoSuchArea { area: ANSWERS })), "{refused:?}");
        let mut word = [0];
        endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap();
        assert_eq!(word, [77]);
    }
    assert_eq!(node.echo.as_ref().unwrap().asked.load(Ordering::Relaxed), 0);
}

/// READs count when they are posted; of a question that is not waited for any longer nothing was
/// counted.
#[test]
fn a_question_that_is_given_up_has_cost_its_round_trip() {
    let node = Node::start(true);
    let mut endpoint = node.connection.endpoint();
    let (batch, _) = ask(b"dear", 4);
    endpoint.post(batch).unwrap();
    endpoint.give_up();
    let completion = endpoint.poll().expect("it comes back");
    assert!(matches!(completion.result, Err(FabricError::DeadlinePassed { .. })), "{completion:?}");
    let cost = endpoint.meter().snapshot();
    assert_eq!((cost.round_trips, cost.reads, cost.bytes_to, cost.bytes_from), (1, 0, 4, 0));
}

/// The bytes looked at for a question count, not only its own: others have their turn between two.
#[test]
fn questions_that_cost_much_keep_no_thread_from_others() {
    let node = Node::with_threads(1, true);
    let echo = node.echo.as_ref().unwrap();
    let mut asker = node.admitted();
    let dear = frame(b"dear", xxhash_rust::xxh3::xxh3_64(b"dear"), 0);
    asker.write_all(&dear.repeat(400)).unwrap();
    while echo.asked.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let mut word = [0];
    node.connection.endpoint().read_words(RemoteAddr::region(64), &mut word).unwrap();
    assert_eq!(word, [77]);
    assert!(echo.asked.load(Ordering::Relaxed) < 400, "a READ waited for all questions");
    let mut replies = vec![0; 400 * 16];
    asker.read_exact(&mut replies).unwrap();
}

/// A reply that is shorter than the one before left words of that one after it.
#[test]
fn a_question_that_is_asked_again_shows_nothing_of_the_reply_before() {
    #[derive(Debug, Default)]
    struct Fewer(AtomicUsize);
    impl Answers for Fewer {
        fn answer(&self, _: &mut ThreadMemory, _: &[u8], reply: &mut [u64]) -> Answered {
            reply.fill(9);
            Answered { words: 4 >> self.0.fetch_add(1, Ordering::Relaxed), cost: 0 }
        }
    }
    let (region, fd) = SharedMemory::create_memfd("region", 4096, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap().with_answers(Arc::new(Fewer::default()));
    let address = "tcp://127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&[address], ListenOptions::default()).unwrap();
    let address = listener.addresses()[0].clone();
    let service = OneRegion::new(RegionName::default(), export, TestService::default());
    let _serving = listener.spawn(service).unwrap();
    let connection = connect(&address, ConnectOptions::default()).unwrap();
    let mut endpoint = connection.endpoint();
    let (mut batch, landing) = ask(b"abc", 4);
    for expected in [[9, 9, 9, 9], [9, 9, 0, 0], [9, 0, 0, 0], [0; 4]] {
        endpoint.run(&mut batch).unwrap();
        assert_eq!(batch.words(landing), expected);
    }
    // No READs, and the bytes that there were: of four replies, and of one that is fetched by
    // polling.
    let run = endpoint.meter().snapshot();
    assert_eq!((run.round_trips, run.reads, run.bytes_to, run.bytes_from), (4, 0, 12, 7 * 8));
}
