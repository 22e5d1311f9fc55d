//! Threads that look up concurrently: their shares of the work, their common start, and the loop
//! that is measured.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use fpcache_client::KeySpace;

use crate::data::DataKeys;
use crate::run::workload::Workload;
use crate::systems::{Reader, System};

/// Lookups a thread does before each timed pass: they bring models and upper levels into the caches
/// again, which another system has used since.
pub const WARM_UP: usize = 100_000;

/// What threads found.
pub(super) struct Threads<T> {
    /// Hits of the hot cache when the threads began, if there is one.
    pub hits_before: Option<u64>,
    /// Of each thread, in order.
    pub parts: Vec<T>,
}

/// The stretches of each thread that has any.
fn shared_out<V>(keys: &[V], threads: usize, stretch: Option<usize>) -> Vec<Vec<&[V]>> {
    let mut of_thread = vec![Vec::new(); threads.max(1)];
    for stretch in keys.chunks(stretch.unwrap_or(keys.len()).max(1)) {
        let mut parts = stretch.chunks(stretch.len().div_ceil(threads.max(1)).max(1));
        // A short stretch has nothing for the last threads, but the same point has the same place
        // in all of them.
        of_thread.iter_mut().for_each(|thread| thread.push(parts.next().unwrap_or_default()));
    }
    of_thread.retain(|stretches| stretches.iter().any(|keys| !keys.is_empty()));
    of_thread
}

/// Keys that a thread looks up one after the other.
pub type Share<'a, 'k, K> = &'a [<K as KeySpace>::View<'k>];

/// Runs `work` in every thread on its stretches of the lookups, all starting together after a
/// warm-up; `work` is told whether its thread is the first. With a cold workload the hot cache is
/// emptied instead of the warm-up.
pub(super) fn in_threads<'a, 'k, S: System, T: Send>(
    system: &S,
    workload: &Workload<'a, 'k, S::Keys>,
    work: impl Fn(&mut S::Reader<'_>, &[Share<'a, 'k, S::Keys>], bool) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Threads<T>> {
    let shares = shared_out(workload.lookups.keys, workload.threads, workload.stretch);
    if workload.cold {
        system.clear_cache();
    }
    let barrier = Barrier::new(shares.len());
    let hits_before: Mutex<anyhow::Result<Option<u64>>> = Mutex::new(Ok(None));
    let run = |stretches: &[Share<'a, 'k, S::Keys>], is_first: bool| {
        let mut reader = system.reader();
        // A thread that failed meets the others all the same: they would wait for it for ever.
        let warmed = warm_up(&mut reader, workload, stretches);
        if barrier.wait().is_leader() {
            let hits = System::cache_stats(system).map(|stats| stats.map(|stats| stats.hits));
            *hits_before.lock().unwrap_or_else(PoisonError::into_inner) = hits;
        }
        barrier.wait();
        warmed?;
        work(&mut reader, stretches, is_first)
    };
    let mut ended: Vec<Mutex<Option<anyhow::Result<T>>>> = Vec::new();
    ended.resize_with(shares.len(), Mutex::default);
    each_in_a_thread(shares.len(), &|at| {
        let result = run(&shares[at], at == 0);
        *ended[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    let mut parts = Vec::with_capacity(ended.len());
    for result in ended {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result = result.context("a measuring thread panicked: please report it").flatten();
        parts.push(result.with_context(|| format!("looking up in {}", System::name(system)))?);
    }
    let hits_before = hits_before.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    Ok(Threads { hits_before, parts })
}

/// Has `work` done for each number below `count`, in a thread each, and waits for all of them, also
/// for those that panic. Not generic: there are as many loops to be measured as systems, kinds of
/// keys and figures, and what starts threads is long.
fn each_in_a_thread(count: usize, work: &(dyn Fn(usize) + Sync)) {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|at| scope.spawn(move || work(at))).collect();
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
}

/// Looks up the first [`WARM_UP`] of the keys that are to warm a pass up, which are its own unless
/// the workload has others; nothing where it is to be cold.
pub fn warm_up<'a, 'k, K: DataKeys>(
    reader: &mut impl Reader<K>,
    workload: &Workload<'a, 'k, K>,
    own: &[Share<'a, 'k, K>],
) -> anyhow::Result<()> {
    if workload.cold {
        return Ok(());
    }
    let batch = workload.batch;
    let stretches = if workload.warm_up.is_some() { workload.warm_up.as_slice() } else { own };
    let mut left = WARM_UP;
    for keys in stretches {
        let now = keys.len().min(left);
        look_up(reader, &keys[..now], batch)?;
        left -= now;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// The measured loop: nothing but lookups.
#[inline]
pub(super) fn look_up<K: DataKeys>(
    reader: &mut impl Reader<K>,
    keys: &[K::View<'_>],
    batch: usize,
) -> anyhow::Result<()> {
    if batch == 1 {
        for &key in keys {
            black_box(reader.get(key)?);
        }
    } else {
        for group in keys.chunks(batch) {
            reader.get_many(group)?;
            for i in 0..group.len() {
                black_box(reader.answer(i));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_shared_out_whole_and_in_order() {
        let keys: Vec<u64> = (0..1_003).collect();
        for (threads, stretch) in [(1, None), (3, None), (4, Some(10)), (7, Some(3)), (2_000, Some(100))] {
            let shares = shared_out(&keys, threads, stretch);
            assert!(shares.len() <= threads);
            let mut all: Vec<u64> = shares.iter().flatten().flat_map(|keys| keys.iter().copied()).collect();
            all.sort_unstable();
            assert_eq!(all, keys, "{threads} {stretch:?}");
            assert!(shares.iter().flatten().all(|share| share.is_sorted()));
        }
    }
}
