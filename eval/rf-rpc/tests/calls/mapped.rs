//! Calls over memory of this process.

use super::*;

/// A service over memory of this process, and its clients.
struct Local {
    hub: Hub,
    memory: Arc<SharedMemory>,
    _serving: Serving,
}

const SHAPE: Shape = Shape { slots: 4, parts: 2, capacity: 10_240 };

impl Local {
    fn start(clients: u16) -> Self {
        let memory = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
        let options = LocalOptions { region_access: Access::ReadWrite, ..LocalOptions::default() };
        let hub = Hub::new(Arc::clone(&memory), options).unwrap();
        let options =
            ServerOptions { area: REGION, shape: SHAPE, clients, seed: 1, ..ServerOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let procedures = |_: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>| {
            result.extend_from_slice(&answer(rpc, request));
        };
        let service = RfService::new(Arc::clone(&memory), options, clock, procedures).unwrap();
        let _serving = hub.spawn(service).unwrap();
        Self { hub, memory, _serving }
    }

    fn open(&self, options: ClientOptions) -> Result<Client<impl Connection + use<>>, RfError> {
        Client::open(
            self.hub.connect().unwrap(),
            options,
            Arc::new(SystemClock),
            Deadline::after(SECOND * 10),
        )
    }
}

#[test]
fn calls_over_mapped_memory_from_many_threads_keep_apart() {
    let local = Local::start(4);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let local = &local;
            scope.spawn(move || {
                let mut client =
                    local.open(ClientOptions { retries: 50, ..ClientOptions::default() }).unwrap();
                let mut result = Vec::new();
                for call in 0..300u64 {
                    let request = ((thread << 32) | call).to_le_bytes().repeat(1 + call as usize % 200);
                    client.call(ECHO, &request, &mut result, Deadline::after(SECOND * 10)).unwrap();
                    assert_eq!(result, answer(ECHO, &request), "call {call}");
                }
            });
        }
    });
}

#[test]
fn channels_are_few_and_come_free_again() {
    let local = Local::start(1);
    let mut first = local.open(ClientOptions::default()).unwrap();
    let error = local.open(ClientOptions::default()).unwrap_err();
    assert!(matches!(error, RfError::Full), "{error}");
    let sent: Vec<_> = (0..4).map(|_| first.send(ECHO, &[b"x"], Deadline::NONE).unwrap()).collect();
    let error = first.send(ECHO, &[b"x"], Deadline::NONE).unwrap_err();
    assert!(matches!(error, RfError::InFlight(4)), "{error}");
    // Received out of order, or not at all.
    let mut results = Results::new();
    for sent in sent.into_iter().skip(1).rev() {
        first.recv(sent, &mut results, Deadline::after(SECOND * 10)).unwrap();
    }
    let error = first.send(ECHO, &vec![[0; 8000]; 2], Deadline::NONE).unwrap_err();
    assert!(matches!(error, RfError::TooLong { max: 10_240, .. }), "{error}");
    drop(first);
    let limit = Instant::now() + SECOND * 10;
    while let Err(error) = local.open(ClientOptions::default()) {
        assert!(matches!(error, RfError::Full) && Instant::now() < limit, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_memory_node_without_buffers_says_so() {
    let memory = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for (area, access) in [(REGION, Access::ReadOnly), (AreaId(7), Access::ReadWrite)] {
        let options = LocalOptions { region_access: access, ..LocalOptions::default() };
        let hub = Hub::new(Arc::clone(&memory), options).unwrap();
        let options = ServerOptions { area, shape: SHAPE, clients: 2, ..ServerOptions::default() };
        let nothing = |_: ClientId, _: u16, _: &[u8], _: &mut Vec<u8>| {};
        let service = RfService::new(Arc::clone(&memory), options, Arc::clone(&clock), nothing).unwrap();
        let _serving = hub.spawn(service).unwrap();
        let connection = hub.connect().unwrap();
        let error = Client::open(connection, ClientOptions::default(), Arc::clone(&clock), Deadline::NONE)
            .unwrap_err();
        assert!(matches!(error, RfError::NoBuffers), "{error}");
    }
    let short = ServerOptions { clients: 1000, ..ServerOptions::default() };
    assert!(Server::new(memory, short, clock).is_err());
}

/// Whatever a client writes into its buffers and into messages of others, the server stands and
/// goes on serving others.
#[test]
fn a_hostile_client_breaks_its_own_calls_alone() {
    let local = Local::start(2);
    let mut honest = local.open(ClientOptions { retries: 50, ..ClientOptions::default() }).unwrap();
    let hostile = local.hub.connect().unwrap();
    let mut reply = Vec::new();
    hostile.call(b"RF\x01\x01", &mut reply, Deadline::NONE).unwrap();
    let offset = u64::from_le_bytes(reply[17..25].try_into().unwrap());
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    for round in 0..300u64 {
        for slot in 0..4 {
            let at = offset + slot * SHAPE.channel_bytes() / 4;
            let first = (1 << 31) | (random() % 20_000) | (random() << 32);
            local.memory.store_relaxed(at, random()).unwrap();
            local.memory.store_relaxed(at + 72, (1 << 56) | (random() >> 8)).unwrap();
            local.memory.store_relaxed(at + 80, random()).unwrap();
            local.memory.store_relaxed(at + 88, first).unwrap();
            local.memory.store_release(at + 64, first).unwrap();
        }
        let mut message = b"RF\x01".to_vec();
        message.extend((0..random() % 40).map(|_| random() as u8 % 8));
        // What is asked for and never comes is given up.
        let _ = hostile.call(&message, &mut reply, Deadline::after(Duration::from_millis(5)));
        let mut result = Vec::new();
        honest.call(ECHO, &round.to_le_bytes(), &mut result, Deadline::after(SECOND * 10)).unwrap();
        assert_eq!(result, answer(ECHO, &round.to_le_bytes()));
    }
}
