//! The model against closed forms.

use std::ops::Range;

use super::{Bound, Clients, Hosts, NicSpec, Picos, Request, Step, Target, Verb, World};

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
    let (calls, bound) = rate(hosts, Verb::Call { service: 1_000_000, reply: 16 }, 64);
    assert!((calls / (f64::from(hosts.cores) * 1e6) - 1.0).abs() < 0.01, "{calls}");
    assert_eq!(bound, Bound::Cpu);
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

#[test]
fn two_runs_are_the_same_to_the_picosecond() {
    let run = || {
        let hosts = Hosts::paper(NicSpec::CX6_100G);
        let mut clients = Same::new(&hosts, Verb::Read, 300);
        World::new(hosts).run(&mut clients, 50_000);
        clients.ended_at
    };
    assert_eq!(run(), run());
}

#[test]
fn an_unknown_card_is_answered_with_the_list() {
    let error = NicSpec::named("cx9").unwrap_err().to_string();
    assert!(NicSpec::ALL.iter().all(|spec| error.contains(spec.name)), "{error}");
}
