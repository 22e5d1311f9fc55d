//! The model against closed forms.

use std::ops::Range;

use super::{Bound, Clients, Hosts, NicSpec, Picos, Request, Step, Target, Verb, World, period};

/// Clients that do one kind of request again and again.
struct Same {
    request: Request,
    waiting: Vec<bool>,
    ended_at: Vec<Picos>,
}

impl Same {
    fn new(hosts: &Hosts, verb: Verb, bytes: u32) -> Self {
        let request = Request { to: Target::Memory(0), verb, bytes };
        Self { request, waiting: vec![false; hosts.clients()], ended_at: Vec::new() }
    }
}

impl Clients for Same {
    fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Step {
        if std::mem::replace(&mut self.waiting[client], false) {
            self.ended_at.push(now);
            return Step::Ended;
        }
        self.waiting[client] = true;
        requests.push(self.request);
        Step::Post
    }

    fn serve(&mut self, _: usize, _: Range<usize>) -> Picos {
        0
    }
}

/// Operations per second of these machines, and what binds.
fn rate(hosts: Hosts, verb: Verb, bytes: u32) -> (f64, Bound) {
    let mut clients = Same::new(&hosts, verb, bytes);
    let mut world = World::new(hosts);
    world.run(&mut clients, 20_000);
    let before = world.work();
    let ended = world.run(&mut clients, 200_000);
    let seconds = (world.now() - before.now()) as f64 * 1e-12;
    (ended as f64 / seconds, world.usage_since(&before).bound())
}

/// Clients of which each has batches of a length of its own.
struct OfLengths {
    lengths: Vec<usize>,
    waiting: Vec<bool>,
    ended: Vec<u64>,
}

impl Clients for OfLengths {
    fn step(&mut self, client: usize, _: Picos, requests: &mut Vec<Request>) -> Step {
        if std::mem::replace(&mut self.waiting[client], false) {
            self.ended[client] += 1;
            return Step::Ended;
        }
        self.waiting[client] = true;
        let request = Request { to: Target::Memory(0), verb: Verb::Read, bytes: 8 };
        requests.extend(std::iter::repeat_n(request, self.lengths[client]));
        Step::Post
    }

    fn serve(&mut self, _: usize, _: Range<usize>) -> Picos {
        0
    }
}

#[test]
fn threads_that_post_long_batches_do_not_keep_their_card_from_the_others() {
    let hosts = Hosts { compute_nodes: 1, threads: 16, ..Hosts::paper(NicSpec::CX6_100G) };
    let rate_beside = |length: usize| {
        let lengths: Vec<_> = std::iter::once(length).chain(std::iter::repeat_n(1, 15)).collect();
        let mut clients = OfLengths { waiting: vec![false; 16], ended: vec![0; 16], lengths };
        let mut world = World::new(hosts);
        world.run(&mut clients, 40_000);
        let others: u64 = clients.ended[1..].iter().sum();
        others as f64 / (world.now() as f64 * 1e-12)
    };
    let (beside_short, beside_long) = (rate_beside(1), rate_beside(64));
    assert!(beside_long > 0.5 * beside_short, "{beside_long} beside {beside_short}");
}

fn alone(nic: NicSpec) -> Hosts {
    Hosts { compute_nodes: 1, threads: 1, ..Hosts::paper(nic) }
}

#[test]
fn one_read_takes_the_sum_of_its_stages() {
    for nic in NicSpec::ALL {
        for bytes in [8, 256, 4096] {
            let mut clients = Same::new(&alone(nic), Verb::Read, bytes);
            let mut world = World::new(alone(nic));
            world.run(&mut clients, 2);
            // The completion is the next step's, before it posts.
            let took = clients.ended_at[1] - clients.ended_at[0];
            let foretold = nic.unloaded_read(bytes);
            assert!(took.abs_diff(foretold) <= 4, "{}: {bytes} B took {took}, not {foretold}", nic.name);
        }
    }
}

#[test]
fn small_reads_saturate_at_the_cards_rate() {
    let nic = NicSpec::CX6_100G;
    let (rate, bound) = rate(Hosts::paper(nic), Verb::Read, 34);
    assert!((rate / nic.served_per_second - 1.0).abs() < 0.01, "{rate}");
    assert_eq!(bound, Bound::Rate);
}

#[test]
fn long_reads_saturate_at_the_bandwidth() {
    let nic = NicSpec::CX6_100G;
    for bytes in [900, 4096] {
        let (rate, bound) = rate(Hosts::paper(nic), Verb::Read, bytes);
        let foretold = 1e12 / nic.bytes(bytes) as f64;
        assert!((rate / foretold - 1.0).abs() < 0.01, "{bytes} B: {rate}, not {foretold}");
        assert_eq!(bound, Bound::Bandwidth);
    }
}

