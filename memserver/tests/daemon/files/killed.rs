//! Daemons that are killed while their log goes on to another file, while a snapshot is written,
//! and while what it replaces is removed: with records so long that all of that happens every
//! second.

use std::collections::BTreeSet;
use std::thread;

use fpcache::layout::{RecordShape, TableParameters};
use fpcache::message::keys::put_record;
use fpcache::message::{ErrorCode, RecordChunk, Refusal};

use super::*;

const VALUE: usize = 60_000;
const WRITERS: u64 = 2;
/// Keys of a writer, and of a request.
const KEYS: u64 = 16;
const AT_ONCE: u64 = 8;

/// The value of a key after the write of this number.
fn value(key: u64, number: u64) -> Vec<u8> {
    let mut value = vec![(key * 31 + number) as u8; VALUE];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// What happens in the folder: a name with this ending appears, or goes.
const EVENTS: [(&str, &str, bool); 4] = [
    ("a log file begins", ".fpl", true),
    ("a snapshot begins", ".tmp", true),
    ("a snapshot is there", ".fps", true),
    ("a log file is removed", ".fpl", false),
];

fn names(place: &Place) -> BTreeSet<String> {
    let entries = fs::read_dir(place.table()).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Whether a name with this ending appears, or goes, before long.
fn happens(place: &Place, ending: &str, appears: bool) -> bool {
    let (patience, mut before) = (Instant::now() + Duration::from_secs(60), names(place));
    loop {
        let now = names(place);
        let (shorter, longer) = if appears { (&before, &now) } else { (&now, &before) };
        if longer.difference(shorter).any(|name| name.ends_with(ending)) {
            return true;
        }
        if Instant::now() > patience {
            return false;
        }
        before = now;
        thread::sleep(Duration::from_micros(100));
    }
}

/// A client that gives each of its keys a new value if that is still what it was, so that nothing
/// done twice goes unnoticed.
struct Writer {
    client: Client,
    first: u64,
    /// By key: the number of the write that is known to be done, and what the record is then.
    done: Vec<(u64, RecordToken)>,
    /// Whether the outcome of the last request is open.
    is_open: bool,
}

impl Writer {
    /// The places of the keys that the last request is about.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.client.requests % (KEYS / AT_ONCE) * AT_ONCE;
        (first..first + AT_ONCE).map(|place| place as usize)
    }

    /// Sends the last request; `None` if the memory node is gone.
    fn send(&mut self, is_again: bool) -> Option<Result<(), Refusal>> {
        let (number, mut batch) = (self.client.requests, WriteBatch::default());
        for place in self.places() {
            let (key, expected) = (self.first + place as u64, self.done[place].1);
            let (kind, value) = (WriteKind::CompareAndSet, value(key, number));
            let value = Sent::Here(&value);
            batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
        }
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        let request = batch.request(self.client.identity, number, is_again);
        request.encode::<U64Keys>(self.client.connection.creation(), &mut bytes);
        let deadline = Deadline::after(Duration::from_secs(20));
        self.is_open = true;
        self.client.connection.call(&bytes, &mut reply, deadline).ok()?;
        Some(decode_reply(&reply).map(|body| {
            for (place, reply) in self.places().zip(body.chunks_exact(WriteReply::BYTES)) {
                let WriteReply { status, token } = WriteReply::decode(reply).unwrap();
                assert_eq!(status, WriteStatus::Done, "key {}, write {number}", self.first + place as u64);
                self.done[place] = (number, token.unwrap());
            }
            self.is_open = false;
        }))
    }

    fn write_until_the_end(&mut self) {
        loop {
            self.client.requests += 1;
            match self.send(false) {
                None => return,
                Some(sent) => sent.unwrap(),
            }
        }
    }

    /// The number of the write that a key's value is of, which must be whole.
    fn found(&self, place: usize) -> (u64, RecordToken) {
        let key = self.first + place as u64;
        let body =
            self.client.call(&Request::Get(AskedKeys { count: 1, bytes: &key.to_le_bytes() })).unwrap();
        let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        assert!(body[0] == 0 && body[16..] == value(key, word(16)), "key {key} is not whole");
        (word(16), RecordToken::from_bits(word(8)))
    }

    /// Goes on with a memory node that has taken the place of another, and has all that was done.
    fn go_on(&mut self, place: &Place, may_forget: bool) {
        self.client.connection = place.client().connection;
        let last = self.client.requests;
        let open: Vec<usize> = if self.is_open { self.places().collect() } else { Vec::new() };
        for place in 0..KEYS as usize {
            let (found, done) = (self.found(place), self.done[place]);
            let is_new = open.contains(&place) && found.0 == last;
            assert!(found == done || is_new, "key {}: {found:?} for {done:?}", self.first + place as u64);
        }
        if self.is_open {
            match self.send(true).unwrap() {
                Ok(()) => open.iter().for_each(|place| assert_eq!(self.found(*place), self.done[*place])),
                // What it did is in the log, its replies are not.
                Err(refusal) => {
                    assert!(may_forget && refusal.code == ErrorCode::Forgotten, "{refusal}");
                    open.iter().for_each(|place| self.done[*place] = self.found(*place));
                }
            }
        }
    }
}

/// A table with the first values of all writers.
fn writers(place: &Place) -> Vec<Writer> {
    let (client, shape) = (place.client(), RecordShape::fixed(8, VALUE as u32));
    let parameters = TableParameters { shape, ..TableParameters::default() };
    client.call(&Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] }).unwrap();
    for first in (0..WRITERS * KEYS).step_by(AT_ONCE as usize) {
        let mut records = Vec::new();
        for key in first..first + AT_ONCE {
            put_record::<U64Keys>(&shape, &key, &Sent::Here(&value(key, 0)), &mut records);
        }
        let chunk = RecordChunk { first, count: AT_ONCE as u32, records: &records };
        client.call(&Request::LoadChunk(1, chunk)).unwrap();
    }
    client.call(&Request::LoadCommit(1)).unwrap();
    let writer = |number: u64| {
        let (client, first) = (place.client(), number * KEYS);
        let mut writer = Writer { client, first, done: Vec::new(), is_open: false };
        writer.done = (0..KEYS as usize).map(|place| writer.found(place)).collect();
        writer
    };
    (0..WRITERS).map(writer).collect()
}

