//! Verification of every answer during the passes.

use super::ledger::Ledger;
use super::store::{Change, Session, Store};
use super::value;

/// Counts answers that were wrong.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    value_bytes: usize,
    scans: u32,
    /// Answers that were wrong.
    pub wrong: u64,
    /// The first one, in words.
    pub first: Option<String>,
}

impl Checks {
    /// Nothing wrong yet, for values of a size.
    pub fn new(value_bytes: usize) -> Self {
        Self { value_bytes, ..Self::default() }
    }

    /// Bytes of a value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Adds what another thread found.
    pub fn add(&mut self, other: Self) {
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }

    #[cold]
    fn wrong(&mut self, times: u64, what: impl FnOnce() -> String) {
        self.wrong += times;
        self.first.get_or_insert_with(what);
    }

    /// The answer to a read of a key that is there.
    #[inline]
    pub fn read(&mut self, key: u64, value: Option<&[u8]>) {
        match value {
            None => self.wrong(1, || format!("key {key} is there and was not found")),
            Some(value) => self.value(key, value),
        }
    }

    #[inline]
    fn value(&mut self, key: u64, value: &[u8]) {
        if value.len() != self.value_bytes || value::sequence(key, value).is_none() {
            let bytes = value.len();
            self.wrong(1, || {
                format!("key {key}: its value ({bytes} bytes) is not one that was written to it")
            });
        }
    }

    /// Changes of which `refused` were refused; none are given if it is not known which they were.
    #[inline]
    pub fn refused(&mut self, refused: u64, changes: &[(Change, u64)]) {
        if refused > 0 {
            self.wrong(refused, || match *changes {
                [(Change::Insert, key)] => format!("insert of key {key}: refused, but no record was there"),
                [(Change::Update, key)] => format!("update of key {key}: refused, but a record was there"),
                [] => format!("{refused} changes were refused, but all could be made"),
                _ => format!("{refused} of {} changes were refused, but all could be made", changes.len()),
            });
        }
    }

    /// A scan of up to `limit` records from a key that is there, of a table into which these
    /// ascending keys were loaded. One scan in sixteen is held against all of them: finding the
    /// first one takes as long as some lookups.
    pub fn scan<'a>(&'a mut self, from: u64, limit: usize, loaded: &'a [u64]) -> Scan<'a> {
        let is_compared = self.scans.is_multiple_of(COMPARED_EVERY);
        self.scans = self.scans.wrapping_add(1);
        let missing = is_compared.then(|| &loaded[loaded.partition_point(|key| *key < from)..]);
        let greatest = loaded.last().copied();
        Scan { checks: self, from, limit, greatest, missing, count: 0, last: None, is_wrong: false }
    }
}

/// Scans from one that is compared with the loaded keys to the next.
const COMPARED_EVERY: u32 = 16;

/// A scan under way.
#[derive(Debug)]
pub struct Scan<'a> {
    checks: &'a mut Checks,
    from: u64,
    limit: usize,
    /// The greatest key that was loaded: a scan that ends below it must be full.
    greatest: Option<u64>,
    /// The loaded keys that have not come yet, if they are looked at.
    missing: Option<&'a [u64]>,
    count: usize,
    last: Option<u64>,
    is_wrong: bool,
}

impl Scan<'_> {
    /// The next record.
    #[inline]
    pub fn record(&mut self, key: u64, value: &[u8]) {
        let in_order = match self.last {
            None => key == self.from,
            Some(last) => key > last,
        };
        self.is_wrong |= !in_order;
        if let Some(missing) = &mut self.missing
            && let Some((&next, rest)) = missing.split_first()
            && next <= key
        {
            // A loaded key below this one was left out.
            self.is_wrong |= next < key;
            *missing = rest;
        }
        self.count += 1;
        self.last = Some(key);
        self.checks.value(key, value);
    }

    /// There are no more.
    pub fn end(self) {
        let Self { checks, from, limit, greatest, count, last, is_wrong, .. } = self;
        let is_short = count < limit && last < greatest;
        if is_wrong || is_short || count == 0 || count > limit {
            checks.wrong(1, || {
                let what = if is_wrong { "out of order or with gaps" } else { "not as many as there are" };
                format!("scan of {limit} records from key {from}: {count} records, {what}")
            });
        }
    }
}

/// Reads everything that must be there in the end, and compares it with what was written to it;
/// `keys` ascend.
///
/// # Errors
/// If the store fails.
pub fn everything<S: Store>(
    store: &S,
    keys: &[u64],
    ledger: &Ledger,
    value_bytes: usize,
) -> anyhow::Result<Checks> {
    const GROUP: usize = 64;
    let mut session = store.session(1)?;
    let mut checks = Checks::new(value_bytes);
    let mut along = ledger.along();
    for group in keys.chunks(GROUP) {
        session.read(group, |i, value| {
            let key = group[i];
            let before = checks.wrong;
            checks.read(key, value);
            let found = value.and_then(|value| value::sequence(key, value));
            // A value that is wrong in itself was counted already.
            if let Some(sequence) = found.filter(|_| checks.wrong == before)
                && !along.allows(key, sequence, value_bytes)
            {
                checks.wrong(1, || {
                    format!("key {key} ended with write {sequence}, which was not its last one")
                });
            }
        })?;
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(key: u64) -> [u8; 16] {
        let mut value = [0; 16];
        value::write(key, 3, &mut value);
        value
    }

    #[test]
    fn missing_foreign_and_short_values_are_wrong() {
        let mut checks = Checks::new(16);
        checks.read(1, Some(&value_of(1)));
        assert_eq!(checks.wrong, 0);
        checks.read(1, None);
        checks.read(1, Some(&value_of(2)));
        checks.read(1, Some(&value_of(1)[..8]));
        checks.refused(2, &[(Change::Insert, 4), (Change::Update, 5)]);
        assert_eq!(checks.wrong, 5);
        assert!(checks.first.unwrap().contains("key 1"));
    }

    #[test]
    fn scans_begin_at_their_key_ascend_without_gaps_and_are_full_unless_the_end_is_reached() {
        let wrong = |from, limit, keys: &[u64]| {
            let loaded = [5, 9, 50, 100];
            let mut checks = Checks::new(16);
            let mut scan = checks.scan(from, limit, &loaded);
            keys.iter().for_each(|&key| scan.record(key, &value_of(key)));
            scan.end();
            checks.wrong > 0
        };
        assert!(!wrong(5, 3, &[5, 6, 9]));
        assert!(!wrong(99, 9, &[99, 100]) && !wrong(99, 9, &[99, 100, 101]));
        assert!(wrong(5, 3, &[5, 6, 50]) && wrong(5, 3, &[5, 50, 60]) && !wrong(6, 3, &[6, 9, 50]));
        assert!(wrong(5, 3, &[6, 7, 9]) && wrong(5, 3, &[5, 9, 6]) && wrong(5, 3, &[5, 5, 6]));
        assert!(wrong(5, 3, &[5, 6]) && wrong(5, 3, &[]) && wrong(5, 1, &[5, 6]));
    }
}