#[test]
fn chimes_reads_come_near_the_published_rate_that_nothing_was_fitted_to() {
    // The DMTree artifact's workload C, uniform: 31.4 Mops/s of about 294 bytes each.
    let (rate, bound) = rate(Hosts::paper(NicSpec::CX6_100G), Verb::Read, 294);
    assert!((rate / 31.4e6 - 1.0).abs() < 0.05, "{rate}");
    assert_eq!(bound, Bound::Bandwidth);
}

#[test]
fn few_clients_are_bound_by_latency() {
    let nic = NicSpec::CX6_100G;
    let (rate, bound) = rate(Hosts { threads: 2, ..alone(nic) }, Verb::Read, 64);
    let foretold = 2e12 / nic.unloaded_read(64) as f64;
    assert!((rate / foretold - 1.0).abs() < 0.01, "{rate}, not {foretold}");
    assert_eq!(bound, Bound::Latency);
}

#[test]
fn atomics_and_calls_saturate_at_their_own_rates() {
    let nic = NicSpec::CX6_100G;
    let hosts = Hosts::paper(nic);
    let (atomics, _) = rate(hosts, Verb::Atomic, 8);
    assert!((atomics / nic.atomics_per_second - 1.0).abs() < 0.01, "{atomics}");
    let (on_chip, _) = rate(hosts, Verb::AtomicOnChip, 8);
    assert!((on_chip / nic.atomics_on_chip_per_second - 1.0).abs() < 0.01, "{on_chip}");
    let (writes, _) = rate(hosts, Verb::Write, 8);
    assert!((writes / nic.writes_per_second - 1.0).abs() < 0.01, "{writes}");
    let (calls, bound) = rate(hosts, Verb::Call { service: 1_000_000, reply: 16, core: None }, 64);
    assert!((calls / (f64::from(hosts.cores) * 1e6) - 1.0).abs() < 0.01, "{calls}");
    assert_eq!(bound, Bound::Cpu);
}

#[test]
fn replies_of_calls_are_issued_one_after_another_and_those_of_reads_are_not() {
    let nic = NicSpec::CX3_40G;
    // More compute nodes than calls need, which each issue as slowly; cores are no bound.
    let hosts = Hosts { compute_nodes: 15, cores: 64, ..Hosts::paper(nic) };
    let (calls, bound) = rate(hosts, Verb::Call { service: 1_000_000, reply: 16, core: None }, 64);
    assert!((calls / nic.issued_per_second - 1.0).abs() < 0.01, "{calls}");
    assert_eq!(bound, Bound::Rate);
    let (reads, _) = rate(hosts, Verb::Read, 16);
    assert!((reads / nic.served_per_second - 1.0).abs() < 0.01, "{reads}");
}

#[test]
fn reads_do_not_wait_for_replies_of_calls_to_be_issued() {
    let nic = NicSpec { issued_per_second: 1e5, ..NicSpec::CX6_100G };
    let hosts = Hosts { compute_nodes: 3, threads: 2, cores: 4, ..Hosts::paper(nic) };
    // Clients of two nodes call more than the memory node's card issues replies, and those of the
    // third READ.
    let short = Verb::Call { service: 1_000_000, reply: 16, core: None };
    let call = Request { to: Target::Memory(0), verb: short, bytes: 64 };
    let calls = |client| hosts.node_of(client) < 2;
    let batch = |client| vec![if calls(client) { call } else { read(Target::Memory(0), 64) }];
    let mut clients = Each::new((0..hosts.clients()).map(batch).collect());
    World::new(hosts).run(&mut clients, 2_000);
    let took = clients.durations(|client| !calls(client));
    // Two clients of the node take turns at its card.
    let longest = nic.unloaded_read(64) + period(nic.issued_per_second) + 6 * nic.bytes(64) + 40_000;
    assert!(took[took.len() - 1] <= longest, "{} instead of {longest}", took[took.len() - 1]);
}

#[test]
fn a_second_memory_node_doubles_the_rate_of_one() {
    struct Both(Same);
    impl Clients for Both {
        fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Step {
            self.0.request.to = Target::Memory((client % 2) as u16);
            self.0.step(client, now, requests)
        }
        fn serve(&mut self, _: usize, _: Range<usize>) -> Picos {
            0
        }
    }
    let nic = NicSpec::CX3_40G;
    // Compute nodes must be able to issue what two memory nodes serve.
    let hosts = Hosts { memory_nodes: 2, compute_nodes: 15, ..Hosts::paper(nic) };
    let mut clients = Both(Same::new(&hosts, Verb::Read, 8));
    let mut world = World::new(hosts);
    world.run(&mut clients, 20_000);
    let before = world.now();
    let ended = world.run(&mut clients, 100_000);
    let rate = ended as f64 / ((world.now() - before) as f64 * 1e-12);
    assert!((rate / (2.0 * nic.served_per_second) - 1.0).abs() < 0.01, "{rate}");
}

