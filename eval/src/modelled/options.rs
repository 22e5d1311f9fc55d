//! The options of `run` in the model: what they mean, and which of them mean nothing there.

use anyhow::{Context, ensure};
use fpcache::fingerprint::WidthChoice;
use fpcache_client::{Plan, PlanChoice};
use fpcache_datasets::KeyKind;
use fpcache_datasets::count::{human, human_bytes};
use fpcache_workbench::Sizes;
use fpcache_workbench::experiment;
use fpcache_workbench::nic::{Hosts, NicSpec};

use crate::machine::free_memory;
use crate::pages::MemoryPages;
use crate::run::cache::Budget;
use crate::run::options::RunArgs;
use crate::sweep::points::Over;
use crate::systems::SystemName;

/// Compute nodes that clients are spread over, and clients without `--clients`: those of the
/// FPCache paper.
const COMPUTE_NODES: u32 = 6;
const CLIENTS: u32 = 384;

/// The systems, of which the maps of a plain `run` are none.
pub fn systems(arguments: &RunArgs) -> anyhow::Result<Vec<SystemName>> {
    let all = arguments.distinct_systems();
    if all == [SystemName::Fpcache, SystemName::Hashmap, SystemName::Btreemap] {
        return Ok(vec![SystemName::Fpcache]);
    }
    let other = all.iter().find(|system| !system.is_modelled() && **system != SystemName::Fpcache);
    ensure!(
        other.is_none(),
        "--system {}: it does not run in the model of network cards: use {}",
        other.map_or("", |other| other.as_str()),
        experiment::SystemName::ALL.map(experiment::SystemName::name).join(", ")
    );
    Ok(all)
}

/// Operations that fill caches.
pub fn warm_up(arguments: &RunArgs) -> u64 {
    arguments.model.warm_up.unwrap_or(arguments.lookups)
}

/// All operations.
pub fn operations(arguments: &RunArgs) -> u64 {
    warm_up(arguments).saturating_add(arguments.lookups)
}

/// Refuses options of FPCache's where its parameters are to be those of `--parameters`, as those of
/// all others are; what is swept is fixed for all that have it.
///
/// # Errors
/// Names the option.
pub fn check_parameters(arguments: &RunArgs, over: Option<Over>) -> anyhow::Result<()> {
    if arguments.model.parameters.is_none() || !systems(arguments)?.contains(&SystemName::Fpcache) {
        return Ok(());
    }
    for (option, is_given) in [
        ("--epsilon", arguments.epsilon != RunArgs::EPSILON && over != Some(Over::Epsilon)),
        ("--fingerprint-bits", arguments.fingerprint_bits != WidthChoice::default()),
        ("--fill", arguments.fill.is_some()),
        ("--groups", arguments.groups.is_some()),
        ("--plan", arguments.plan != PlanChoice::Auto),
        ("--variant", arguments.cache.variant.is_some()),
    ] {
        ensure!(
            !is_given,
            "{option} is a parameter of fpcache, which --parameters chooses as it does those of the others: omit either"
        );
    }
    Ok(())
}

