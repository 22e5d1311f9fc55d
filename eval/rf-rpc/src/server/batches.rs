//! Batches as they lie in memory: requests that are read, results that are sealed.

use fpcache_fabric::NodeMemory;

use super::slot::LongResult;
use crate::layout::{ENTRY_MAX, HEAD, Head, Shape, push_entry, push_long};

/// A request batch as it lies there, if it is whole. `first` is its first word.
pub(super) fn read_request<M: NodeMemory>(
    memory: &M,
    at: u64,
    shape: Shape,
    key: u64,
    first: u64,
) -> Option<(Head, Vec<u8>)> {
    let head = Head::of([first, memory.load_relaxed(at + 8).ok()?])?;
    let len = head.bytes as usize;
    if len > shape.capacity() {
        return None;
    }
    let tail = at + HEAD as u64 + (len as u64).next_multiple_of(8);
    if memory.load_acquire(tail).ok()? != first {
        return None;
    }
    let checksum = memory.load_relaxed(at + 16).ok()?;
    let mut payload = vec![0; len];
    memory.read_bytes(at + HEAD as u64, &mut payload).ok()?;
    (head.checksum(key, &payload) == checksum).then_some((head, payload))
}

/// What all result batches of a call have in common.
#[derive(Clone, Copy)]
pub(super) struct Sealed {
    pub(super) key: u64,
    pub(super) sequence: u32,
    pub(super) time: u16,
    pub(super) outcome: u8,
}

impl Sealed {
    pub(super) fn encode(&self, payload: &[u8], entries: u16, number: u16, last: bool, out: &mut Vec<u8>) {
        let kind = Head::of_result(last, self.outcome);
        // Results together are shorter than 31 bits count.
        let bytes = payload.len() as u32;
        let Self { key, sequence, time, .. } = *self;
        Head { bytes, sequence, auxiliary: time, entries, number, kind }.encode(key, payload, out);
    }

    /// All results as one batch.
    pub(super) fn whole(&self, results: &[&[u8]], out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        results.iter().for_each(|result| push_entry(&mut payload, result));
        self.encode(&payload, results.len() as u16, 0, true, out);
    }

    /// Results in batches of at most `capacity` bytes of payload, and those that are too long for
    /// one.
    pub(super) fn parts(&self, results: &[&[u8]], capacity: usize) -> (Vec<Vec<u8>>, Vec<LongResult>) {
        let (mut batches, mut long) = (Vec::new(), Vec::new());
        let (mut payload, mut entries) = (Vec::new(), 0);
        let mut close = |payload: &mut Vec<u8>, entries: &mut u16, last: bool| {
            let mut batch = Vec::with_capacity(HEAD + payload.len());
            self.encode(payload, *entries, batches.len() as u16, last, &mut batch);
            batches.push(batch);
            payload.clear();
            *entries = 0;
        };
        for (number, result) in results.iter().enumerate() {
            let is_long = result.len() > ENTRY_MAX;
            if payload.len() + 4 + if is_long { 8 } else { result.len() } > capacity {
                close(&mut payload, &mut entries, false);
            }
            if is_long {
                push_long(&mut payload, result.len() as u64);
                long.push((number as u16, result.to_vec()));
            } else {
                push_entry(&mut payload, result);
            }
            entries += 1;
        }
        close(&mut payload, &mut entries, true);
        (batches, long)
    }
}
