use super::*;
use crate::cli::Command;
use crate::cli::testing::{assert_refused, command};

fn parse(options: &str) -> Result<RunArgs, String> {
    let Command::Run(arguments) = command("run", options)? else { panic!("no `run`") };
    arguments.validate().map(|()| *arguments).map_err(|error| error.to_string())
}

#[test]
fn defaults_measure_all_systems() {
    let arguments = parse("--dataset ipv4").unwrap();
    assert_eq!(
        arguments.distinct_systems(),
        [SystemName::Fpcache, SystemName::Hashmap, SystemName::Btreemap]
    );
    assert_eq!((arguments.lookups, arguments.batch, arguments.threads), (2_000_000, 1, 1));
    assert_eq!(arguments.table(&KeyLengths::every(8)), TableParameters::default());
}

#[test]
fn what_makes_no_sense_is_refused_with_what_does() {
    let cases = [
        ("", "--dataset"),
        ("--dataset facebook", "fb:16M"),
        ("--dataset ipv4 --system redis", "hashmap"),
        ("--dataset ipv4 --system fpcache-client", "add it with --system"),
        ("--dataset ipv4 --plan three-stage", "two-stage"),
        // It measured another plan under that name.
        ("--dataset ipv4 --plan at-node", "--transport tcp"),
        ("--dataset ipv4 --dist pareto", "zipf:0.99"),
        ("--dataset ipv4 --negative 1.5", "0 to 1"),
        ("--dataset ipv4 --negative=-0.1", "0 to 1"),
        ("--dataset ipv4 --negative nan", "0 to 1"),
        ("--dataset ipv4 --lookups 0", "above 0"),
        ("--dataset ipv4 --batch 0", "1..=65536"),
        ("--dataset ipv4 --threads 0", "1..=1024"),
        ("--dataset ipv4 --value-bytes 0", "1..=65536"),
        ("--dataset ipv4 --value-bytes 65537", "1..=65536"),
        ("--dataset ipv4 --value-bytes vary:0", "vary:64"),
        ("--dataset words --key-bytes 0", "1..=4096"),
        ("--dataset words --key-bytes 5000", "1..=4096"),
        ("--dataset words --unsorted any", "refuse"),
        ("--dataset ipv4 --fill 1.01", "0.85"),
        ("--dataset ipv4 --fill 0", "0.85"),
        ("--dataset ipv4 --epsilon 5000", "4096"),
        ("--dataset ipv4 --fingerprint-bits 12", "8, 16, 32 or 64"),
        ("--dataset ipv4 --transport pigeons", "local"),
        ("--dataset ipv4 --transport nic:cx6-100g", "fpcache-eval run"),
        ("--dataset ipv4 --clients 384", "nic:cx6-100g"),
        ("--dataset ipv4 --system fpcache,smart", "nic:cx6-100g"),
        ("--dataset ipv4 --duplicates some", "first"),
        ("--dataset ipv4 --capacity much", "4GiB"),
        ("--dataset ipv4 --lookups 10 --batch 32", "smaller batch"),
        ("--dataset ipv4 --cache 0", "8MiB"),
        ("--dataset ipv4 --cache much", "8MiB"),
        ("--dataset ipv4 --cache 8MiB --policy oldest", "lru"),
        ("--dataset ipv4 --cache 8MiB --variant fdf", "full"),
        ("--dataset ipv4 --cache 8MiB --on-conflict panic", "cheapest"),
        ("--dataset ipv4 --policy lru", "--cache"),
        ("--dataset ipv4 --variant f", "--cache"),
        ("--dataset ipv4 --on-conflict range", "--cache"),
        ("--dataset ipv4 --cold", "--cache"),
        ("--dataset ipv4 --cold --cache none", "--cache"),
        ("--dataset ipv4 --cache 8MiB --system hashmap", "fpcache"),
        ("--dataset ipv4 --shift-every 0", "above 0"),
        ("--dataset ipv4 --shift-every 2M", "more lookups"),
        ("--dataset ipv4 --timeline 0", "above 0"),
        ("--dataset ipv4 --timeline 3M", "2000000"),
        ("--dataset ipv4 --timeline 1", "between 200 lookups"),
        ("--dataset ipv4 --timeline 200 --batch 300", "smaller batch"),
        ("--dataset ipv4 --url shm://x --epsilon 8", "--url"),
        ("--dataset ipv4 --url shm://x --store-dir x", "--store-dir"),
        ("--dataset ipv4 --transport local --store-dir x", "--transport"),
        ("--dataset ipv4 --fsync always", "--store-dir"),
        ("--dataset ipv4 --store-dir x --fsync often", "10ms"),
        ("--dataset ipv4 --url x", "shm://"),
        ("--dataset ipv4 --url shm://x --system hashmap", "--system"),
    ];
    assert_refused(parse, &cases);
}

#[test]
fn a_system_named_twice_is_measured_once() {
    let arguments = parse("--dataset ipv4 --system hashmap,fpcache,hashmap").unwrap();
    assert_eq!(arguments.distinct_systems(), [SystemName::Hashmap, SystemName::Fpcache]);
}