/// Clients that do again and again what each of them does.
struct Each {
    batches: Vec<Vec<Request>>,
    begun: Vec<Option<Picos>>,
    /// Client, end and duration of every batch.
    ended: Vec<(usize, Picos, Picos)>,
}

impl Each {
    fn new(batches: Vec<Vec<Request>>) -> Self {
        Self { begun: vec![None; batches.len()], batches, ended: Vec::new() }
    }

    /// The durations of those of these clients, shortest first.
    fn durations(&self, of: impl Fn(usize) -> bool) -> Vec<Picos> {
        let mut took: Vec<_> =
            self.ended.iter().filter(|(client, ..)| of(*client)).map(|(_, _, took)| *took).collect();
        took.sort_unstable();
        took
    }
}

impl Clients for Each {
    fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Step {
        if let Some(begun) = self.begun[client].take() {
            self.ended.push((client, now, now - begun));
            return Step::Ended;
        }
        self.begun[client] = Some(now);
        requests.extend_from_slice(&self.batches[client]);
        Step::Post
    }

    fn serve(&mut self, _: usize, _: Range<usize>) -> Picos {
        0
    }
}

/// A READ of `bytes` bytes.
fn read(to: Target, bytes: u32) -> Request {
    Request { to, verb: Verb::Read, bytes }
}

/// A message to a memory node, which takes a core 100 us.
fn call(node: u16) -> Request {
    Request {
        to: Target::Memory(node),
        verb: Verb::Call { service: 100_000_000, reply: 16, core: None },
        bytes: 64,
    }
}

#[test]
fn reads_do_not_wait_for_cores_that_serve_calls() {
    let nic = NicSpec::CX6_100G;
    let hosts = Hosts { compute_nodes: 2, threads: 2, cores: 2, ..Hosts::paper(nic) };
    // One client of each node calls, the other READs.
    let batch = |client| vec![if client < 2 { call(0) } else { read(Target::Memory(0), 64) }];
    let mut clients = Each::new((0..hosts.clients()).map(batch).collect());
    World::new(hosts).run(&mut clients, 20_000);
    let took = clients.durations(|client| client >= 2);
    // At each stage another's message may be under way, one of a call or of a READ.
    let longest = nic.unloaded_read(64) + 6 * nic.bytes(64) + 40_000;
    assert!(took[took.len() - 1] <= longest, "{} instead of {longest}", took[took.len() - 1]);
    let calls = clients.durations(|client| client < 2);
    assert!(calls.len() > 10 && calls[0] > 100_000_000, "{calls:?}");
}

#[test]
fn a_reply_of_a_batch_does_not_wait_for_that_of_a_call_in_it() {
    let nic = NicSpec::CX6_100G;
    let mut clients = Each::new(vec![vec![call(0), read(Target::Memory(0), 4096)]]);
    World::new(alone(nic)).run(&mut clients, 10);
    // The call is back long after the READ, whose bytes it would have met at the port.
    let replied = 100_000_000 + period(nic.issued_per_second);
    let call = nic.unloaded_read(16) + nic.bytes(64) - nic.bytes(0) + replied + nic.request;
    let took = clients.durations(|_| true)[0];
    assert!(took.abs_diff(call) <= nic.completion + 20, "{took} instead of {call}");
}

#[test]
fn the_reply_of_a_call_does_not_wait_for_those_of_what_is_served_later() {
    let nic = NicSpec { atomics_per_second: 10e6, ..NicSpec::CX6_100G };
    let hosts = Hosts { compute_nodes: 2, ..alone(nic) };
    // The core is done with the call while the card serves atomics for 150 us.
    let atomic = Request { verb: Verb::Atomic, ..read(Target::Memory(0), 8) };
    let mut clients = Each::new(vec![vec![call(0)], vec![atomic; 1_500]]);
    World::new(hosts).run(&mut clients, 2);
    let replied = 100_000_000 + period(nic.issued_per_second);
    let foretold = nic.unloaded_read(16) + nic.bytes(64) - nic.bytes(0) + replied;
    let took = clients.durations(|client| client == 0)[0];
    assert!(took.abs_diff(foretold) <= nic.completion + 50_000, "{took} instead of {foretold}");
    assert!(clients.durations(|client| client == 1)[0] > foretold + 50_000_000, "{:?}", clients.ended);
}

