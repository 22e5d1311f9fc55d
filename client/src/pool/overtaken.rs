//! Repeated attempts to create a table that other clients create at the same time.

use std::time::Duration;

use fpcache::message::ErrorCode;
use fpcache_fabric::Clock;

use crate::error::ClientError;

/// The most attempts.
const ATTEMPTS: u32 = 8;
/// The first pause is about as long, or as long as the first attempt took.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes an attempt until no other client overtakes it, `within` this time. Pauses are random, and
/// each is up to twice as long as the one before it: of several clients, one gets ahead of the
/// others by as much as it needs.
pub(crate) fn retry_while_overtaken<R>(
    (clock, within): (&dyn Clock, Duration),
    mut random: impl FnMut() -> u64,
    mut attempt: impl FnMut() -> Result<R, ClientError>,
) -> Result<R, ClientError> {
    let (begun, mut longest) = (clock.now(), PAUSE);
    for _ in 1..ATTEMPTS {
        let started = clock.now();
        let error = match attempt() {
            Err(error) if is_overtaken(&error) => error,
            ended => return ended,
        };
        let now = clock.now();
        let left = within.saturating_sub(now.saturating_duration_since(begun));
        if left.is_zero() {
            return Err(error);
        }
        // The faster client takes as long as this attempt would have.
        longest = longest.max(now.saturating_duration_since(started)).saturating_mul(2);
        clock.sleep(share(longest, random()).min(left));
    }
    attempt()
}

fn is_overtaken(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.code == ErrorCode::Busy)
}

/// At least a half of a time, and at most all of it, by random bits.
fn share(time: Duration, bits: u64) -> Duration {
    let half = time / 2;
    half + half.mul_f64((bits >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use fpcache::message::Refusal;

    use super::*;

    /// Goes on by itself while something sleeps, and notes for how long.
    #[derive(Debug)]
    struct Hands(Instant, Mutex<Vec<Duration>>);

    impl Clock for Hands {
        fn now(&self) -> Instant {
            self.0 + self.1.lock().expect("nobody panics").iter().sum::<Duration>()
        }

        fn sleep(&self, duration: Duration) {
            self.1.lock().expect("nobody panics").push(duration);
        }
    }

    fn busy() -> ClientError {
        Refusal::new(ErrorCode::Busy, "another command has made the table meanwhile").into()
    }

    /// Makes attempts of which the first `overtaken` are, and returns how it ended, how many there
    /// were, and the pauses between them.
    fn run(overtaken: u32, within: Duration) -> (Result<u32, ClientError>, u32, Vec<Duration>) {
        let (clock, mut attempts) = (Hands(Instant::now(), Mutex::default()), 0);
        let ended = retry_while_overtaken(
            (&clock, within),
            || u64::MAX / 2,
            || {
                attempts += 1;
                if attempts > overtaken { Ok(attempts) } else { Err(busy()) }
            },
        );
        (ended, attempts, clock.1.into_inner().expect("nobody panics"))
    }

    #[test]
    fn who_was_overtaken_waits_longer_each_time() {
        let (ended, _, pauses) = run(3, Duration::from_secs(60));
        assert_eq!((ended.expect("made"), pauses.len()), (4, 3));
        assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
        assert!(pauses[0] >= PAUSE, "{pauses:?}");
    }

    #[test]
    fn attempts_end_with_their_number_and_their_time() {
        let (ended, attempts, _) = run(u32::MAX, Duration::from_secs(60));
        assert!(ended.expect_err("overtaken each time").is_retryable());
        assert_eq!(attempts, ATTEMPTS);
        let within = PAUSE * 4;
        let (ended, attempts, pauses) = run(u32::MAX, within);
        assert!(ended.is_err() && attempts < ATTEMPTS, "{attempts}");
        assert_eq!(pauses.into_iter().sum::<Duration>(), within);
    }

    #[test]
    fn other_errors_end_them() {
        let clock = Hands(Instant::now(), Mutex::default());
        let mut attempts = 0;
        let ended: Result<(), _> = retry_while_overtaken(
            (&clock, Duration::MAX),
            || 0,
            || {
                attempts += 1;
                Err(Refusal::new(ErrorCode::Full, "no room").into())
            },
        );
        assert!(ended.is_err() && attempts == 1, "{attempts}");
    }
}
