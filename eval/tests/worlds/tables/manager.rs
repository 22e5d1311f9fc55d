//! The one that makes, loads and drops the tables of one name.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use fpcache_client::{
    AsKey, ByteKeys, ClientConfig, ClientError, CreateOptions, ErrorKind, KeyKind, TableClient, Tables,
    U64Keys,
};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::store::outcome_of;
use fpcache_eval::history::{Call, Outcome};
use fpcache_sim::Random;

use super::place::{Place, name};
use super::{Log, PATIENCE, There, keys};

pub struct Manager {
    number: u32,
    pub table: usize,
    url: String,
    random: Random,
    pub log: Log,
    there: There,
    /// Whether no call but its own is under way, nor the memory node's end.
    pub is_alone: bool,
    /// Whether the disk may refuse what it asks for.
    pub may_be_refused: bool,
    /// Whether a drop was refused, so that its table is closed until the next start.
    pub is_closed: bool,
    /// Times that the disk refused something.
    pub refused: u64,
    /// Whether what it makes outlasts the memory node.
    is_durable: bool,
    /// The keys of the table, if there is one.
    pub kind: Option<KeyKind>,
    written: u64,
    pub made: u64,
    pub dropped: u64,
    pub loaded: u64,
}

impl Manager {
    pub fn new(number: u32, table: usize, place: &Place, random: Random, log: Log, there: &There) -> Self {
        let there = There::clone(there);
        Self {
            number,
            table,
            url: place.url(),
            random,
            log,
            there,
            is_alone: false,
            may_be_refused: false,
            is_closed: false,
            refused: 0,
            is_durable: place.is_durable(),
            kind: None,
            written: 0,
            made: 0,
            dropped: 0,
            loaded: 0,
        }
    }

    fn config() -> ClientConfig {
        ClientConfig::default().with_deadline(PATIENCE)
    }

    /// Its own connection each time: others hold theirs.
    fn tables(&self) -> Tables {
        for _ in 0..1_000 {
            if let Ok(tables) = Tables::connect_with(&self.url, Self::config()) {
                return tables;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the memory node lets nobody in");
    }

    /// Makes, loads or drops its table; whether it asked for a drop.
    pub fn step(&mut self) -> bool {
        match (self.kind, self.random.below(5)) {
            (None, _) => self.make(),
            (Some(KeyKind::U64), 0..2) => self.load::<U64Keys>(),
            (Some(_), 0..2) => self.load::<ByteKeys>(),
            (Some(_), _) => {
                self.drop_table();
                return true;
            }
        }
        false
    }

    /// Makes the table anew after some of its drops.
    pub fn make_anew(&mut self) {
        if self.kind.is_none() && self.random.below(3) == 0 {
            self.make();
        }
    }

    fn know(&mut self, kind: Option<KeyKind>) {
        self.kind = kind;
        self.there.tables[self.table].store(kind.is_some(), Ordering::Relaxed);
    }

    /// Learns after an end which table was `found`: the one that it made and did not drop, or none
    /// where tables end with the memory node.
    pub fn compare(&mut self, found: Option<KeyKind>) {
        let may_be_gone = !self.is_durable && found.is_none();
        let Self { table, kind, .. } = *self;
        assert!(
            found == kind || may_be_gone,
            "of table {table} there is {found:?}, and what was made of it and not dropped is {kind:?}"
        );
        self.is_closed = false;
        self.know(found);
    }

    /// Asks what there is after a request that failed, which only an end or the disk explains.
    fn resolve(&mut self, error: &ClientError) {
        if self.may_be_refused && error.kind() == ErrorKind::Setup {
            self.refused += 1;
            let found = self.tables().find(&name(self.table)).expect("it is up");
            return self.know(found.map(|table| table.kind));
        }
        assert!(!self.is_alone, "table {}: {error}", self.table);
        let is_gone = matches!(error, ClientError::NoSuchTable { .. }) && !self.is_durable;
        let has_ended = error.may_have_taken_effect() || error.is_unavailable();
        assert!(is_gone || has_ended, "table {}: {error}", self.table);
        for _ in 0..1_000 {
            if let Ok(found) = self.tables().find(&name(self.table)) {
                return self.know(found.map(|table| table.kind));
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the memory node does not say what tables there are");
    }

    fn make(&mut self) {
        let kind = [KeyKind::U64, KeyKind::Bytes][self.random.below(2) as usize];
        let region_bytes = [None, None, Some(1 << 20)][self.random.below(3) as usize];
        let options = CreateOptions::default().with_region_bytes(region_bytes);
        match self.tables().create(&name(self.table), kind, options) {
            Ok(()) => self.know(Some(kind)),
            Err(error) => self.resolve(&error),
        }
        self.made += u64::from(self.kind.is_some());
        if self.random.below(2) == 0 {
            match self.kind {
                Some(KeyKind::U64) => self.load::<U64Keys>(),
                Some(_) => self.load::<ByteKeys>(),
                None => {}
            }
        }
    }

    fn drop_table(&mut self) {
        let clears: Vec<_> = keys().map(|key| self.log.invoke(key, Call::Clear)).collect();
        let dropped = self.tables().drop_table(&name(self.table));
        match dropped {
            Ok(()) => self.know(None),
            Err(error) => self.resolve(&error),
        }
        self.is_closed = self.kind.is_some();
        // No other drops it or makes it anew: what there is says what was done.
        let outcome = if self.kind.is_none() { Outcome::Done } else { Outcome::Refused };
        self.dropped += u64::from(self.kind.is_none());
        clears.into_iter().for_each(|clear| self.log.returned(clear, outcome, None));
    }

    fn load<K: NumberedKeys<Owned: AsKey<K>>>(&mut self) {
        let config = Self::config().with_table(name(self.table));
        let client = match TableClient::<K>::connect_with(&self.url, config) {
            Ok(client) => client,
            Err(error) => {
                assert!(!self.is_alone, "table {}: {error}", self.table);
                return;
            }
        };
        let first = self.random.below(4) as usize;
        let records: Vec<(u64, u64)> = keys()
            .skip(first)
            .map(|key| {
                self.written += 1;
                (key, u64::from(self.number + 1) << 40 | self.written)
            })
            .collect();
        let puts = records.iter().map(|(key, value)| self.log.invoke(*key, Call::Put(*value)));
        let puts: Vec<_> = puts.collect();
        let outcome = match client.load(K::small_segments(), 0) {
            // A writer's first record was faster, or the table has long been there.
            Err(error) => outcome_of(&error),
            Ok(mut load) => {
                let mut bytes = Vec::new();
                let pushed = records.iter().try_for_each(|(key, value)| {
                    ClientStore::<K>::encode(*value, &mut bytes);
                    load.push(K::key(*key), &bytes)
                });
                let loaded = pushed.and_then(|()| load.finish());
                loaded.map_or_else(|error| outcome_of(&error), |_| Outcome::Done)
            }
        };
        self.loaded += u64::from(outcome == Outcome::Done);
        puts.into_iter().for_each(|put| self.log.returned(put, outcome, None));
    }
}
