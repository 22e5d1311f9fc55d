//! Tables without records: what can be done with them, and what the first write decides.

use super::*;

/// Everything a client can ask of a table finds nothing.
fn finds_nothing<K: TestKeys>(client: &TableClient<K>) {
    let keys = [K::key(1), K::key(2)];
    assert_eq!(client.get(K::key(1)).unwrap(), None);
    assert_eq!(client.get_versioned(K::key(1)).unwrap(), None);
    assert!(!client.contains(K::key(1)).unwrap());
    assert_eq!(client.multi_get(&keys).unwrap(), [None, None]);
    assert_eq!(client.multi_contains(&keys).unwrap(), [false, false]);
    assert!(client.scan(K::key(0), 10).unwrap().is_empty());
    assert!(client.scan_back(K::key(9), 10).unwrap().is_empty());
    assert_eq!(client.floor(K::key(1)).unwrap(), None);
    assert_eq!(client.multi_ceiling(&keys).unwrap(), [None, None]);
    assert_eq!((client.first().unwrap(), client.last().unwrap()), (None, None));
    assert_eq!(client.count_from(K::key(0)).unwrap(), 0);
    assert_eq!(client.reader().get(K::key(1)).unwrap(), None);
}

/// An empty table is read, written and loaded into, whatever made it.
fn an_empty_table_is_of_use<K: TestKeys>() {
    let node = Node::start(64 << 20);
    let tables = node.tables();
    let made = |table: &str| {
        tables.create(&name(table), kind::<K>(), any()).unwrap();
        node.client::<K>(table)
    };

    // Made by its name alone.
    let written = made("written");
    finds_nothing(&written);
    assert!(!written.delete(K::key(5)).unwrap());
    finds_nothing(&written);
    written.put(K::key(5), &[7; 8]).unwrap();
    assert_eq!(node.client::<K>("written").get(K::key(5)).unwrap(), Some(vec![7; 8]));
    let posted = made("posted");
    let mut pipeline = posted.pipeline(2).unwrap();
    pipeline.put(K::key(5), &[7; 8]).unwrap();
    assert!(pipeline.finish().into_iter().all(|completed| completed.outcome.is_ok()));
    assert_eq!(posted.get(K::key(5)).unwrap(), Some(vec![7; 8]));
    let loaded = made("loaded");
    finds_nothing(&loaded);
    crate::common::load(&loaded, K::parameters(), 0..500, 1).unwrap();
    assert_eq!(loaded.count_from(K::key(0)).unwrap(), 500);

    // With parameters.
    let created = made("created");
    created.create(K::parameters()).unwrap();
    created.create(K::parameters()).unwrap();
    finds_nothing(&created);
    let other = TableParameters { epsilon: 8, ..K::parameters() };
    for error in [created.create(other).unwrap_err(), created.load(other, 0).map(drop).unwrap_err()] {
        assert!(matches!(error, ClientError::OtherParameters { .. }), "{error}");
    }
    let loaded = crate::common::load(&created, K::parameters(), 0..5_000, 1).unwrap();
    assert_eq!((loaded.keys, created.count_from(K::key(0)).unwrap()), (5_000, 5_000));
    let shape = K::parameters().shape;
    assert_eq!(created.get(K::key(77)).unwrap(), Some(value_in(&shape, 77, 1)));

    // It holds records now, and none when they are removed.
    let error = created.create(K::parameters()).unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused(refusal) if refusal.code == RefusalCode::NotEmpty),
        "{error}"
    );
    for number in 0..5_000 {
        created.delete(K::key(number)).unwrap();
    }
    let mut load = created.load(K::parameters(), 0).unwrap();
    load.push(K::key(2), &[1; 8]).unwrap();
    let error = load.push(K::key(2), &[1; 8]).unwrap_err();
    assert!(error.to_string().contains("ascending"), "{error}");
}

/// They were compared before they were rounded as they are stored, and taken for others.
#[test]
fn parameters_that_are_rounded_when_stored_are_those_of_the_table_that_has_them() {
    let node = Node::start(64 << 20);
    let of = TableParameters::default();
    let narrow = FingerprintWidth::Bits8;
    for (at, parameters) in [
        TableParameters { fill: 1.0 / 3.0, ..of },
        TableParameters { width: narrow, stores_fingerprints: false, ..of },
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("t{at}");
        node.tables().create(&name(&table), kind::<U64Keys>(), any()).unwrap();
        let client = node.client::<U64Keys>(&table);
        client.create(parameters).unwrap();
        client.create(parameters).unwrap();
        let loaded = crate::common::load(&client, parameters, 0..500, 1).unwrap();
        assert_eq!((loaded.keys, client.count_from(0).unwrap()), (500, 500));
    }
}