/// Kills it at each event, or a little later.
fn survives_kills(sync: &str, lose: impl Fn(&Place), may_forget: bool) {
    let place = Place::new();
    let options = format!("--capacity 16MiB --fsync {sync}");
    let mut node = place.start(&options);
    let mut writers = writers(&place);
    for (round, (what, ending, appears)) in EVENTS.iter().enumerate() {
        thread::scope(|scope| {
            writers.iter_mut().for_each(|writer| _ = scope.spawn(move || writer.write_until_the_end()));
            let has_happened = happens(&place, ending, *appears);
            thread::sleep(Duration::from_micros(round as u64 * 300));
            // First: writers go on until then.
            node.kill();
            assert!(has_happened, "not within a minute: {what}");
        });
        eprintln!("{sync}: killed after {} requests, when {what}", writers[0].client.requests);
        lose(&place);
        node = place.start(&options);
        writers.iter_mut().for_each(|writer| writer.go_on(&place, may_forget));
    }
    node.end();
}

#[test]
fn a_daemon_killed_amid_its_files_goes_on_with_its_memory() {
    survives_kills("10ms", |_| {}, false);
}

/// What the disk had not yet is in its notes.
#[test]
fn a_daemon_killed_amid_its_files_goes_on_without_its_region() {
    survives_kills("10ms", |place| fs::remove_file(place.table().join("region.fpr")).unwrap(), true);
}

#[test]
fn a_daemon_killed_amid_its_files_goes_on_with_them_alone() {
    survives_kills("always", Place::lose_memory, true);
}
