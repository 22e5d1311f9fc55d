//! Reads by the order of keys: scans, counts and neighbours.

use std::any::Any;
use std::borrow::Borrow;
use std::ops::{Bound, Range};

use fpcache_client::{ByteClient, ByteKeys, ByteReader, ClientError, KeyRef, Record};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, Open, Outcome, UNSEEN};

use super::{Caller, failed, lock};

/// The records that a scan returned, as numbers.
type Scanned = Result<Vec<(u64, u64)>, ClientError>;

/// Calls the reader's method if there is a reader, else the client's.
macro_rules! by {
    ($caller:ident.$method:ident($($argument:expr),*)) => {
        match &mut $caller.reader {
            Some(reader) => reader.$method($($argument),*),
            None => $caller.client.$method($($argument),*),
        }
    };
}

/// What reads keys that are byte strings.
struct OfBytes<'c> {
    client: &'c ByteClient,
    reader: Option<&'c mut ByteReader>,
}

impl<K: NumberedKeys, C: Fn() -> u64> Caller<K, C> {
    /// A scan from a key on, of what lies between two keys, or of what has a prefix, now and then
    /// of keys alone.
    pub(super) fn scan(&mut self, is_down: bool) {
        let (one, other) = (self.key(), self.key());
        let limit = self.process.random.between(1, 40) as u32;
        let range = |keys: Range<u64>| (keys.start, Call::ScanRange { end: keys.end, limit, is_down });
        let form = self.process.random.below(4);
        if form == 0
            && let Some((prefix, keys)) = self.prefix(one)
        {
            let (key, call) = range(keys);
            let open = lock(&self.log).invoke(key, call);
            let scanned = self.with_prefix(&prefix, limit as usize, is_down);
            return self.scanned(open, scanned);
        }
        let (key, call) = match form {
            0 => range(one..u64::MAX),
            // Now and then it has no keys.
            1 => range(one..other),
            _ if is_down => (one, Call::ScanBack { limit }),
            _ => (one, Call::Scan { limit }),
        };
        let keys_alone = self.process.random.below(3) == 0;
        let open = lock(&self.log).invoke(key, call);
        let scanned = if keys_alone { self.keys_of(key, call) } else { self.records_of(key, call) };
        self.scanned(open, scanned);
    }

    /// Scans everything.
    pub(super) fn scan_all(&mut self) {
        let call = Call::Scan { limit: u32::MAX };
        let open = lock(&self.log).invoke(0, call);
        let scanned = self.records_of(0, call);
        self.scanned(open, scanned);
    }

    fn records_of(&mut self, key: u64, call: Call) -> Scanned {
        let (limit, end) = limit_and_end(call);
        let (from, to) = (K::key(key), K::key(end));
        let (from, to) = (KeyRef::<K>(from.borrow()), KeyRef::<K>(to.borrow()));
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push(seen::<K>(key.borrow(), value));
        match call {
            Call::Scan { .. } => by!(self.scan_with(from, limit, take)),
            Call::ScanBack { .. } => by!(self.scan_back_with(from, limit, take)),
            Call::ScanRange { is_down: false, .. } => by!(self.scan_range(from, to, limit, take)),
            _ if end == u64::MAX => by!(self.scan_back_to(from, limit, take)),
            _ => by!(self.scan_range_back(from, to, limit, take)),
        }?;
        Ok(records)
    }

    fn keys_of(&mut self, key: u64, call: Call) -> Scanned {
        let (limit, end) = limit_and_end(call);
        let numbers = [key, end, key.saturating_sub(1), end.saturating_sub(1)];
        let keys = numbers.map(K::key);
        let [from, to, before, last] = keys.each_ref().map(|key| KeyRef::<K>(key.borrow()));
        let keys = match call {
            Call::Scan { .. } => by!(self.scan_keys(from, limit)),
            Call::ScanBack { .. } => by!(self.scan_keys_back(..=from, limit)),
            Call::ScanRange { is_down: false, .. } => by!(self.scan_range_keys(from, to, limit)),
            _ if end == u64::MAX => by!(self.scan_keys_back(from.., limit)),
            _ if limit.is_multiple_of(2) => by!(self.scan_keys_back(from..to, limit)),
            _ => by!(self.scan_keys_back((Bound::Excluded(before), Bound::Included(last)), limit)),
        }?;
        Ok(keys.iter().map(|key| (K::number(key.borrow()), UNSEEN)).collect())
    }

    /// A prefix of a number's key, with the numbers of the keys that have it, where keys have any.
    fn prefix(&mut self, number: u64) -> Option<(Vec<u8>, Range<u64>)> {
        let mut prefixes = K::prefixes(number);
        let count = prefixes.len() as u64;
        (count > 0).then(|| prefixes.swap_remove(self.process.random.below(count) as usize))
    }

