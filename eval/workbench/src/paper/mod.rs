//! The FPCache paper, statement by statement: what it says, and what the model gives.

mod bench;
mod claims;
mod error;
mod filters;
mod hotspots;
mod row;
mod stage;
mod table_two;

pub use bench::{Bench, Journal, Scale};
pub use claims::{Claim, Figure, Keys, Measure, Mix, Says, Setting, all};
pub use error::PaperError;
pub use filters::{Filtered, filters};
pub use hotspots::Hotspots;
pub use row::ClaimRow;
pub use stage::warm_up;
pub use table_two::{Entries, entries};

use crate::experiment::SystemName;
use error::ELSEWHERE;
use stage::MOST;

/// The statements of one figure, or all.
///
/// # Errors
/// [`PaperError::Unknown`] names those there are.
pub fn of(figure: Option<Figure>) -> Result<Vec<Claim>, PaperError> {
    let Some(figure) = figure else { return Ok(all()) };
    let some: Vec<Claim> = all().into_iter().filter(|claim| claim.figure == figure).collect();
    match some.is_empty() && !ELSEWHERE.contains(&figure) {
        true => Err(PaperError::Unknown(figure)),
        false => Ok(some),
    }
}

/// Whether there is memory for these statements, and for how many of their runs at a time, up to
/// `threads`.
///
/// # Errors
/// [`PaperError::Memory`] if not for one.
pub fn check_memory(
    figure: Option<Figure>,
    claims: &[Claim],
    scale: &Scale,
    free: u64,
    threads: usize,
) -> Result<usize, PaperError> {
    // Keys, once more where some are inserted, and where the oracle finds them, besides the
    // system's own.
    const BESIDE: u64 = 8 + 8 + 12;
    /// An operation, what it is drawn from, and what is expected of it.
    const OPERATION: u64 = 16 + 24 + 8;
    let needs = |(system, setting): (SystemName, Setting), beside: u64| {
        (system.host_bytes(setting.sizes) as u64 + beside, system)
    };
    let series = figure.is_none_or(|figure| figure == Figure::Figure(10)).then(|| {
        // Its operations, and the keys they are made of.
        let beside = 8 + 40 * hotspots::OPERATIONS_PER_KEY;
        needs(
            (SystemName::FpCache, claims::C),
            beside * scale.keys.min(hotspots::MOST_KEYS) / scale.keys.max(1),
        )
    });
    let of_claims = claims.iter().flat_map(|claim| [needs(claim.this, BESIDE), needs(claim.that, BESIDE)]);
    let Some((each, system)) = of_claims.chain(series).max_by_key(|(bytes, _)| *bytes) else {
        return Ok(threads.max(1));
    };
    let operations = OPERATION * MOST as u64;
    let all = each * scale.keys + operations.min(OPERATION * scale.keys * 3 / 2);
    match free / all.max(1) {
        0 => Err(PaperError::Memory {
            system: system.name(),
            keys: scale.keys,
            needs: all >> 20,
            has: free >> 20,
            fits: (free.saturating_sub(operations) / each).max(free / (each + OPERATION * 3 / 2)),
        }),
        fit => Ok(threads.clamp(1, usize::try_from(fit).unwrap_or(usize::MAX))),
    }
}
