//! The service that fixtures serve.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fpcache_fabric::{ClientId, Handled, Service, Waker, Work};

/// Replies to give now.
type Ready = VecDeque<(ClientId, Vec<u8>)>;

/// The service that fixtures serve. The first byte of a request says what to do.
#[derive(Debug)]
pub struct TestService {
    handled: u64,
    /// Replies that wait for their time, of any order.
    waiting: Vec<(Instant, ClientId, Vec<u8>)>,
    /// Other threads add to them.
    ready: Arc<Mutex<Ready>>,
    waker: Waker,
    /// Steps of background work left.
    steps: u64,
}

impl TestService {
    /// Reply with the rest of the request.
    pub const ECHO: u8 = 0;
    /// Sleep as many milliseconds as the second byte says, then echo.
    pub const SLEEP: u8 = 1;
    /// Reply with as many bytes as the 8-byte little-endian number that follows says, byte i being
    /// i mod 251.
    pub const PRODUCE: u8 = 2;
    /// Reply with the number of requests handled before, 8 bytes.
    pub const COUNT: u8 = 3;
    /// Go on serving, and echo when as many milliseconds as the second byte says have passed.
    pub const LATER: u8 = 4;
    /// Go on serving, and echo when another thread says so, after as many milliseconds as the
    /// second byte says.
    pub const WAKE: u8 = 5;
    /// Begin as many steps of background work as the second byte says, 100 µs each.
    pub const START: u8 = 6;
    /// Reply with the number of steps left, 8 bytes.
    pub const LEFT: u8 = 7;

    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for TestService {
    fn default() -> Self {
        let waker = Waker::new().unwrap();
        Self { handled: 0, waiting: Vec::new(), ready: Arc::default(), waker, steps: 0 }
    }
}

impl Service for TestService {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        let handled = self.handled;
        self.handled += 1;
        match request {
            [Self::SLEEP, milliseconds, ..] => {
                std::thread::sleep(Duration::from_millis(u64::from(*milliseconds)));
                reply.extend_from_slice(&request[1..]);
            }
            [Self::PRODUCE, rest @ ..] => {
                let len = <[u8; 8]>::try_from(rest).map_or(0, u64::from_le_bytes);
                reply.extend((0..len).map(|i| (i % 251) as u8));
            }
            [Self::COUNT, ..] => reply.extend_from_slice(&handled.to_le_bytes()),
            [Self::LATER, milliseconds, ..] => {
                let at = Instant::now() + Duration::from_millis(u64::from(*milliseconds));
                self.waiting.push((at, client, request[1..].to_vec()));
                // What a service leaves here is not part of the reply.
                reply.extend_from_slice(b"unfinished");
                return Handled::Later;
            }
            [Self::WAKE, milliseconds, ..] => {
                let (pause, echo) = (Duration::from_millis(u64::from(*milliseconds)), request[1..].to_vec());
                let (ready, waker) = (Arc::clone(&self.ready), self.waker.clone());
                std::thread::spawn(move || {
                    std::thread::sleep(pause);
                    ready.lock().unwrap_or_else(PoisonError::into_inner).push_back((client, echo));
                    waker.wake();
                });
                return Handled::Later;
            }
            [Self::START, steps, ..] => self.steps = u64::from(*steps),
            [Self::LEFT, ..] => reply.extend_from_slice(&self.steps.to_le_bytes()),
            [Self::ECHO, rest @ ..] => reply.extend_from_slice(rest),
            _ => {}
        }
        Handled::Now
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let (client, echo) = self.ready().pop_front()?;
        reply.extend_from_slice(&echo);
        Some(client)
    }

    fn work(&mut self) -> Work {
        if !self.waiting.is_empty() {
            let now = Instant::now();
            let due: Vec<_> = self.waiting.extract_if(.., |(at, ..)| *at <= now).collect();
            self.ready().extend(due.into_iter().map(|(_, client, echo)| (client, echo)));
        }
        if self.steps > 0 {
            std::thread::sleep(Duration::from_micros(100));
            self.steps -= 1;
            return Work::More;
        }
        self.waiting.iter().map(|&(at, ..)| at).min().map_or(Work::Nothing, Work::At)
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.waker.clone())
    }
}
