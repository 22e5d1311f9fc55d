//! One thread's calls: operations become reads, changes and scans of a session, whose answers are
//! checked.

use fpcache_datasets::requests::{Operation, OperationKind, Play};

use super::check::Checks;
use super::store::{Change, Session};
use super::value;

/// A session and the buffers of its calls.
pub(super) struct Thread<'a, S> {
    session: S,
    /// Changes that may be under way.
    in_flight: usize,
    /// What was wrong so far.
    pub(super) checks: Checks,
    /// The loaded keys, ascending.
    loaded: &'a [u64],
    /// The sequence number of the group's first operation; those after follow in steps of the
    /// number of threads.
    pub(super) sequence: u64,
    keys: Vec<u64>,
    changes: Vec<(Change, u64)>,
    values: Vec<u8>,
}

impl<'a, S: Session> Thread<'a, S> {
    /// For changes of `value_bytes` bytes of value each, in a table that was loaded with these
    /// keys.
    pub(super) fn new(session: S, in_flight: usize, value_bytes: usize, loaded: &'a [u64]) -> Self {
        Self {
            session,
            in_flight,
            checks: Checks::new(value_bytes),
            loaded,
            sequence: 0,
            keys: Vec::new(),
            changes: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Reads what the first `most` operations read, and changes nothing.
    pub(super) fn warm_up(&mut self, play: Play<'_>, most: usize) -> anyhow::Result<()> {
        for operation in play.take(most).filter(|operation| operation.kind() == OperationKind::Read) {
            self.session.read(&[operation.key()], |_, _| ())?;
        }
        Ok(())
    }

    /// Waits for the changes under way, which belong to the pass.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let refused = self.session.finish()?;
        self.checks.refused(refused, &[]);
        Ok(())
    }

    /// Executes a group of operations; `step` is the number of threads.
    #[inline]
    pub(super) fn execute(&mut self, operations: &[Operation], step: u64) -> anyhow::Result<()> {
        self.change(operations, step, |operation| match operation {
            Operation::Insert(_) => Some(Change::Insert),
            Operation::Update(_) => Some(Change::Update),
            _ => None,
        })?;
        self.read(operations)?;
        self.change(operations, step, |operation| {
            matches!(operation, Operation::ReadModifyWrite(_)).then_some(Change::Update)
        })?;
        for operation in operations {
            if let Operation::Scan(from, length) = *operation {
                let (session, checks) = (&mut self.session, &mut self.checks);
                let mut scan = checks.scan(from, usize::from(length), self.loaded);
                session.scan(from, usize::from(length), |key, value| scan.record(key, value))?;
                scan.end();
            }
        }
        Ok(())
    }

    #[inline]
    fn read(&mut self, operations: &[Operation]) -> anyhow::Result<()> {
        self.keys.clear();
        for operation in operations {
            if let Operation::Read(key) | Operation::ReadModifyWrite(key) = *operation {
                self.keys.push(key);
            }
        }
        if self.keys.is_empty() {
            return Ok(());
        }
        let (keys, checks) = (&self.keys, &mut self.checks);
        self.session.read(keys, |i, value| checks.read(keys[i], value))
    }

    #[inline]
    fn change(
        &mut self,
        operations: &[Operation],
        step: u64,
        change: impl Fn(&Operation) -> Option<Change>,
    ) -> anyhow::Result<()> {
        self.changes.clear();
        self.values.clear();
        for (at, operation) in (0u64..).zip(operations) {
            let Some(change) = change(operation) else { continue };
            self.changes.push((change, operation.key()));
            let from = self.values.len();
            self.values.resize(from + self.checks.value_bytes(), 0);
            value::write(operation.key(), self.sequence + at * step, &mut self.values[from..]);
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let refused = self.session.change(&self.changes, &self.values)?;
        // With changes under way it may be others that were refused.
        let whose: &[_] = if self.in_flight > 1 { &[] } else { &self.changes };
        self.checks.refused(refused, whose);
        Ok(())
    }
}
