//! A client of all tables, which keeps its handles when these are dropped and made anew.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fpcache_client::{ByteKeys, ClientConfig, ClientError, ErrorKind, RecordToken, TableClient, U64Keys};
use fpcache_eval::history::client::{ClientStore, every_way};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::store::{Answer, Store, outcome_of};
use fpcache_eval::history::{Call, Outcome};
use fpcache_sim::Random;

use super::place::name;
use super::{APART, DEADLINE, KEYS, Log, PATIENCE, TABLES, There, keys};

/// The number of a read among the kinds of calls.
const GET: u64 = 13;

struct Handle {
    store: Box<dyn Store<Token = RecordToken>>,
    /// How often the memory node had lost its memory when the client was last told by it.
    told: u64,
}

impl Handle {
    /// Whether the client knows the memory node that has this memory. One whose socket's end was not
    /// noticed yet would still answer from memory of the one before, as of a killed one; requests are
    /// answered by those alone that live.
    fn is_told(&mut self, lost: u64) -> bool {
        if self.told != lost && self.store.rebuilds().is_some() {
            self.told = lost;
        }
        self.told == lost
    }
}

pub struct Caller {
    number: u32,
    url: String,
    random: Random,
    pub logs: Vec<Log>,
    pub there: There,
    /// Of tables with keys of either kind.
    handles: HashMap<(usize, bool), Handle>,
    written: u64,
    /// Calls that it made while tables came and went, and those of them that were answered.
    pub calls: u64,
    pub answered: u64,
}

fn found(value: Option<u64>) -> Outcome {
    value.map_or(Outcome::Absent, Outcome::Found)
}

impl Caller {
    pub fn new(number: u32, url: String, random: Random, logs: Vec<Log>, there: &There) -> Self {
        let there = There::clone(there);
        Self { number, url, random, logs, there, handles: HashMap::new(), written: 0, calls: 0, answered: 0 }
    }

    fn open<K: NumberedKeys>(&mut self, table: usize, deadline: Duration) -> Option<Handle> {
        let told = self.there.lost.load(Ordering::SeqCst);
        let ways = every_way(ClientConfig::default().with_deadline(deadline), 64 << 10);
        let (_, way) = &ways[self.random.below(ways.len() as u64) as usize];
        let client = TableClient::<K>::connect_with(&self.url, way.clone().with_table(name(table))).ok()?;
        let store = ClientStore::new(client);
        let store = Box::new(if self.random.below(2) == 0 { store.with_reader() } else { store });
        Some(Handle { store, told })
    }

    /// A handle of a table that may be gone by now, or have other keys.
    fn handle(&mut self, table: usize) -> Option<(bool, Handle)> {
        let of_bytes = self.random.below(2) == 0;
        for of_bytes in [of_bytes, !of_bytes] {
            let handle = self.handles.remove(&(table, of_bytes)).or_else(|| match of_bytes {
                true => self.open::<ByteKeys>(table, DEADLINE),
                false => self.open::<U64Keys>(table, DEADLINE),
            });
            if let Some(handle) = handle {
                return Some((of_bytes, handle));
            }
        }
        None
    }

    /// Makes a call to some table; seldom to one of which it knows that it is gone.
    pub fn step(&mut self) {
        let table = self.random.below(TABLES as u64) as usize;
        if !self.there.tables[table].load(Ordering::Relaxed) && self.random.below(8) > 0 {
            return;
        }
        let Some((of_bytes, mut handle)) = self.handle(table) else { return };
        let key = self.random.between(1, KEYS) * APART;
        self.written += 1;
        let value = u64::from(self.number + 1) << 40 | self.written;
        let kind = self.random.below(GET + 1);
        self.calls += 1;
        self.answered += u64::from(call(&mut self.logs[table], (&mut handle, &self.there), kind, key, value));
        // Some are held for long, and others open anew.
        if self.random.below(6) > 0 {
            self.handles.insert((table, of_bytes), handle);
        }
    }

