//! Clients get in by tokens, with the rights that these have.

use std::time::{Duration, Instant};

use crate::common::patient;
use fpcache_client::{
    ByteKeys, Client, ClientError, CreateOptions, ErrorKind, FabricError, KeyKind, Nodes, RefusalCode,
    TableClient, TableParameters, Tables, Token, U64Keys, wait_for_node_with,
};
use fpcache_fabric::Serving;
use fpcache_fabric::tcp::{AccessKeeper, ListenOptions, Listener, Rights, TokenSet};
use fpcache_memserver::{Catalogue, CatalogueConfig};

const DEADLINE: Duration = Duration::from_secs(5);

/// A memory node that lets no client in without a token.
struct Node {
    url: String,
    keeper: AccessKeeper,
    write: Token,
    read: Token,
    _serving: Serving,
}

impl Node {
    fn start() -> Self {
        let (write, read) = (Token::random().unwrap(), Token::random().unwrap());
        let config = CatalogueConfig::of(32 << 20);
        let tokens = TokenSet::default().with(write, Rights::Write).with(read, Rights::Read);
        let options = ListenOptions { tokens, require_token: true, ..ListenOptions::default() };
        let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
        let (url, keeper) = (listener.addresses()[0].to_string(), listener.access_keeper());
        let mut catalogue = Catalogue::open(&config).unwrap();
        catalogue.create("default".parse().unwrap(), KeyKind::U64, None).unwrap();
        Self { url, keeper, write, read, _serving: listener.spawn(catalogue).unwrap() }
    }

    fn client(&self, token: Token) -> Result<Client, ClientError> {
        Client::connect_with(&self.url, patient().with_token(token))
    }
}

/// Whether this was refused because the token is for reading alone, with what to do.
#[track_caller]
fn is_refused<R>(outcome: Result<R, ClientError>) {
    let Err(error) = outcome else { panic!("a reader has changed something") };
    assert!(matches!(&error, ClientError::Refused(r) if r.code == RefusalCode::ReadOnly), "{error}");
    assert_eq!(error.kind(), ErrorKind::Setup);
    let text = error.to_string();
    assert!(text.contains("read, but change nothing") && text.contains("write TOKEN"), "{text}");
}

#[test]
fn readers_read_everything_and_change_nothing() {
    let node = Node::start();
    let (writer, reader) = (node.client(node.write).unwrap(), node.client(node.read).unwrap());
    is_refused(reader.put(1, &1u64.to_le_bytes()));
    for key in 0..500 {
        writer.put(key * 3, &key.to_le_bytes()).unwrap();
    }
    assert_eq!(reader.get(30).unwrap(), Some(10u64.to_le_bytes().to_vec()));
    let keys: Vec<u64> = (0..100).collect();
    assert_eq!(reader.multi_get(&keys).unwrap(), writer.multi_get(&keys).unwrap());
    assert_eq!(reader.count(0, 10_000).unwrap(), 500);
    assert_eq!(reader.scan(0, 7).unwrap(), writer.scan(0, 7).unwrap());
    assert_eq!(reader.floor(31).unwrap(), writer.floor(31).unwrap());
    reader.stats().unwrap();

    is_refused(reader.put(1, &1u64.to_le_bytes()));
    is_refused(reader.insert(1, &1u64.to_le_bytes()));
    is_refused(reader.update(3, &1u64.to_le_bytes()));
    is_refused(reader.delete(3));
    is_refused(reader.load(TableParameters::default(), 0).and_then(|mut load| {
        load.push(1, &1u64.to_le_bytes())?;
        load.finish()
    }));
    assert_eq!(writer.count(0, 10_000).unwrap(), 500);
    assert_eq!(reader.get(30).unwrap(), Some(10u64.to_le_bytes().to_vec()), "it goes on");
    let mut pipeline = reader.pipeline(4).unwrap();
    if pipeline.put(1, &1u64.to_le_bytes()).is_ok() {
        is_refused(pipeline.finish().remove(0).outcome);
    }

    let tables = Tables::connect_with(&node.url, patient().with_token(node.read)).unwrap();
    assert_eq!(tables.list().unwrap().tables.len(), 1);
    is_refused(tables.create(&"other".parse().unwrap(), KeyKind::U64, CreateOptions::default()));
    is_refused(tables.drop_table(&"default".parse().unwrap()));
    let tables = Tables::connect_with(&node.url, patient().with_token(node.write)).unwrap();
    tables.create(&"other".parse().unwrap(), KeyKind::Bytes, CreateOptions::default()).unwrap();
    // What is looked for beside the table is looked for with the token too.
    let config = patient().with_token(node.read);
    let of = |table: &str| config.clone().with_table(table.parse().unwrap());
    let other = TableClient::<U64Keys>::connect_with(&node.url, of("other")).unwrap_err();
    assert!(matches!(other, ClientError::OtherKeys { .. }), "{other}");
    let missing = TableClient::<ByteKeys>::connect_with(&node.url, of("missing")).unwrap_err().to_string();
    assert!(missing.contains("the tables are: `default`, `other`"), "{missing}");
    // One beside it has its own token if it has one.
    let beside = reader.beside(patient().with_token(node.write)).unwrap();
    beside.put(3, &1u64.to_le_bytes()).unwrap();
    let beside = reader.beside(patient()).unwrap();
    is_refused(beside.put(3, &2u64.to_le_bytes()));
    assert_eq!(beside.get(30).unwrap(), Some(10u64.to_le_bytes().to_vec()));
}

