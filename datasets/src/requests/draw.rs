//! The common part of streams of lookups, whatever the keys are: their options, and the drawing of
//! which key each lookup is for.

use super::distribution::Distribution;
use super::popular::Popular;
use super::sosd;
use crate::random::Random;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct RequestOptions {
    /// Number of requests.
    pub lookups: usize,
    /// How they are spread over the keys.
    pub distribution: Distribution,
    /// The share of requests for absent keys, clamped to 0..=1.
    pub negative: f64,
    /// The stream is a function of the keys and this seed alone.
    pub seed: u64,
    /// After each run of this many requests, absent keys counted, other keys become popular, in the
    /// same proportions; see [`generate`](super::generate). `None` leaves them as they are, and so
    /// does 0, which the notes tell.
    pub shift_every: Option<u64>,
}

/// Marks an absent key in [`Requests::expected`](super::Requests::expected).
pub const ABSENT: u64 = u64::MAX;

const PURPOSE_REQUESTS: u64 = 0x4E0;

/// The share of requests for absent keys: all, where there is no other.
pub(super) fn negative_share(keys: usize, options: &RequestOptions) -> f64 {
    if keys == 0 { 1.0 } else { options.negative }
}

/// Hands out the index of the key of each request, `None` for an absent key, and what further draws
/// come from.
pub(super) fn draw_each(
    n: u64,
    share: f64,
    crowded: Vec<u64>,
    options: &RequestOptions,
    notes: &mut Vec<String>,
    mut visit: impl FnMut(Option<u64>, &mut Random),
) {
    let mut random = Random::new(options.seed, PURPOSE_REQUESTS);
    if !crowded.is_empty() {
        notes.push(crowded_note(crowded.len() as u64, n));
    }
    let mut popular = Popular::new(n, options.distribution, crowded, options.seed, &mut random);
    let every = shifts(options, &popular, notes);
    let mut until_shift = every;
    for _ in 0..options.lookups {
        if until_shift == 0 {
            popular.shift();
            until_shift = every;
        }
        until_shift -= 1;
        let is_absent = share > 0.0 && random.open_fraction() < share;
        let index = (!is_absent).then(|| popular.draw(&mut random));
        visit(index, &mut random);
    }
}

fn crowded_note(crowded: u64, n: u64) -> String {
    let most = sosd::MOST_EQUAL;
    if crowded < n {
        format!("sosd: {crowded} of {n} keys occur more than {most} times and are not requested")
    } else {
        format!("sosd: all {n} keys occur more than {most} times, so none is skipped")
    }
}

/// Requests between two shifts, at least 1; `u64::MAX`, which no stream reaches, where nothing
/// moves.
fn shifts(options: &RequestOptions, popular: &Popular, notes: &mut Vec<String>) -> u64 {
    let Some(every) = options.shift_every else { return u64::MAX };
    let cause = if every == 0 { Some("0 requests have no end") } else { popular.immovable() };
    if let Some(cause) = cause {
        notes.push(format!("popular keys do not move under {}: {cause}", options.distribution));
        return u64::MAX;
    }
    every
}