    /// Reads a table that was just dropped by the handles of it, each key until one shows an error:
    /// a handle that knows of the drop is not asked again.
    pub fn read_held(&mut self, table: usize) {
        for of_bytes in [false, true] {
            let Some(handle) = self.handles.get_mut(&(table, of_bytes)) else { continue };
            let log = &mut self.logs[table];
            for key in keys() {
                if !call(log, (handle, &self.there), GET, key, 0) {
                    break;
                }
            }
        }
    }

    /// Reads every key of a table that is there.
    pub fn read_all(&mut self, table: usize) {
        let of_words = self.open::<U64Keys>(table, PATIENCE);
        let handle = of_words.or_else(|| self.open::<ByteKeys>(table, PATIENCE));
        let mut store = handle.expect("it is there").store;
        let log = &mut self.logs[table];
        for key in keys() {
            let open = log.invoke(key, Call::Get);
            let (value, plan) = store.get(key).expect("it is there");
            log.returned(open, found(value), plan);
        }
        let open = log.invoke(0, Call::Scan { limit: 1_000 });
        let (records, plan) = store.scan(0, 1_000).expect("it is there");
        log.scanned(open, records, plan);
    }
}

/// One call, and what came of it; whether it was answered.
fn call(log: &mut Log, (handle, there): (&mut Handle, &There), kind: u64, key: u64, value: u64) -> bool {
    let limit = 1 + (value % 15) as u32;
    let call = match kind {
        0 | 1 => Call::Insert(value),
        2 | 3 => Call::Put(value),
        4 => Call::Update(value),
        5 | 6 => Call::Delete,
        7 => Call::Scan { limit },
        8 => Call::ScanBack { limit },
        9 => Call::Count { end: key + 5 * APART },
        10 => Call::Contains,
        _ => Call::Get,
    };
    let open = log.invoke(key, call);
    // What the memory node loses after this is lost amid the call.
    if !handle.is_told(there.lost.load(Ordering::SeqCst)) {
        log.returned(open, Outcome::Refused, None);
        return false;
    }
    let store = &mut handle.store;
    let done_or = |answer: Answer<bool>, otherwise| {
        answer.map(|(done, plan)| (if done { Outcome::Done } else { otherwise }, plan))
    };
    let answer = match call {
        Call::Insert(_) => done_or(store.insert(key, value), Outcome::Exists),
        Call::Put(_) => store.put(key, value).map(|((), plan)| (Outcome::Done, plan)),
        Call::Update(_) => done_or(store.update(key, value), Outcome::Absent),
        Call::Delete => done_or(store.delete(key), Outcome::Absent),
        Call::Scan { .. } | Call::ScanBack { .. } => {
            let scanned = match call {
                Call::Scan { .. } => store.scan(key, limit),
                _ => store.scan_back(key, limit),
            };
            match scanned {
                Ok((records, plan)) => {
                    log.scanned(open, records, plan);
                    return true;
                }
                Err(error) => Err(error),
            }
        }
        Call::Count { end } => store.count(key, end).map(|(count, plan)| (Outcome::Counted(count), plan)),
        Call::Contains => {
            let there = |is_there| if is_there { Outcome::Exists } else { Outcome::Absent };
            store.contains(key).map(|(is_there, plan)| (there(is_there), plan))
        }
        _ => store.get(key).map(|(value, plan)| (found(value), plan)),
    };
    let is_answered = answer.is_ok();
    let (outcome, plan) = answer.unwrap_or_else(|error| (told(&error), None));
    log.returned(open, outcome, plan);
    is_answered
}

/// What a call without an answer is in a history. No table is damaged, nor is any full.
fn told(error: &ClientError) -> Outcome {
    assert!(error.kind() != ErrorKind::Internal && !error.is_of_refused_change(), "{error}");
    outcome_of(error)
}