#[test]
fn a_wrong_or_missing_token_is_told_with_the_node_and_the_remedy() {
    let node = Node::start();
    let wrong = node.client(Token::random().unwrap()).unwrap_err();
    let missing = Client::connect(&node.url).unwrap_err();
    let tables = Tables::connect(&node.url).unwrap_err();
    for (error, remedy) in
        [(wrong, "--token-file"), (missing, "FPCACHE_TOKEN_FILE"), (tables, "FPCACHE_TOKEN_FILE")]
    {
        let text = error.to_string();
        assert!(matches!(error, ClientError::Fabric(FabricError::TokenRefused { .. })), "{text}");
        assert!(text.contains(&node.url) && text.contains(remedy), "{text}");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Setup, false));
    }
}

#[test]
fn waiting_for_a_node_takes_the_token_that_is_given() {
    let node = Node::start();
    wait_for_node_with(&node.url, patient().with_token(node.read)).unwrap();
    let error = wait_for_node_with(&node.url, patient()).unwrap_err();
    assert!(matches!(error, ClientError::Fabric(FabricError::TokenRefused { .. })), "{error}");
}

/// What a reader sends is short; of what is long the memory node says that it is not the reader's
/// to send.
#[test]
fn a_reader_that_writes_a_long_value_is_refused_too() {
    let node = Node::start();
    let tables = Tables::connect_with(&node.url, patient().with_token(node.write)).unwrap();
    tables.create(&"long".parse().unwrap(), KeyKind::Bytes, CreateOptions::default()).unwrap();
    let config = |token| patient().with_table("long".parse().unwrap()).with_token(token);
    let open = |token| TableClient::<ByteKeys>::connect_with(&node.url, config(token)).unwrap();
    let (writer, reader) = (open(node.write), open(node.read));
    for bytes in [10, 20 << 10, 200 << 10] {
        writer.put(b"a key", &vec![7; bytes]).unwrap();
        assert_eq!(reader.get(b"a key").unwrap().map(|value| value.len()), Some(bytes));
        is_refused(reader.put(b"a key", &vec![8; bytes]));
    }
    let keys: Vec<Vec<u8>> = (0..3000).map(|i: u32| i.to_be_bytes().to_vec()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert!(reader.multi_get(&keys).unwrap().iter().all(Option::is_none));
}

/// Rotation: the new token is added, clients change to it, the old one goes.
#[test]
fn tokens_are_rotated_under_clients_and_no_write_is_lost() {
    let node = Node::start();
    let new = Token::random().unwrap();
    let old_client = node.client(node.write).unwrap();
    old_client.put(1, &1u64.to_le_bytes()).unwrap();
    let both = TokenSet::default().with(node.write, Rights::Write).with(new, Rights::Write);
    node.keeper.replace_tokens(both);
    let new_client = node.client(new).unwrap();
    old_client.put(2, &2u64.to_le_bytes()).unwrap();
    node.keeper.replace_tokens(TokenSet::default().with(new, Rights::Write));
    // The old one is refused from its next connection on, and says so.
    let patience = Instant::now() + DEADLINE;
    let error = loop {
        match old_client.get(1) {
            Err(error) if !error.is_retryable() => break error,
            _ => assert!(Instant::now() < patience, "it is still let in"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(error.to_string().contains("does not know this client's token"), "{error}");
    for key in [1, 2u64] {
        assert_eq!(new_client.get(key).unwrap(), Some(key.to_le_bytes().to_vec()));
    }
}

/// A client over several memory nodes was refused.
#[test]
fn a_client_beside_another_has_its_token() {
    let nodes = [Node::start(), Node::start()];
    let urls = format!("{},{}", nodes[0].url, nodes[1].url);
    // One token gets in at both.
    let mut tokens = TokenSet::default().with(nodes[1].write, Rights::Write);
    tokens = tokens.with(nodes[0].write, Rights::Write);
    nodes[1].keeper.replace_tokens(tokens);
    let config = patient().with_token(nodes[0].write);
    let table = "orders".parse().unwrap();
    let all = Nodes::at_with(&urls, config.clone()).unwrap();
    all.create::<U64Keys>(&table, TableParameters::default(), &[1_000], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&urls, config.clone().with_table(table)).unwrap();
    client.put(1, &[1; 8]).unwrap();
    let beside = client.beside(patient().with_table(table)).unwrap();
    beside.put(2_000, &[2; 8]).unwrap();
    assert_eq!(beside.get(1).unwrap(), Some(vec![1; 8]));
    let one = Client::connect_with(&nodes[0].url, config).unwrap();
    one.beside(patient()).unwrap().put(1, &[1; 8]).unwrap();
}
