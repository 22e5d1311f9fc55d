//! Memory that tables of one memory node share.

use super::*;

/// Inserts into a table until it has no room, and says how many went in.
fn fill(client: &TableClient<U64Keys>, from: u64) -> u64 {
    let mut inserted = 0;
    loop {
        match client.insert(from + inserted, &[7; 100]) {
            Ok(_) => inserted += 1,
            Err(ClientError::NoRoom { .. }) => return inserted,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn tables_share_what_there_is_and_a_drop_gives_it_back() {
    const CAPACITY: u64 = 4 << 20;
    let node = Node::start(CAPACITY);
    let tables = node.tables();
    let parameters = U64Keys::parameters_of(Some(100));
    for table in ["kept", "greedy"] {
        tables.create(&name(table), KeyKind::U64, any()).unwrap();
        crate::common::load(&node.client::<U64Keys>(table), parameters, 0..1_000, 1).unwrap();
    }
    let (kept, greedy) = (node.client::<U64Keys>("kept"), node.client::<U64Keys>("greedy"));
    let went_in = fill(&greedy, 1 << 32);
    assert!(went_in > 5_000, "{went_in}");
    let list = tables.list().unwrap();
    assert!(list.granted_bytes <= CAPACITY && list.granted_bytes > CAPACITY * 9 / 10, "{list:?}");
    assert!(list.tables.iter().map(|table| table.used_bytes).sum::<u64>() <= list.granted_bytes);
    // The other one keeps what it has, and may change it.
    for key in 0..1_000 {
        assert!(kept.update(key, &[9; 100]).is_ok());
    }
    assert!((0..1_000).all(|key| kept.get(key).unwrap() == Some(vec![9; 100])));
    assert!((0..went_in).all(|i| greedy.get((1 << 32) + i).unwrap() == Some(vec![7; 100])));
    // Nor is there memory for a load into a third one; if there is for the table at all.
    match tables.create(&name("third"), KeyKind::U64, any()) {
        Err(ClientError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::NoMemory, "{refusal}"),
        made => {
            made.unwrap();
            let third = node.client::<U64Keys>("third");
            let error = crate::common::load(&third, parameters, 0..5_000, 1).unwrap_err().to_string();
            assert!(error.contains("drop other tables"), "{error}");
            tables.drop_table(&name("third")).unwrap();
        }
    }
    tables.drop_table(&name("greedy")).unwrap();
    let left = tables.list().unwrap();
    assert!(left.granted_bytes < CAPACITY / 2, "{left:?}");
    for _ in 0..3 {
        tables.create(&name("greedy"), KeyKind::U64, any()).unwrap();
        crate::common::load(&greedy, parameters, 0..1_000, 1).unwrap();
        let again = fill(&greedy, 1 << 32);
        assert!(again > went_in * 9 / 10, "{again} of {went_in}");
        tables.drop_table(&name("greedy")).unwrap();
    }
}

#[test]
fn a_load_that_is_given_up_holds_nothing_back() {
    let node = Node::start(8 << 20);
    let tables = node.tables();
    tables.create(&name("t"), KeyKind::U64, any()).unwrap();
    let before = tables.list().unwrap().granted_bytes;
    let client = node.client::<U64Keys>("t");
    let mut load = client.load(U64Keys::parameters(), 0).unwrap();
    (0..100_000).for_each(|key| load.push(key, &[0; 8]).unwrap());
    assert!(tables.list().unwrap().granted_bytes > before);
    // It goes back in steps.
    let all_goes_back = || {
        let begun = Instant::now();
        while tables.list().unwrap().granted_bytes != before {
            assert!(begun.elapsed() < PATIENCE, "{:?}", tables.list());
        }
    };
    drop(load);
    all_goes_back();
    // One that does not fit says so, and holds nothing back either.
    let error = crate::common::load(&client, U64Keys::parameters(), 0..400_000, 1).unwrap_err().to_string();
    assert!(error.contains("does not hold these records") && error.contains("--capacity"), "{error}");
    all_goes_back();
}

#[test]
fn a_table_with_a_smaller_region_says_what_would_give_it_more() {
    let node = Node::start(64 << 20);
    let tables = node.tables();
    tables.create(&name("small"), KeyKind::U64, CreateOptions::default().with_region_bytes(1 << 20)).unwrap();
    let client = node.client::<U64Keys>("small");
    let error = crate::common::load(&client, U64Keys::parameters(), 0..100_000, 1).unwrap_err().to_string();
    assert!(error.contains("region of 1.0 MiB") && error.contains("--region-bytes"), "{error}");
    let table = tables.list().unwrap().tables[0];
    assert_eq!((table.region_bytes, table.keys, table.clients), (1 << 20, 0, 1));
}
