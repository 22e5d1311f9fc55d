//! Tables of byte strings refuse what they cannot hold with an error that says what to do, and find
//! nothing where nothing can be; and no client reads a table by another's rules.

use std::fmt::Debug;

use crate::common::{ThreadNode, patient};
use fpcache_client::{
    ByteClient, ByteKeys, Changes, Client, ClientError, ErrorKind, KeyKind, KeyRef, RecordShape, RecordToken,
    TableClient, TableParameters, U64Keys,
};

fn parameters(key_bytes: Option<u16>, value_bytes: Option<u32>, room: u32) -> TableParameters {
    let shape = RecordShape { key_bytes, value_bytes, room };
    TableParameters { shape, ..TableParameters::default() }
}

#[track_caller]
fn says<T: Debug>(result: Result<T, ClientError>, kind: ErrorKind, parts: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

/// Every way to write this record must fail so, and send nothing.
#[track_caller]
fn cannot_be_written(client: &ByteClient, key: &[u8], value: &[u8], parts: &[&str]) {
    let before = client.stats().unwrap().requests;
    let mut pipeline = client.pipeline(1).unwrap();
    let mut changes = Changes::<ByteKeys>::default();
    changes.put("key", b"12345678").put(key, value);
    says(client.insert(key, value), ErrorKind::Invalid, parts);
    says(client.put(key, value), ErrorKind::Invalid, parts);
    says(client.update(key, value), ErrorKind::Invalid, parts);
    says(client.compare_and_set(key, RecordToken::default(), value), ErrorKind::Invalid, parts);
    says(client.apply(&changes, &mut Vec::new()), ErrorKind::Invalid, parts);
    says(pipeline.put(key, value), ErrorKind::Invalid, parts);
    assert!(pipeline.finish().is_empty());
    assert_eq!(client.stats().unwrap().requests, before + 1, "nothing of it was sent");
}

/// Every way to read this key finds nothing.
fn is_absent(client: &ByteClient, key: &[u8]) {
    assert_eq!(client.get(key).unwrap(), None);
    assert!(!client.contains(key).unwrap());
    assert_eq!(client.get_versioned(key).unwrap(), None);
    assert_eq!(client.multi_get(&[key, b"key", key]).unwrap(), [None, Some(b"12345678".to_vec()), None]);
}

#[test]
fn keys_that_no_table_holds_are_absent_and_cannot_be_written() {
    let node = ThreadNode::<ByteKeys>::start(4 << 20);
    let client = node.client();
    client.create(parameters(None, Some(8), 5000)).unwrap();
    client.put("key", b"12345678").unwrap();
    let longest = vec![b'k'; 4096];
    client.put(&longest, b"87654321").unwrap();
    for (key, bytes) in
        [(vec![], "0 bytes"), (vec![b'k'; 4097], "4097 bytes"), (vec![0; 70_000], "70000 bytes")]
    {
        is_absent(&client, &key);
        cannot_be_written(&client, &key, b"12345678", &[bytes, "1 to 4096"]);
        says(client.delete(&key), ErrorKind::Invalid, &[bytes, "1 to 4096"]);
        assert!(client.scan(&key, 10).unwrap().len() <= 2);
    }
    let all = client.scan("", 10).unwrap();
    assert_eq!(all, [(b"key".to_vec(), b"12345678".to_vec()), (longest, b"87654321".to_vec())]);
}

#[test]
fn records_that_do_not_fit_the_slots_are_refused_with_what_would() {
    let node = ThreadNode::<ByteKeys>::start(4 << 20);
    let client = node.client();
    client.create(parameters(None, None, 16)).unwrap();
    client.put("key", b"12345678").unwrap();
    client.put("0123456789abcde", b"f").unwrap();
    client.put("no value", b"").unwrap();
    cannot_be_written(&client, b"0123456789abcde", b"12", &["0123456789abcde", "17 bytes", "room for 16"]);
    cannot_be_written(&client, b"k", &[7; 100_000], &["\"k\"", "100001 bytes", "room for 16"]);
    assert_eq!(client.get("0123456789abcde").unwrap().unwrap(), b"f", "as it was");
    assert_eq!(client.get("no value").unwrap().unwrap(), b"");
    is_absent(&client, &[b'k'; 40]);
    assert!(!client.delete([b'k'; 40]).unwrap());
}

#[test]
fn where_all_lengths_are_the_same_others_are_absent_and_cannot_be_written() {
    let node = ThreadNode::<ByteKeys>::start(4 << 20);
    let client = node.client();
    client.create(parameters(Some(3), Some(8), 11)).unwrap();
    client.put("key", b"12345678").unwrap();
    for key in [&b"ke"[..], b"keys", b"key\0", b"k"] {
        is_absent(&client, key);
        cannot_be_written(&client, key, b"12345678", &[&format!("{} bytes", key.len()), "keys have 3"]);
        assert!(!client.delete(key).unwrap(), "none is there to be removed");
    }
    cannot_be_written(&client, b"kex", b"1234567", &["7 bytes", "values have 8"]);
    assert_eq!(client.scan("", 10).unwrap().len(), 1);
}

#[test]
fn a_load_refuses_what_the_table_cannot_hold() {
    let node = ThreadNode::<ByteKeys>::start(4 << 20);
    let client = node.client();
    let vary = parameters(None, Some(8), 20);
    let mut load = client.load(vary, 0).unwrap();
    load.push("a", b"12345678").unwrap();
    says(load.push("", b"12345678"), ErrorKind::Invalid, &["0 bytes"]);
    says(load.push("b", b"1"), ErrorKind::Invalid, &["1 bytes", "8"]);
    says(load.push("0123456789abc", b"12345678"), ErrorKind::Invalid, &["21 bytes", "room for 20"]);
    drop(load);
    for keys in [["b", "a"], ["a", "a"], ["ab", "a"]] {
        let mut load = client.load(vary, 0).unwrap();
        keys.iter().for_each(|key| load.push(key, b"12345678").unwrap());
        let text = load.finish().unwrap_err().to_string();
        assert!(text.contains("sort"), "{text}");
    }
    for (bad, part) in [
        (parameters(Some(5000), Some(8), 5008), "5000 bytes"),
        (parameters(None, Some(8), 8), "room for 8"),
        (parameters(None, None, 1 << 20), "room for 1048576"),
        (parameters(Some(8), Some(8), 17), "room for 17"),
        (parameters(None, Some(1 << 20), 1 << 20), "1048576 bytes"),
    ] {
        says(client.create(bad), ErrorKind::Invalid, &[part]);
    }
    client.create(vary).unwrap();
}

#[test]
fn nobody_reads_a_table_by_anothers_rules() {
    let bytes = ThreadNode::<ByteKeys>::start(4 << 20);
    let numbers = ThreadNode::<U64Keys>::start(4 << 20);
    // Without parameters their regions do not tell, and these memory nodes have no list of tables
    // that does.
    let wrong = Client::connect(&bytes.directory.url()).unwrap();
    let wrong_too = ByteClient::connect_with(&numbers.directory.url(), patient()).unwrap();
    assert_eq!((wrong.key_kind().unwrap(), wrong_too.key_kind().unwrap()), (None, None));
    says(wrong.create(TableParameters::default()), ErrorKind::Invalid, &["kind u64"]);
    says(wrong_too.create(parameters(None, Some(8), 64)), ErrorKind::Invalid, &["kind bytes"]);

    bytes.client().create(parameters(Some(8), Some(8), 16)).unwrap();
    numbers.client().create(TableParameters::default()).unwrap();
    assert_eq!(wrong.key_kind().unwrap(), Some(KeyKind::Bytes));
    assert_eq!(wrong_too.key_kind().unwrap(), Some(KeyKind::U64));
    let parts = ["`bytes`", "`u64`", "ByteClient", "keys of the kind u64"];
    says(Client::connect(&bytes.directory.url()), ErrorKind::Setup, &parts);
    says(wrong.get(1), ErrorKind::Setup, &parts);
    says(wrong.scan(1, 1), ErrorKind::Setup, &parts);
    says(wrong.put(1, &[0; 8]), ErrorKind::Setup, &parts);
    says(wrong.table(), ErrorKind::Setup, &parts);
    says(wrong.create(TableParameters::default()), ErrorKind::Setup, &parts);
    let parts = ["`bytes`", "`u64`", "Client", "keys of the kind bytes"];
    let opened = ByteClient::connect_with(&numbers.directory.url(), patient());
    says(opened, ErrorKind::Setup, &parts);
    says(wrong_too.get("12345678"), ErrorKind::Setup, &parts);
    says(wrong_too.multi_get(&["12345678"]), ErrorKind::Setup, &parts);
    says(wrong_too.delete("12345678"), ErrorKind::Setup, &parts);
    says(wrong_too.pipeline(1).unwrap().put("12345678", &[0; 8]), ErrorKind::Setup, &parts);
    says(wrong_too.load(parameters(Some(8), Some(8), 16), 0), ErrorKind::Setup, &parts);
    assert_eq!(wrong.stats().unwrap().keys, 0, "what needs no keys is answered");
}

#[test]
fn whatever_is_bytes_can_be_a_key() {
    fn get<K: crate::common::TestKeys>(client: &TableClient<K>, key: &K::Key) -> Option<Vec<u8>> {
        client.get(KeyRef::<K>(key)).unwrap()
    }
    let node = ThreadNode::<ByteKeys>::start(1 << 20);
    let client = node.client();
    client.create(parameters(None, None, 16)).unwrap();
    client.put("key", b"value").unwrap();
    let (text, bytes) = ("key".to_owned(), b"key".to_vec());
    let found = [
        client.get("key"),
        client.get(&text),
        client.get(text),
        client.get(b"key"),
        client.get(&bytes[..]),
        client.get(bytes),
    ];
    for value in found.into_iter().map(Result::unwrap).chain([get(&client, b"key")]) {
        assert_eq!(value.unwrap(), b"value");
    }
}
