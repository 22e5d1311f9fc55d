//! The mode in which results come: the switch between fetching and server reply.

use std::collections::HashMap;
use std::time::Duration;

/// How a client gets the results of an RPC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// It fetches them by READs.
    #[default]
    Fetch,
    /// The server sends them.
    Reply,
}

/// What is known of one RPC.
#[derive(Clone, Copy, Debug, Default)]
struct Flag {
    mode: Mode,
    /// Calls in a row that spoke for the other mode.
    strikes: u32,
}

/// The mode flags of one client, one per RPC, and the rule by which they change.
///
/// A single slow call does not change anything: it takes [`IN_A_ROW`](Self::IN_A_ROW) calls in a
/// row that spoke for the other mode (RF-RPC, section 3.2, discussion).
#[derive(Debug)]
pub struct Modes {
    flags: HashMap<u16, Flag>,
    /// R.
    retries: u32,
    /// The only mode there is, if there is only one.
    fixed: Option<Mode>,
    switches: u64,
}

impl Modes {
    /// Calls in a row before a flag changes.
    pub const IN_A_ROW: u32 = 2;

    /// Flags that change after more than `retries` failed fetches, or never if one mode is `fixed`.
    #[must_use]
    pub fn new(retries: u32, fixed: Option<Mode>) -> Self {
        Self { flags: HashMap::new(), retries, fixed, switches: 0 }
    }

    /// How results of an RPC come at present.
    #[must_use]
    pub fn of(&self, rpc: u16) -> Mode {
        self.fixed.unwrap_or_else(|| self.flags.get(&rpc).map_or(Mode::Fetch, |flag| flag.mode))
    }

    /// Times a flag has changed.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Whether `failed` failed fetches speak for server reply.
    #[must_use]
    pub fn is_exceeded(&self, failed: u32) -> bool {
        failed > self.retries
    }

    /// A call has just had more failed fetches than R; told once per call. Returns the mode in
    /// which it goes on.
    pub fn exceeded(&mut self, rpc: u16) -> Mode {
        self.strike(rpc, Mode::Fetch)
    }

    /// A call's result was fetched within R.
    pub fn fetched(&mut self, rpc: u16) {
        if let Some(flag) = self.flags.get_mut(&rpc).filter(|flag| flag.mode == Mode::Fetch) {
            flag.strikes = 0;
        }
    }

    /// A result came by server reply after the server took `time` for it, where a fetch takes
    /// `fetch`.
    pub fn replied(&mut self, rpc: u16, time: Duration, fetch: Duration) {
        if time <= fetch * self.retries {
            self.strike(rpc, Mode::Reply);
        } else if let Some(flag) = self.flags.get_mut(&rpc).filter(|flag| flag.mode == Mode::Reply) {
            flag.strikes = 0;
        }
    }

    /// A call in mode `now` speaks for the other one.
    fn strike(&mut self, rpc: u16, now: Mode) -> Mode {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let flag = self.flags.entry(rpc).or_default();
        if flag.mode == now {
            flag.strikes += 1;
            if flag.strikes >= Self::IN_A_ROW {
                let mode = if now == Mode::Fetch { Mode::Reply } else { Mode::Fetch };
                *flag = Flag { mode, strikes: 0 };
                self.switches += 1;
            }
        }
        flag.mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCH: Duration = Duration::from_micros(2);

    #[test]
    fn two_calls_in_a_row_change_a_flag_and_one_does_not() {
        let mut modes = Modes::new(5, None);
        assert!(!modes.is_exceeded(5) && modes.is_exceeded(6));
        for _ in 0..3 {
            assert_eq!(modes.exceeded(1), Mode::Fetch);
            modes.fetched(1);
        }
        assert_eq!(modes.exceeded(1), Mode::Fetch);
        assert_eq!(modes.exceeded(1), Mode::Reply);
        assert_eq!((modes.of(1), modes.of(2)), (Mode::Reply, Mode::Fetch), "one flag per RPC");
        for _ in 0..3 {
            modes.replied(1, FETCH * 5, FETCH);
            modes.replied(1, FETCH * 6, FETCH);
        }
        assert_eq!(modes.of(1), Mode::Reply);
        modes.replied(1, FETCH * 5, FETCH);
        modes.replied(1, Duration::ZERO, FETCH);
        assert_eq!((modes.of(1), modes.switches()), (Mode::Fetch, 2));
    }

    #[test]
    fn a_fixed_mode_stays() {
        for mode in [Mode::Fetch, Mode::Reply] {
            let mut modes = Modes::new(0, Some(mode));
            assert_eq!((modes.exceeded(1), modes.exceeded(1)), (mode, mode));
            (0..3).for_each(|_| modes.replied(1, Duration::ZERO, FETCH));
            assert_eq!((modes.of(1), modes.switches()), (mode, 0));
        }
    }
}
