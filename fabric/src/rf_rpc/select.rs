//! Choosing R and F from measured rates.

use std::time::Duration;

/// What was measured of a fabric at one process time, with results of one byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// How long the server took for a request.
    pub process: Duration,
    /// Calls per second of clients that only fetch.
    pub fetched: f64,
    /// Calls per second of clients that are only replied to.
    pub replied: f64,
    /// Failed fetches that nearly no call of those that fetch has more of: more than R in two calls in a row should be rare
    /// where fetching pays.
    pub failed: u32,
}

/// What clients are to use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// R, failed fetches that are borne with.
    pub retries: u32,
    /// F, bytes of the first READ of a result, its head among them.
    pub fetch_bytes: usize,
    /// What the results looked at come to together: the sum of their rates.
    pub rate: f64,
}

/// The upper bound N of R: the failed fetches that calls have where fetching is still better than server reply by more than `margin` (the
/// paper takes 0.1). At least 1.
fn most_retries(curve: &[Measured], margin: f64) -> u32 {
    let pays = curve.iter().filter(|at| at.fetched > at.replied * (1.0 + margin));
    pays.map(|at| at.failed).max().unwrap_or(1).max(1)
}

/// Equation 2 of the paper for one result: `rate` READs a second, half of them calls if the result does not come with the first.
#[must_use]
pub fn result_rate(rate: f64, fetch_bytes: usize, result_bytes: usize) -> f64 {
    if result_bytes <= fetch_bytes { rate } else { rate / 2.0 }
}

/// Selects R and F by enumeration (RF-RPC, section 3.2, parameter selection): of all R from 1 to N and all F of `reads` the
/// pair whose rates, over all `results` (bytes, heads included), have the largest sum. `curve` gives N; `reads` has READs per
/// second by size, of the sizes between L and H, where the rate begins and ceases to depend on it; how a size's rate depends on R the curve
/// tells, because calls that are past R go at the rate of server reply. Of equal pairs the smaller R is taken, which spends less of the client's
/// processor, then the smaller F. Takes time |curve|·|reads|·|results|·N.
///
/// Returns `None` if one of the three is empty.
#[must_use]
pub fn select(
    curve: &[Measured],
    reads: &[(usize, f64)],
    results: &[usize],
    margin: f64,
) -> Option<Selection> {
    let unit = reads.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    if curve.is_empty() || results.is_empty() || unit <= 0.0 {
        return None;
    }
    let mut best: Option<Selection> = None;
    for retries in 1..=most_retries(curve, margin) {
        // Over the process times measured: what clients get that switch after so many.
        let calls = curve.iter().map(|at| if at.failed > retries { at.replied } else { at.fetched });
        let calls = calls.sum::<f64>() / curve.len() as f64;
        for &(fetch_bytes, rate) in reads {
            let here = calls * rate / unit;
            let rate: f64 = results.iter().map(|&bytes| result_rate(here, fetch_bytes, bytes)).sum();
            // By more than the rounding of the sums.
            if best.is_none_or(|best| rate > best.rate * (1.0 + 1e-9)) {
                best = Some(Selection { retries, fetch_bytes, rate });
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's cluster, roughly: figures 1 and 5.
    fn curve() -> Vec<Measured> {
        [
            (1, 5.5, 2.1, 0),
            (3, 4.2, 2.1, 1),
            (5, 2.8, 2.0, 3),
            (6, 2.3, 1.95, 5),
            (7, 2.0, 1.9, 7),
            (15, 0.9, 0.92, 15),
        ]
        .map(|(micros, fetched, replied, failed)| Measured {
            process: Duration::from_micros(micros),
            fetched: fetched * 1e6,
            replied: replied * 1e6,
            failed,
        })
        .to_vec()
    }

    const READS: [(usize, f64); 4] = [(256, 11.2e6), (512, 9.0e6), (768, 6.5e6), (1024, 4.6e6)];

    #[test]
    fn the_papers_figures_give_the_papers_parameters() {
        let selection = select(&curve(), &READS, &[56; 100], 0.1).unwrap();
        assert_eq!((selection.retries, selection.fetch_bytes), (5, 256));
    }

    #[test]
    fn the_fetch_size_follows_the_results() {
        for (bytes, fetch_bytes) in [(200, 256), (300, 512), (600, 768)] {
            let selection = select(&curve(), &READS, &[bytes; 10], 0.1).unwrap();
            assert_eq!(selection.fetch_bytes, fetch_bytes, "results of {bytes} bytes");
        }
        // A READ of 1024 is slower than two of 256.
        assert_eq!(select(&curve(), &READS, &[1000; 10], 0.1).unwrap().fetch_bytes, 256);
    }

    #[test]
    fn nothing_measured_selects_nothing() {
        assert_eq!(select(&[], &READS, &[8], 0.1), None);
        assert_eq!(select(&curve(), &[], &[8], 0.1), None);
        assert_eq!(select(&curve(), &READS, &[], 0.1), None);
        // Server reply is always better: R is as small as it gets.
        let slow: Vec<_> =
            curve().into_iter().map(|at| Measured { replied: at.fetched * 2.0, ..at }).collect();
        assert_eq!(select(&slow, &READS, &[8], 0.1).unwrap().retries, 1);
    }
}
