//! Looking up one key, the short way.
//!
//! A [`Lookup`] of one key gives the same answer with the same READs. This way there is no batch to fill and no state to
//! keep between rounds, which matters where a round trip is a cache miss: the fewer instructions a lookup takes, the
//! more of the next lookup the processor has begun while this one waits for memory. For the same reason nothing here
//! branches on where in its window a key is. A slot that is being written is left to the general way.

use fpcache_fabric::{Endpoint, REGION, RemoteAddr};
use zerocopy::IntoBytes;

use super::lookup::Lookup;
use super::outcome::Outcome;
use super::scratch::{LookupScratch, SLOT_WORDS};
use super::target::{Target, too_many};
use super::verify::{Verdict, judge, shows};
use super::{Cost, Plan, Planner, ReadError, drive};
use crate::key_space::KeySpace;
use crate::snapshot::Snapshot;

/// Looks up one key and hands the answer, with its value if the key is there, to `take`.
#[inline]
pub fn look_up<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    snapshot: &Snapshot<K>,
    planner: &Planner,
    scratch: &mut LookupScratch<K>,
    key: K::Key,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    let Some(target) = Target::<K>::of(snapshot, key) else {
        return general(endpoint, snapshot, planner, scratch, key, Cost::default(), take);
    };
    let mut outcome = Outcome::begun(planner.choose(target.window.len()));
    let found = match outcome.plan {
        Plan::TwoStage => two_stage(endpoint, snapshot, scratch, &target, &mut outcome)?,
        Plan::Range => range(endpoint, snapshot, scratch, &target, &mut outcome)?,
    };
    match found {
        Found::Answer(value) => Ok(take(&outcome, value)),
        Found::TooLong => general(endpoint, snapshot, planner, scratch, key, Cost::default(), take),
        Found::Unsettled => {
            let spent = Cost { fallbacks: 1, ..outcome.cost };
            general(endpoint, snapshot, &Planner::fixed(Plan::Range), scratch, key, spent, take)
        }
    }
}

/// The general way, with what was `spent` before.
#[cold]
fn general<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    snapshot: &Snapshot<K>,
    planner: &Planner,
    scratch: &mut LookupScratch<K>,
    key: K::Key,
    spent: Cost,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    drive(endpoint, &mut Lookup::new(snapshot, planner, scratch, [key]))?;
    let (outcome, value) = scratch.outcomes().next().ok_or(ReadError::Stale)?;
    let mut outcome = outcome.clone();
    outcome.cost += spent;
    Ok(take(&outcome, value))
}

/// How the short way ended.
enum Found<'a> {
    /// With the value, or none.
    Answer(Option<&'a [u8]>),
    /// The record is being written.
    Unsettled,
    /// Not begun: window or slot do not fit the buffers, or a key is longer than a word.
    TooLong,
}

/// Fingerprints, then the slots of those that match: nearly always one.
#[inline(always)]
fn two_stage<'s, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    snapshot: &Snapshot<K>,
    scratch: &'s mut LookupScratch<K>,
    target: &Target<K>,
    outcome: &mut Outcome,
) -> Result<Found<'s>, ReadError> {
    let geometry = snapshot.geometry();
    let span = geometry.fingerprint_span(target.window);
    let slot_words = geometry.slot_bytes / 8;
    let window = scratch.words.window.get_mut(..span.len / 8);
    let (Some(window), true) = (window, slot_words <= SLOT_WORDS) else { return Ok(Found::TooLong) };
    read(endpoint, target, outcome, span.offset, window)?;
    let fingerprints = &window.as_bytes()[span.skip..][..span.used];
    let hits = scratch.matcher.hits(geometry.width, fingerprints, target.fingerprint(geometry.width));
    if hits.frozen {
        return Err(ReadError::Stale);
    }
    match hits.count {
        0 => return Ok(Found::Answer(None)),
        1 => {}
        _ => return several_candidates(endpoint, snapshot, scratch, target, outcome),
    }
    outcome.cost.round_trips += 1;
    let slot = &mut scratch.words.slot[..slot_words];
    let offset = geometry.slot_offset(target.cap, target.window.first + hits.first);
    read(endpoint, target, outcome, offset, slot)?;
    Ok(match check(snapshot, target, outcome, slot.as_bytes())? {
        Check::Found(value) => Found::Answer(Some(value)),
        Check::Other => Found::Answer(None),
        Check::Unsettled => Found::Unsettled,
    })
}