/// They were told beside those that differ.
#[test]
fn parameters_that_are_rounded_when_stored_are_not_told_to_differ() {
    let node = Node::start(64 << 20);
    node.tables().create(&name("t"), kind::<U64Keys>(), any()).unwrap();
    let client = node.client::<U64Keys>("t");
    let parameters = TableParameters { fill: 1.0 / 3.0, ..TableParameters::default() };
    client.create(parameters).unwrap();
    let other = TableParameters { epsilon: parameters.epsilon / 2, ..parameters };
    let refusals = [client.load(other, 0).map(drop).unwrap_err(), client.create(other).unwrap_err()];
    for error in refusals {
        let told = error.to_string();
        assert!(matches!(error, ClientError::OtherParameters { .. }), "{told}");
        assert!(told.contains("epsilon") && !told.contains("fill 0"), "{told}");
    }
}

#[test]
fn an_empty_table_of_integers_can_be_read_written_and_loaded_into() {
    an_empty_table_is_of_use::<U64Keys>();
}

#[test]
fn an_empty_table_of_byte_strings_can_be_read_written_and_loaded_into() {
    an_empty_table_is_of_use::<ByteKeys>();
}

#[test]
fn first_writes_that_come_at_once_all_take_effect() {
    let node = Node::start(64 << 20);
    for round in 0..20 {
        let table = format!("t{round}");
        node.tables().create(&name(&table), KeyKind::U64, any()).unwrap();
        let shared = node.client::<U64Keys>(&table);
        let clients = [shared.clone(), shared, node.client(&table), node.client(&table)];
        thread::scope(|scope| {
            for (key, client) in clients.iter().enumerate() {
                scope.spawn(move || client.put(key as u64, &[1; 8]).unwrap());
            }
        });
        assert_eq!(clients[0].count_from(0).unwrap(), 4, "round {round}");
    }
}

#[test]
fn a_first_write_decides_about_values_unless_it_is_refused() {
    let node = Node::start(16 << 20);
    let table = |at: usize| {
        let table = format!("t{at}");
        node.tables().create(&name(&table), kind::<U64Keys>(), any()).unwrap();
        node.client::<U64Keys>(&table)
    };
    let words = table(0);
    words.put(1, &[1; 8]).unwrap();
    let error = words.put(1, b"hello").unwrap_err();
    assert!(matches!(error, ClientError::ValueSize { .. }), "{error}");
    let varying = table(1);
    varying.put(1, b"hello").unwrap();
    varying.put(2, &[7; 5_000]).unwrap();
    assert_eq!(varying.get(1).unwrap().as_deref(), Some(&b"hello"[..]));
    assert_eq!(varying.get(2).unwrap().map(|value| value.len()), Some(5_000));
    // What no table takes is refused, and loads say what the table has.
    let refused = table(2);
    let too_long = vec![0; (16 << 20) + 1];
    assert!(matches!(refused.put(1, &too_long).unwrap_err(), ClientError::ValueTooLong { .. }));
    let five = TableParameters { shape: RecordShape::fixed(8, 5), ..TableParameters::default() };
    refused.create(five).unwrap();
    refused.put(1, b"hello").unwrap();
}

#[test]
fn a_load_by_inserts_is_of_one_table_whatever_gets_its_name() {
    let node = Node::start(64 << 20);
    let tables = node.tables();
    let make = || {
        tables.create(&name("t"), KeyKind::U64, any()).unwrap();
        node.client::<U64Keys>("t").create(TableParameters::default()).unwrap();
    };
    make();
    let client = node.client::<U64Keys>("t");
    let mut load = client.load(TableParameters::default(), 0).unwrap();
    // More than is kept before it is sent.
    (0..100_000).for_each(|key| load.push(key, &[1; 8]).unwrap());
    assert!(node.client::<U64Keys>("t").count_from(0).unwrap() > 0);
    tables.drop_table(&name("t")).unwrap();
    make();
    let error = load.finish().unwrap_err();
    assert!(!error.to_string().is_empty(), "{error}");
    assert_eq!(node.client::<U64Keys>("t").count_from(0).unwrap(), 0, "{error}");
}