    fn of_bytes(&mut self) -> OfBytes<'_> {
        let reader = self.reader.as_mut().map(|reader| reader as &mut dyn Any);
        let client = (&self.client as &dyn Any).downcast_ref();
        OfBytes {
            client: client.expect("other keys have no prefixes"),
            reader: reader.and_then(|reader| reader.downcast_mut()),
        }
    }

    fn with_prefix(&mut self, prefix: &[u8], limit: usize, is_down: bool) -> Scanned {
        let mut of_bytes = self.of_bytes();
        let mut records = Vec::new();
        let take = |key: &[u8], value: &[u8]| records.push(seen::<ByteKeys>(key, value));
        match is_down {
            false => by!(of_bytes.scan_prefix(prefix, limit, take)),
            true => by!(of_bytes.scan_prefix_back(prefix, limit, take)),
        }?;
        Ok(records)
    }

    fn scanned(&self, open: Open, scanned: Scanned) {
        match scanned {
            Ok(records) => lock(&self.log).scanned(open, records, None),
            Err(error) => drop(failed(&error)),
        }
    }

    /// A count up to a key, without an end, or of what has a prefix.
    pub(super) fn count(&mut self) {
        let (one, other) = (self.key(), self.key());
        let form = self.process.random.below(4);
        let prefix = if form == 0 { self.prefix(one) } else { None };
        let (key, end) = match &prefix {
            Some((_, keys)) => (keys.start, keys.end),
            None if form == 1 => (one, u64::MAX),
            None => (one.min(other), one.max(other)),
        };
        let (from, to) = (K::key(key), K::key(end));
        let (from, to) = (KeyRef::<K>(from.borrow()), KeyRef::<K>(to.borrow()));
        let open = lock(&self.log).invoke(key, Call::Count { end });
        let counted = match prefix {
            Some((prefix, _)) => {
                let mut of_bytes = self.of_bytes();
                by!(of_bytes.count_prefix(&prefix))
            }
            None if end == u64::MAX => by!(self.count_from(from)),
            None => by!(self.count(from, to)),
        };
        let outcome = counted.map_or_else(|error| failed(&error), Outcome::Counted);
        lock(&self.log).returned(open, outcome, None);
    }

    /// Floors or ceilings, or the table's last record or its first.
    pub(super) fn nearest(&mut self) {
        let call = [Call::Floor, Call::Ceiling][self.process.random.below(2) as usize];
        let count = if self.process.random.below(3) == 0 { self.process.random.between(2, 4) } else { 1 };
        let is_of_all = count == 1 && self.process.random.below(4) == 0;
        // Beside the keys that there are as often as on them.
        let numbers: Vec<u64> = (0..count)
            .map(|_| match (self.key(), self.process.random.below(2)) {
                _ if is_of_all => {
                    if call == Call::Floor {
                        u64::MAX
                    } else {
                        0
                    }
                }
                (key, 0) if call == Call::Floor => key + 1,
                (key, 0) => key.saturating_sub(1),
                (key, _) => key,
            })
            .collect();
        let open: Vec<_> = numbers.iter().map(|key| lock(&self.log).invoke(*key, call)).collect();
        let owned: Vec<K::Owned> = numbers.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = owned.iter().map(|key| KeyRef(key.borrow())).collect();
        let found = match (call, &keys[..]) {
            (Call::Floor, [_]) if is_of_all => by!(self.last()).map(|found| vec![found]),
            (Call::Floor, [key]) => by!(self.floor(*key)).map(|found| vec![found]),
            (Call::Floor, keys) => by!(self.multi_floor(keys)),
            (_, [_]) if is_of_all => by!(self.first()).map(|found| vec![found]),
            (_, [key]) => by!(self.ceiling(*key)).map(|found| vec![found]),
            (_, keys) => by!(self.multi_ceiling(keys)),
        };
        match found {
            Ok(found) => {
                for (open, record) in open.into_iter().zip(found) {
                    let record = record.map(|(key, value): Record<K>| seen::<K>(key.borrow(), &value));
                    lock(&self.log).scanned(open, record, None);
                }
            }
            Err(error) => drop(failed(&error)),
        }
    }
}

/// The most records that a scan may return, and the first key that is not asked for.
fn limit_and_end(call: Call) -> (usize, u64) {
    match call {
        Call::Scan { limit } | Call::ScanBack { limit } => (limit as usize, u64::MAX),
        Call::ScanRange { limit, end, .. } => (limit as usize, end),
        _ => (0, 0),
    }
}

fn seen<K: NumberedKeys>(key: &K::Key, value: &[u8]) -> (u64, u64) {
    (K::number(key), ClientStore::<K>::decode(value))
}
