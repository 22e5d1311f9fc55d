//! The costs of reading external values.

use super::*;

/// What a key's lookup costs by a plan, if all it needs is its slot.
fn slot_cost(built: &Built<U64Keys>, view: &TableView<U64Keys>, plan: Plan, key: u64) -> Cost {
    let (probe, geometry) = (cache_probe(view, &key).unwrap(), view.geometry());
    let slot = geometry.slot_bytes as u64;
    let fingerprints = geometry.fingerprint_span(probe.window).len as u64;
    let at_home = built.slot_of(&key).0 == probe.slots + u64::from(probe.predicted) * slot;
    let (round_trips, reads, bytes) = match plan {
        Plan::Range => (1, 1, u64::from(probe.window.len()) * slot),
        Plan::Speculative if at_home => (1, 2, fingerprints + slot),
        Plan::Speculative => (2, 3, fingerprints + 2 * slot),
        Plan::Cached => (1, 1, slot),
        _ => (2, 2, fingerprints + slot),
    };
    Cost { round_trips, reads, bytes, ..Cost::default() }
}

/// What a value costs on top.
fn value_cost(value: &[u8]) -> Cost {
    match value.len() > ROOM as usize - 8 {
        true => Cost {
            round_trips: 1,
            reads: 1,
            bytes: value.len().next_multiple_of(8) as u64,
            ..Cost::default()
        },
        false => Cost::default(),
    }
}

#[test]
fn an_external_value_is_one_more_read_and_one_more_round_trip_by_any_plan() {
    let built = mixed();
    for plan in PLANS {
        let table = by(&built, plan);
        let keys: Vec<u64> = built.records.keys().copied().collect();
        let grouped = get_in_group(&mut built.endpoint(), &table, &keys).unwrap();
        for ((key, value), (in_group, found)) in built.records.iter().zip(grouped) {
            let mut expected = slot_cost(&built, table.view(), plan, *key);
            expected += value_cost(value);
            let mut endpoint = built.endpoint();
            let (alone, got) = get(&mut endpoint, &table, key).unwrap();
            assert_eq!((alone.cost, got.as_ref()), (expected, Some(value)), "{key} by {plan:?}");
            assert_eq!(
                (in_group.cost, found.as_ref()),
                (expected, Some(value)),
                "{key} in a group, {plan:?}"
            );
            let counted = endpoint.meter().snapshot();
            assert_eq!((counted.reads, counted.bytes_from), (expected.reads.into(), expected.bytes));
            assert_eq!(counted.round_trips, u64::from(expected.round_trips));
        }
    }
}

#[test]
fn a_group_waits_for_its_long_values_together() {
    let built = mixed();
    let keys: Vec<u64> = built.records.keys().copied().collect();
    for (plan, most) in [(Plan::TwoStage, 3), (Plan::Range, 2), (Plan::Speculative, 3)] {
        let (table, mut endpoint) = (by(&built, plan), built.endpoint());
        get_in_group(&mut endpoint, &table, &keys).unwrap();
        assert_eq!(endpoint.meter().snapshot().round_trips, most, "{plan:?}");
    }
}

#[test]
fn the_hot_cache_names_slots_of_long_values_too() {
    let built = mixed();
    let cache = Some(CacheConfig::of(1 << 20));
    let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Fixed(Plan::TwoStage)) };
    let table = Table::<U64Keys>::open(&mut built.endpoint(), &options).unwrap();
    let handle = table.cache().unwrap().handle(1);
    let (mut scratch, mut endpoint) =
        (LookupScratch::new(Matcher::detect()).with_cache_handle(handle), built.endpoint());
    for round in 0..2 {
        for (key, value) in &built.records {
            let take = |outcome: &Outcome, got: Option<&[u8]>| {
                assert_eq!(got, Some(&value[..]));
                outcome.clone()
            };
            let outcome = look_up(&mut endpoint, &table, &mut scratch, key, take).unwrap();
            if round == 1 && outcome.plan == Plan::Cached {
                let mut expected = slot_cost(&built, table.view(), Plan::Cached, *key);
                expected += value_cost(value);
                assert_eq!(outcome.cost, expected);
            }
        }
    }
    let stats = table.cache_stats().unwrap();
    assert!(stats.hits > 250 && stats.conflicts < 50, "{stats:?}");
}

#[test]
fn whether_a_key_is_there_is_known_without_its_value() {
    let built = mixed();
    for plan in PLANS {
        let (table, mut endpoint) = (by(&built, plan), built.endpoint());
        let mut scratch = LookupScratch::new(Matcher::detect());
        for key in built.records.keys() {
            let outcome = contains(&mut endpoint, &table, &mut scratch, key, Outcome::clone).unwrap();
            assert_eq!(outcome.version, Some(1));
            assert_eq!(outcome.cost, slot_cost(&built, table.view(), plan, *key));
            let absent = contains(&mut endpoint, &table, &mut scratch, &(key + 1), Outcome::clone).unwrap();
            assert_eq!(absent.version, None);
        }
        // Wherever the value may be.
        built.rewrite(&KEY, 2, &Stored::External(ValueExtent { checksum: 1, ..built.extent_of(&KEY) }));
        let outcome = contains(&mut endpoint, &table, &mut scratch, &KEY, Outcome::clone).unwrap();
        assert_eq!(outcome.version, Some(2));
        built.rewrite(&KEY, 1, &Stored::External(extent_of(&built, &built.records[&KEY])));
    }
}

