//! A service with one region.

use crate::error::FabricError;
use crate::region::{Export, RegionName};
use crate::service::{ClientId, Handled, Service, Waker, Work};

/// A service over shared memory that has one region, under one name.
#[derive(Debug)]
pub struct OneRegion<S> {
    name: RegionName,
    export: Export,
    service: S,
}

impl<S: Service> OneRegion<S> {
    /// Serves `service` to those who ask for the region of this name.
    pub fn new(name: RegionName, export: Export, service: S) -> Self {
        Self { name, export, service }
    }
}

impl<S: Service> Service for OneRegion<S> {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        (name == self.name.as_bytes()).then(|| self.export.clone())
    }

    fn has_room(&self, client: ClientId, request_bytes: usize) -> bool {
        self.service.has_room(client, request_bytes)
    }

    fn room_of(&self, client: ClientId) -> u64 {
        self.service.room_of(client)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.service.handle(client, request, reply)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.service.next_reply(reply)
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.service.next_farewell()
    }

    fn work(&mut self) -> Work {
        self.service.work()
    }

    fn waker(&self) -> Option<Waker> {
        self.service.waker()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.service.connected(client, region);
    }

    fn may_only_read(&mut self, client: ClientId) -> bool {
        self.service.may_only_read(client)
    }

    fn disconnected(&mut self, client: ClientId) {
        self.service.disconnected(client);
    }

    fn rejected(&mut self, error: &FabricError) {
        self.service.rejected(error);
    }
}