/// The slots of several matching fingerprints, in one doorbell batch.
#[cold]
fn several_candidates<'s, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    snapshot: &Snapshot<K>,
    scratch: &'s mut LookupScratch<K>,
    target: &Target<K>,
    outcome: &mut Outcome,
) -> Result<Found<'s>, ReadError> {
    let geometry = snapshot.geometry();
    let span = geometry.fingerprint_span(target.window);
    let fingerprints = &scratch.words.window.as_bytes()[span.skip..][..span.used];
    let LookupScratch { matcher, slots, candidates, batches: [batch, _], .. } = scratch;
    slots.clear();
    let fingerprint = target.fingerprint(geometry.width);
    matcher.find(geometry.width, fingerprints, fingerprint, target.window.first, slots);
    if too_many(slots.len(), target.window) {
        return Ok(Found::Unsettled);
    }
    batch.clear();
    candidates.clear();
    candidates.extend(slots.iter().map(|slot| {
        let offset = target.segment + geometry.slot_offset(target.cap, *slot) as u64;
        (0, batch.read(RemoteAddr { area: REGION, offset }, geometry.slot_bytes))
    }));
    outcome.cost.round_trips += 1;
    outcome.cost.reads += candidates.len() as u32;
    outcome.cost.bytes += (candidates.len() * geometry.slot_bytes) as u64;
    endpoint.run(batch)?;
    let (mut found, mut unsettled) = (None, false);
    for (_, landing) in candidates.iter() {
        match check(snapshot, target, outcome, batch.bytes(*landing))? {
            Check::Found(value) => found = Some(value),
            Check::Other => {}
            Check::Unsettled => unsettled = true,
        }
    }
    Ok(if unsettled && found.is_none() { Found::Unsettled } else { Found::Answer(found) })
}

/// All slots of the window, and the only one that shows the key.
#[inline(always)]
fn range<'s, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    snapshot: &Snapshot<K>,
    scratch: &'s mut LookupScratch<K>,
    target: &Target<K>,
    outcome: &mut Outcome,
) -> Result<Found<'s>, ReadError> {
    let geometry = snapshot.geometry();
    let words = target.window.len() as usize * geometry.slot_bytes / 8;
    let window = scratch.words.window.get_mut(..words);
    let (Some(window), Some(key)) = (window, K::word(&target.key)) else { return Ok(Found::TooLong) };
    read(endpoint, target, outcome, geometry.slot_offset(target.cap, target.window.first), window)?;
    let hits = scratch.matcher.key_hits(window, snapshot.stride(), key);
    if hits.frozen {
        return Err(ReadError::Stale);
    }
    let slot = match hits.count {
        0 => return Ok(Found::Answer(None)),
        1 => &window.as_bytes()[hits.word as usize * 8..][..geometry.slot_bytes],
        _ => return several_slots(snapshot, target, outcome, window.as_bytes()),
    };
    Ok(match check(snapshot, target, outcome, slot)? {
        Check::Found(value) => Found::Answer(Some(value)),
        Check::Other => Found::Answer(None),
        Check::Unsettled => Found::Unsettled,
    })
}

/// A window in which several slots show the key: the remains of deleted records beside a live one.
#[cold]
fn several_slots<'s, K: KeySpace>(
    snapshot: &Snapshot<K>,
    target: &Target<K>,
    outcome: &mut Outcome,
    window: &'s [u8],
) -> Result<Found<'s>, ReadError> {
    let mut unsettled = false;
    for slot in window.chunks_exact(snapshot.geometry().slot_bytes) {
        if !shows::<K>(slot, target.key) {
            continue;
        }
        match check(snapshot, target, outcome, slot)? {
            Check::Found(value) => return Ok(Found::Answer(Some(value))),
            Check::Other => {}
            Check::Unsettled => unsettled = true,
        }
    }
    Ok(if unsettled { Found::Unsettled } else { Found::Answer(None) })
}

#[inline(always)]
fn read<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    target: &Target<K>,
    outcome: &mut Outcome,
    offset: usize,
    out: &mut [u64],
) -> Result<(), ReadError> {
    outcome.cost.reads += 1;
    outcome.cost.bytes += size_of_val(out) as u64;
    endpoint.read_words(RemoteAddr { area: REGION, offset: target.segment + offset as u64 }, out)?;
    Ok(())
}

/// What a slot says about the target.
enum Check<'a> {
    Found(&'a [u8]),
    /// Another key's record, or none.
    Other,
    Unsettled,
}

#[inline(always)]
fn check<'s, K: KeySpace>(
    snapshot: &Snapshot<K>,
    target: &Target<K>,
    outcome: &mut Outcome,
    slot: &'s [u8],
) -> Result<Check<'s>, ReadError> {
    let value_bytes = snapshot.record().parameters.value_bytes as usize;
    match judge::<K>(slot, target.generation, value_bytes) {
        Verdict::Record { key, version, value } if key == target.key => {
            outcome.version = Some(version);
            Ok(Check::Found(value))
        }
        Verdict::Record { .. } => {
            outcome.cost.false_candidates += 1;
            Ok(Check::Other)
        }
        Verdict::Free => Ok(Check::Other),
        Verdict::Unsettled => Ok(Check::Unsettled),
        Verdict::Frozen => Err(ReadError::Stale),
    }
}