#[test]
fn a_scan_reads_the_long_values_of_the_records_it_keeps_and_no_others() {
    let built = mixed();
    let view = TableView::<U64Keys>::open(&mut built.endpoint()).unwrap();
    for (limit, start) in [(1, KEY), (7, KEY), (40, 0), (299, 6)] {
        let mut endpoint = built.endpoint();
        let Scanned { records, cost, uncovered, ended } = scan(&mut endpoint, &view, &start, limit);
        ended.unwrap();
        let expected: Vec<_> = built.records.range(start..).take(limit).collect();
        assert!(records.iter().map(|(key, value)| (key, value)).eq(expected.iter().copied()));
        assert_eq!(uncovered, None);
        let without = cost_with_short_values(&built, &view, start, limit);
        let values: u64 = expected.iter().map(|(_, value)| value_cost(value).bytes).sum();
        let reads: u32 = expected.iter().map(|(_, value)| value_cost(value).reads).sum();
        assert_eq!((cost.bytes, cost.reads), (without.bytes + values, without.reads + reads), "{limit}");
        let counted = endpoint.meter().snapshot();
        assert_eq!((counted.reads, counted.bytes_from), (cost.reads.into(), cost.bytes));
        assert_eq!(counted.round_trips, u64::from(cost.round_trips));
    }
}

/// What the same scan would cost if all values lay in their slots.
fn cost_with_short_values(
    built: &Built<U64Keys>,
    view: &TableView<U64Keys>,
    start: u64,
    limit: usize,
) -> Cost {
    let kept: Vec<_> =
        built.records.iter().filter(|(_, value)| value_cost(value).reads > 0).map(|(key, _)| *key).collect();
    let extents: Vec<_> = kept.iter().map(|key| built.extent_of(key)).collect();
    kept.iter().for_each(|key| built.rewrite(key, 1, &Stored::Here(b"short")));
    let cost = scan(&mut built.endpoint(), view, &start, limit).cost;
    kept.iter().zip(extents).for_each(|(key, extent)| built.rewrite(key, 1, &Stored::External(extent)));
    cost
}

#[test]
fn a_scan_asks_for_a_quarter_of_a_mebibyte_at_a_time_or_for_one_value() {
    let bytes = |i: u64| [100_000, 30_000, 400_000, 10][i as usize % 4];
    let records: Records<U64Keys> = (0..20).map(|i| (i * 10, value(i, bytes(i)))).collect();
    let built = Built::<U64Keys>::new(records, parameters(Some(8)));
    let view = TableView::<U64Keys>::open(&mut built.endpoint()).unwrap();
    let Scanned { records, cost, ended, .. } = scan(&mut built.endpoint(), &view, &0, 100);
    ended.unwrap();
    assert!(records.into_iter().eq(built.records.clone()));
    // Slots; the two before a long one, and that one, five times.
    assert_eq!((cost.round_trips, cost.reads), (1 + 5 * 2, built.descriptors.len() as u32 + 5 * 3));
}

#[test]
fn keys_alone_cost_no_values_in_either_direction() {
    let built = mixed();
    let view = TableView::<U64Keys>::open(&mut built.endpoint()).unwrap();
    for is_down in [false, true] {
        let mut scratch = ScanScratch::default();
        let mut scan = Scan::new(&view, &mut scratch, &0, 1000).of_keys();
        if is_down {
            scan = scan.descending();
        }
        drive(&mut built.endpoint(), &mut scan).unwrap();
        let mut keys: Vec<u64> = scan.records().map(|(key, _)| *key).collect();
        if is_down {
            keys.reverse();
        }
        assert!(keys.iter().eq(built.records.keys()));
        assert_eq!((scan.cost().round_trips, scan.cost().reads), (1, built.descriptors.len() as u32));
    }
}

#[test]
fn a_scan_of_values_without_end_stops_to_have_them_taken() {
    let records: Records<U64Keys> = (0..9).map(|i| (i, value(i, 4_200_000))).collect();
    let built = Built::<U64Keys>::new(records, parameters(Some(8)));
    let view = TableView::<U64Keys>::open(&mut built.endpoint()).unwrap();
    let (mut next, mut found, mut scans) = (Some(0), Vec::new(), 0);
    while let Some(start) = next {
        let Scanned { records, uncovered, ended, .. } = scan(&mut built.endpoint(), &view, &start, 100);
        ended.unwrap();
        assert!(records.len() <= 4);
        found.extend(records);
        (next, scans) = (uncovered, scans + 1);
    }
    assert!(scans == 3 && found.into_iter().eq(built.records.clone()));
}

#[test]
fn values_of_a_group_that_are_too_long_together_come_in_several_round_trips() {
    let records: Records<U64Keys> = (0..5).map(|i| (i, vec![i as u8; MAX_VALUE_BYTES])).collect();
    let built = Built::<U64Keys>::new(records, parameters(Some(8)));
    let (table, mut endpoint) = (by(&built, Plan::Range), built.endpoint());
    let found = get_in_group(&mut endpoint, &table, &[0, 1, 2, 3, 4]).unwrap();
    assert_eq!(endpoint.meter().snapshot().round_trips, 3);
    for (i, (outcome, value)) in found.into_iter().enumerate() {
        assert!(value.is_some_and(|v| v.len() == MAX_VALUE_BYTES && v.iter().all(|b| *b == i as u8)));
        assert_eq!(outcome.cost.round_trips, if i < 4 { 2 } else { 3 });
    }
}