#[test]
fn a_table_that_was_lost_is_not_taken_for_an_empty_one() {
    let node = Node::start(16 << 20);
    let tables = node.tables();
    tables.create(&name("t"), KeyKind::U64, any()).unwrap();
    let (before, idle) = (node.client::<U64Keys>("t"), node.client::<U64Keys>("t"));
    before.put(1, &[1; 8]).unwrap();
    assert_eq!(before.get(1).unwrap(), Some(vec![1; 8]));
    tables.drop_table(&name("t")).unwrap();
    tables.create(&name("t"), KeyKind::U64, any()).unwrap();
    // Until it has noticed, it is told that the table is gone.
    let begun = Instant::now();
    loop {
        let errors = [before.get(1).unwrap_err(), before.put(1, &[2; 8]).unwrap_err()];
        if errors.iter().all(|error| matches!(error, ClientError::Emptied)) {
            assert!(errors.iter().all(ClientError::is_retryable));
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{errors:?}");
    }
    assert_eq!(idle.get(1).unwrap(), None, "it never knew another");
    idle.put(1, &[3; 8]).unwrap();
    assert_eq!(before.get(1).unwrap(), Some(vec![3; 8]));
}

#[test]
fn whoever_accepts_a_loss_goes_on_with_the_empty_table_and_is_told_of_the_next_one() {
    let node = Node::start(16 << 20);
    let tables = node.tables();
    tables.create(&name("t"), KeyKind::U64, any()).unwrap();
    let (accepting, other) = (node.client::<U64Keys>("t"), node.client::<U64Keys>("t"));
    let until_emptied = |client: &Client, what: &str| {
        let begun = Instant::now();
        while !matches!(client.get(1), Err(ClientError::Emptied)) {
            assert!(begun.elapsed() < PATIENCE, "{what}");
        }
    };
    for loss in 0..2 {
        accepting.put(1, &[loss; 8]).unwrap();
        assert_eq!(other.get(1).unwrap(), Some(vec![loss; 8]));
        tables.drop_table(&name("t")).unwrap();
        tables.create(&name("t"), KeyKind::U64, any()).unwrap();
        until_emptied(&accepting, "the one that accepts");
        until_emptied(&other, "the other");
        accepting.clone().accept_loss();
        assert_eq!(accepting.get(1).unwrap(), None);
        assert_eq!(accepting.count_from(0).unwrap(), 0);
        assert!(matches!(other.put(1, &[9; 8]), Err(ClientError::Emptied)), "it has accepted nothing");
    }
    accepting.put(2, &[7; 8]).unwrap();
    assert_eq!(other.get(2).unwrap(), Some(vec![7; 8]));
    assert_eq!(other.get(1).unwrap(), None);
}

/// The first write was tried again until its deadline, and told to be malformed.
fn a_first_write_to_an_empty_table_that_now_has_other_keys_says_so<K: TestKeys, Other: TestKeys>() {
    let node = Node::start(16 << 20);
    let tables = node.tables();
    tables.create(&name("t"), kind::<K>(), any()).unwrap();
    let client = node.client::<K>("t").with_deadline(Duration::from_secs(5));
    assert_eq!(client.get(K::key(1)).unwrap(), None);
    tables.drop_table(&name("t")).unwrap();
    tables.create(&name("t"), kind::<Other>(), any()).unwrap();
    let error = client.put(K::key(1), &[1; 8]).unwrap_err();
    assert!(matches!(error, ClientError::OtherKeys { theirs, .. } if theirs == kind::<Other>()), "{error}");
}

#[test]
fn a_first_write_of_an_integer_key_to_a_table_that_now_has_byte_strings_says_so() {
    a_first_write_to_an_empty_table_that_now_has_other_keys_says_so::<U64Keys, ByteKeys>();
}

#[test]
fn a_first_write_of_a_byte_string_to_a_table_that_now_has_integer_keys_says_so() {
    a_first_write_to_an_empty_table_that_now_has_other_keys_says_so::<ByteKeys, U64Keys>();
}