#[test]
fn replies_of_one_node_do_not_wait_for_later_ones_of_another() {
    let nic = NicSpec::CX6_100G;
    let hosts = Hosts { threads: 2, memory_nodes: 2, ..alone(nic) };
    // A reply of 97 us is as long on its way from the one node, before it takes the client's port.
    let long = read(Target::Memory(0), 1_000_000);
    let mut clients = Each::new(vec![vec![long], vec![read(Target::Memory(1), 8)]]);
    World::new(hosts).run(&mut clients, 1_000);
    let took = clients.durations(|client| client == 1);
    let (middle, foretold) = (took[took.len() / 2], nic.unloaded_read(8));
    assert!(middle.abs_diff(foretold) <= 4, "{middle} instead of {foretold}");
}

#[test]
fn requests_to_a_compute_node_do_not_wait_for_later_replies_to_it() {
    let nic = NicSpec::CX6_100G;
    let hosts = Hosts { compute_nodes: 2, ..alone(nic) };
    // Node 0 READs much, whose reply is 97 us on its way before it takes the port, and node 1 READs
    // little of node 0.
    let batches = vec![vec![read(Target::Memory(0), 1_000_000)], vec![read(Target::Compute(0), 8)]];
    let mut clients = Each::new(batches);
    World::new(hosts).run(&mut clients, 1_000);
    let took = clients.durations(|client| client == 1);
    let (middle, foretold) = (took[took.len() / 2], nic.unloaded_read(8));
    assert!(middle.abs_diff(foretold) <= 4, "{middle} instead of {foretold}");
}

#[test]
fn a_doorbell_has_one_completion() {
    let nic = NicSpec::CX6_100G;
    for count in [1, 2, 33] {
        let mut clients = Each::new(vec![vec![read(Target::Memory(0), 8); count as usize]]);
        World::new(alone(nic)).run(&mut clients, 10);
        let further = nic.request + period(nic.issued_per_second) + period(nic.served_per_second);
        let foretold = nic.unloaded_read(8) + (count - 1) * further;
        let took = clients.durations(|_| true)[9];
        assert!(took.abs_diff(foretold) <= 4, "{count}: {took} instead of {foretold}");
    }
}

#[test]
fn what_ended_before_a_client_waited_takes_its_thread_time() {
    /// Two clients that take turns: each waits, after its operation, until that of the other has
    /// ended.
    struct Turns {
        begun: [bool; 2],
        turn: usize,
        woken: Option<usize>,
        ended_at: Vec<Picos>,
    }
    impl Clients for Turns {
        fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Step {
            if std::mem::replace(&mut self.begun[client], false) {
                (self.turn, self.woken) = (1 - client, Some(1 - client));
                self.ended_at.push(now);
                return Step::Ended;
            }
            if self.turn != client {
                return Step::Waits;
            }
            self.begun[client] = true;
            requests.push(read(Target::Memory(0), 8));
            Step::Post
        }

        fn serve(&mut self, _: usize, _: Range<usize>) -> Picos {
            0
        }

        fn next_woken(&mut self) -> Option<usize> {
            self.woken.take()
        }
    }
    let nic = NicSpec::CX6_100G;
    let hosts = Hosts { threads: 2, operation: 1_000_000, ..alone(nic) };
    let mut clients = Turns { begun: [false; 2], turn: 0, woken: None, ended_at: Vec::new() };
    World::new(hosts).run(&mut clients, 6);
    let (took, foretold) =
        (clients.ended_at[5] - clients.ended_at[4], nic.unloaded_read(8) + hosts.operation);
    assert!(took.abs_diff(foretold) <= 4, "{took} instead of {foretold}");
}

#[test]
fn two_runs_are_the_same_to_the_picosecond() {
    let run = |memory_nodes: u16| {
        let hosts = Hosts { memory_nodes, ..Hosts::paper(NicSpec::CX6_100G) };
        let batch = |client: usize| {
            let node = client as u16 % memory_nodes;
            let mut batch =
                vec![read(Target::Memory(node), 300), read(Target::Memory((node + 1) % memory_nodes), 8)];
            match client % 8 {
                0 => batch.push(call(node)),
                1 => batch.push(read(Target::Compute(node), 64)),
                _ => {}
            }
            batch
        };
        let mut clients = Each::new((0..hosts.clients()).map(batch).collect());
        World::new(hosts).run(&mut clients, 50_000);
        clients.ended
    };
    for memory_nodes in [1, 2, 3] {
        assert_eq!(run(memory_nodes), run(memory_nodes));
    }
}

#[test]
fn an_unknown_card_is_answered_with_the_list() {
    let error = NicSpec::named("cx9").unwrap_err().to_string();
    assert!(NicSpec::ALL.iter().all(|spec| error.contains(spec.name)), "{error}");
}
