//! A service that does nothing but RF-RPC.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache_fabric::{ClientId, Clock, FabricError, Handled, NodeMemory, Service, Work};

use crate::server::{Server, ServerOptions};

/// How long the service looks at its buffers without a break after a request has come.
const AWAKE: Duration = Duration::from_millis(1);
/// How often it looks afterwards.
const NAP: Duration = Duration::from_micros(100);
/// Batches answered before others have their turn.
const QUANTUM: usize = 64;

/// What RPCs do.
pub trait Procedures: Send {
    /// Answers one request: appends to `result`, which comes empty.
    fn call(&mut self, client: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>);
}

impl<F: FnMut(ClientId, u16, &[u8], &mut Vec<u8>) + Send> Procedures for F {
    fn call(&mut self, client: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>) {
        self(client, rpc, request, result);
    }
}

/// Serves [`Procedures`] to clients of RF-RPC. Its thread keeps looking while requests come, and
/// every 100 µs when none do: a WRITE wakes no thread.
#[derive(Debug)]
pub struct RfService<M, P> {
    server: Server<M>,
    procedures: P,
    clock: Arc<dyn Clock>,
    last: Option<Instant>,
    results: Vec<Vec<u8>>,
}

impl<M: NodeMemory, P: Procedures> RfService<M, P> {
    /// A service over `memory`; see [`Server::new`].
    ///
    /// # Errors
    /// As for [`Server::new`].
    pub fn new(
        memory: Arc<M>,
        options: ServerOptions,
        clock: Arc<dyn Clock>,
        procedures: P,
    ) -> Result<Self, FabricError> {
        let server = Server::new(memory, options, Arc::clone(&clock))?;
        Ok(Self { server, procedures, clock, last: None, results: Vec::new() })
    }

    /// Answers a batch, if one has come.
    fn serve(&mut self) -> bool {
        let Some(received) = self.server.recv() else { return false };
        let mut count = 0;
        for request in received.requests() {
            if self.results.len() == count {
                self.results.push(Vec::new());
            }
            let result = &mut self.results[count];
            result.clear();
            self.procedures.call(received.client, received.rpc, request, result);
            count += 1;
        }
        // The buffers lie inside the memory: the server was made over it.
        let sent = self.server.send(received.id, &self.results[..count]);
        debug_assert!(sent.is_ok(), "{sent:?}");
        true
    }
}

impl<M: NodeMemory, P: Procedures> Service for RfService<M, P> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        let handled = self.server.handle(client, request, reply);
        if handled == Some(Handled::Later) {
            self.serve();
            // A client that calls by message may WRITE the next time, and must not find that no
            // thread looks.
            self.last = Some(self.clock.now());
        }
        // What is no message of RF-RPC gets an empty reply.
        handled.unwrap_or(Handled::Now)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.server.next_reply(reply)
    }

    fn work(&mut self) -> Work {
        let served = (0..QUANTUM).take_while(|_| self.serve()).count();
        let now = self.clock.now();
        if served > 0 {
            self.last = Some(now);
        }
        if self.server.clients() == 0 {
            return Work::Nothing;
        }
        match self.last {
            Some(last) if now.saturating_duration_since(last) < AWAKE => Work::More,
            _ => Work::At(now + NAP),
        }
    }

    fn disconnected(&mut self, client: ClientId) {
        self.server.disconnected(client);
    }
}
