//! A queue in front of something that takes one message at a time.

use super::Picos;

/// Serves in the order of arrival; knows when it is free and how long it was busy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    free: Picos,
    busy: Picos,
}

impl Server {
    /// Takes what arrives at `at` and needs `service`: when it is done.
    #[inline]
    pub fn take(&mut self, at: Picos, service: Picos) -> Picos {
        self.busy += service;
        self.free = self.free.max(at) + service;
        self.free
    }

    /// When it has nothing to do any more.
    pub fn free_at(&self) -> Picos {
        self.free
    }

    /// How long it has worked.
    pub fn busy(&self) -> Picos {
        self.busy
    }
}

/// The time between two events of a rate.
pub fn period(per_second: f64) -> Picos {
    (1e12 / per_second) as Picos
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniform in (0, 1), xorshift64*.
    fn fraction(state: &mut u64) -> f64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    #[test]
    fn random_arrivals_wait_as_long_as_pollaczek_and_khinchine_say() {
        let service = 20_000.0;
        for load in [0.3, 0.6, 0.8, 0.9] {
            let (mut server, mut now, mut waited, mut state) = (Server::default(), 0.0, 0.0, 7);
            const ARRIVALS: u32 = 1_000_000;
            for _ in 0..ARRIVALS {
                now -= fraction(&mut state).ln() * service / load;
                waited += server.take(now as Picos, service as Picos) as f64 - now - service;
            }
            let mean = waited / f64::from(ARRIVALS);
            let foretold = service * load / (2.0 * (1.0 - load));
            assert!((mean / foretold - 1.0).abs() < 0.05, "at {load}: {mean} instead of {foretold}");
        }
    }
}