/// Bytes of keys and values; refuses what the model does not have.
pub fn sizes(arguments: &RunArgs) -> anyhow::Result<Sizes> {
    let RunArgs { cache, .. } = arguments;
    // What is swept over cards has none of its own.
    let transport = arguments.transport.card().map_or("nic:…", |_| arguments.transport.as_str());
    ensure!(
        arguments.dataset.key_kind() == KeyKind::U64,
        "--dataset {}: with {transport} integers stand for keys of --key-bytes: use fb, wiki, uniform or another set of these",
        arguments.dataset
    );
    let others = [
        ("--batch", arguments.batch != 1, "every client looks up one key at a time"),
        ("--threads", arguments.threads != 1, "use --clients"),
        ("--timeline", arguments.timeline.is_some(), "`fpcache-eval paper --figure 10` has one"),
        ("--url", arguments.url.is_some(), "the memory node is modelled"),
        ("--store-dir", arguments.store.store_dir.is_some(), "the memory node is modelled"),
        ("--spin", arguments.spin.is_some(), "threads pay for completions as the card says"),
        ("--pages", arguments.pages != MemoryPages::default(), "the memory node is modelled"),
        ("--capacity", arguments.capacity.is_some(), "regions are as large as their tables"),
        (
            "--rounds",
            arguments.rounds != RunArgs::ROUNDS,
            "a second run of a seed gives the same: use --seeds",
        ),
        (
            "--cache none",
            matches!(cache.budget, Some(Budget(None))),
            "the systems are compared within a budget: write a size",
        ),
        ("--inline-bytes", arguments.inline_bytes.is_some(), "all values lie beside their keys"),
        (
            "--fingerprint-bits none",
            arguments.fingerprint_bits == WidthChoice::None,
            "the modelled segments have fingerprints; --system range reads slots alone",
        ),
        ("--policy", cache.policy.is_some(), "the hot cache goes by heat"),
        ("--on-conflict", cache.on_conflict.is_some(), "lookups go on by what is cheapest"),
        (
            "--shift-every",
            arguments.shift_every.is_some_and(|every| every >= operations(arguments)),
            "there are no more lookups than those of --warm-up and --lookups, before the end of which no other keys become popular",
        ),
        ("--cold", cache.cold, "caches are filled by the lookups of --warm-up"),
    ];
    for (option, is_given, because) in others {
        ensure!(!is_given, "{option}: not with {transport}: {because}");
    }
    let is_plan = arguments.plan != PlanChoice::Fixed(Plan::AtNode);
    ensure!(is_plan, "--plan: with {transport} there are auto, two-stage, range, speculative and groups");
    let value = arguments
        .value_bytes
        .fixed()
        .context("--value-bytes: values have one length in the model: write a number")?;
    let (key, value) = (arguments.key_bytes.unwrap_or(8), value as usize);
    ensure!(key >= 8 && value >= 8, "--key-bytes and --value-bytes: 8 or more in the model");
    Ok(Sizes { key, value })
}

/// The machines: as many clients on each compute node.
pub fn hosts(arguments: &RunArgs, nic: NicSpec) -> anyhow::Result<Hosts> {
    let clients = arguments.clients.unwrap_or(CLIENTS);
    let nodes = clients.min(COMPUTE_NODES);
    ensure!(
        clients.is_multiple_of(nodes),
        "--clients {clients}: six compute nodes have as many each: use {}",
        clients.next_multiple_of(nodes)
    );
    let (compute_nodes, threads) = (u16::try_from(nodes)?, u16::try_from(clients / nodes)?);
    let (memory_nodes, cores) = (u16::try_from(arguments.nodes)?, arguments.model.cores.unwrap_or(1));
    Ok(Hosts { compute_nodes, threads, memory_nodes, cores, ..Hosts::paper(nic) })
}

/// Operations that each client does in the mean at least: what all of them have under way in the
/// end is not measured.
const LEAST_OF_A_CLIENT: u64 = 10;

/// Refuses so few operations that next to nothing is measured; `option` is the one that says how
/// many.
pub fn check_length(option: &str, operations: u64, hosts: &Hosts) -> anyhow::Result<()> {
    let least = LEAST_OF_A_CLIENT * hosts.clients() as u64;
    ensure!(
        operations >= least,
        "{option}: {operations} are too few for {} clients: use {least} or more, or fewer --clients",
        hosts.clients()
    );
    Ok(())
}

/// Whether there is memory for any of the systems, before it is looked for.
pub fn check_memory(systems: &[SystemName], sizes: Sizes, keys: u64, operations: u64) -> anyhow::Result<()> {
    // A request, its key while they are drawn, and what is expected of it.
    const OPERATION: u64 = 40;
    let of = |system: &SystemName| {
        let name: Result<experiment::SystemName, _> = system.as_str().parse();
        name.map_or(0, |name| name.host_bytes(sizes)) as u64
    };
    let each = systems.iter().map(of).max().unwrap_or(0) + 8;
    let of_operations = operations.saturating_mul(OPERATION);
    let (needs, free) = ((each * keys).saturating_add(of_operations), free_memory()?);
    let fits = free.saturating_sub(of_operations) / each;
    ensure!(
        needs <= free,
        "{} keys of {}/{} B and {} operations take about {} of this machine, which has {} free: use {}",
        human(keys),
        sizes.key,
        sizes.value,
        human(operations),
        human_bytes(needs),
        human_bytes(free),
        if fits == 0 { "fewer --lookups".to_owned() } else { format!("{} keys", human(fits)) }
    );
    Ok(())
}
