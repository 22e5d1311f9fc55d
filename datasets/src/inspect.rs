//! Statistics of a data set: counts, range, duplicates, and the number of segments it needs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use fpcache_index::count_segments;

use crate::error::DatasetError;
use crate::options::OpenOptions;
use crate::spec::Spec;

/// Keys per chunk handed to the counters.
const CHUNK: usize = 1 << 16;
/// Chunks a slow counter may be after.
const AHEAD: usize = 4;

/// What [`inspect`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(serde::Serialize))]
pub struct Inspection {
    /// Keys, duplicates counted.
    pub keys: u64,
    /// Distinct keys.
    pub distinct: u64,
    /// Most occurrences of one key.
    pub most_equal: u64,
    /// Smallest key.
    pub min: u64,
    /// Greatest key.
    pub max: u64,
    /// As [`Source::as_str`](crate::Source::as_str).
    pub source: &'static str,
    /// Bytes of a key on disk.
    pub key_bytes: usize,
    /// For each ε asked for, the least number of lines that give every distinct key's rank among
    /// the distinct keys within ε, however many keys a line covers.
    #[cfg_attr(feature = "cli", serde(serialize_with = "by_epsilon"))]
    pub segments: Vec<(u32, u64)>,
    /// Things to announce.
    pub notes: Vec<String>,
}

/// Reads or generates the keys once, in chunks, and counts; each ε is counted by a thread of its
/// own.
///
/// # Errors
/// [`DatasetError`] of any kind but `Duplicates`: those are counted.
pub fn inspect(spec: &Spec, epsilons: &[u32], options: &OpenOptions<'_>) -> Result<Inspection, DatasetError> {
    let mut stream = spec.stream(&OpenOptions { duplicates: None, ..options.clone() })?;
    if let Some(progress) = options.progress {
        progress.begin("inspecting", stream.total());
    }
    let mut found = Inspection {
        keys: 0,
        distinct: 0,
        most_equal: 0,
        min: 0,
        max: 0,
        source: stream.source().as_str(),
        key_bytes: stream.key_bytes(),
        segments: Vec::new(),
        notes: stream.notes().to_vec(),
    };
    let counted = thread::scope(|scope| {
        let (senders, counters): (Vec<_>, Vec<_>) = epsilons
            .iter()
            .map(|&epsilon| {
                let (sender, receiver) = sync_channel(AHEAD);
                (sender, scope.spawn(move || (epsilon, count(receiver, epsilon))))
            })
            .unzip();
        let mut equal = 0;
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            if stream.fill(&mut chunk, CHUNK)? == 0 {
                break;
            }
            found.keys += chunk.len() as u64;
            chunk.retain(|&key| tally(&mut found, &mut equal, key));
            hand_out(&senders, chunk);
            if let Some(progress) = options.progress {
                progress.advance(found.keys);
            }
        }
        drop(senders);
        Ok(counters.into_iter().map(|counter| counter.join().expect("counting does not panic")).collect())
    });
    if let Some(progress) = options.progress {
        progress.end();
    }
    found.segments = counted?;
    Ok(found)
}

/// Takes note of a key and tells whether it is new.
fn tally(found: &mut Inspection, equal: &mut u64, key: u64) -> bool {
    let new = found.distinct == 0 || key != found.max;
    if found.distinct == 0 {
        found.min = key;
    }
    found.max = key;
    found.distinct += u64::from(new);
    *equal = if new { 1 } else { *equal + 1 };
    found.most_equal = found.most_equal.max(*equal);
    new
}

fn hand_out(senders: &[SyncSender<Arc<Vec<u64>>>], chunk: Vec<u64>) {
    let chunk = Arc::new(chunk);
    for sender in senders {
        // A counter hangs up only by panicking, which joining it reports.
        let _ = sender.send(Arc::clone(&chunk));
    }
}

fn count(chunks: Receiver<Arc<Vec<u64>>>, epsilon: u32) -> u64 {
    let keys = chunks.into_iter().flat_map(|chunk| (0..chunk.len()).map(move |i| chunk[i]));
    count_segments(keys, epsilon).expect("streams are ascending and equal keys were dropped")
}

/// Counts of segments as JSON has them: a member for each ε, in the order asked for.
#[cfg(feature = "cli")]
pub(crate) fn by_epsilon<S: serde::Serializer>(
    segments: &[(u32, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(segments.iter().map(|(epsilon, count)| (epsilon.to_string(), count)))
}
