//! Logs, heads and counts that make no sense are errors.

use super::*;

over_both_key_spaces! {
    logs_that_make_no_sense_are_errors
    heads_and_logs_that_cannot_be_are_errors
    counts_of_segments_that_cannot_be_are_errors
    a_region_that_claims_more_than_its_area_has_is_an_error
    a_table_that_claims_more_than_its_region_has_is_an_error
}

fn logs_that_make_no_sense_are_errors<K: Numbered>() {
    let segment = |start: u64, cap: u16, offset: u64| Descriptor::<K> {
        start: K::key(start),
        tail: K::tail(start),
        model: K::model(start, cap, EPSILON),
        address: SegmentAddress::from_bits(offset),
        generation: 7,
    };
    let changed = |with: &[Descriptor<K>], end: Option<u64>| {
        SegmentReplacement { with: with.to_vec(), end: end.map(K::key) }.records(0)
    };
    let (good, second) = (segment(10, CAP, 8192), segment(15, CAP, 8192));
    let whole = changed(&[good.clone(), second.clone()], Some(20));
    assert!(whole.len() > 1);
    let last = whole.len() - 1;
    let one = std::slice::from_ref(&good);
    let other_count: Vec<_> =
        whole.iter().map(|r| ChangeRecord { parts: r.parts + u16::from(r.part > 0), ..*r }).collect();
    let garbage: Vec<_> = whole.iter().map(|r| ChangeRecord { share: [0xff; 48], ..*r }).collect();
    let beyond = node::<K>().region_bytes();
    for (records, why) in [
        (whole.clone(), ""),
        (whole[1..].to_vec(), "begins within a change"),
        (whole[..last].to_vec(), "ends within a change"),
        ([&whole[..last], &whole[..]].concat(), "a change within a change"),
        (other_count, "counts disagree"),
        (garbage, "no change"),
        (changed(&[], Some(20)), "no segments"),
        (changed(&[segment(11, CAP, 8192)], Some(20)), "begins inside a segment"),
        (changed(one, Some(19)), "ends inside a segment"),
        (changed(one, Some(10)), "ends where it begins"),
        (changed(one, Some(0)), "ends before it begins"),
        (changed(&[segment(10, 0, 8192)], Some(20)), "no slots"),
        (changed(&[segment(10, CAP, beyond)], Some(20)), "outside the region"),
        (changed(&[segment(10, CAP, 8193)], Some(20)), "not aligned"),
        (changed(&[good.clone(), good.clone()], Some(20)), "out of order"),
        (changed(&[good.clone(), segment(20, CAP, 8192)], Some(20)), "outside the range"),
    ] {
        assert_refused_unless_sound::<K>(&records, why);
    }
}

/// A log of these records is taken if there is nothing to say against it.
fn assert_refused_unless_sound<K: Numbered>(records: &[ChangeRecord], why: &str) {
    let mut node = node::<K>();
    let view = open(&node);
    for (sequence, record) in (0..).zip(records) {
        node.log_record(&ChangeRecord { sequence, ..*record });
    }
    node.set_head(records.len() as u64);
    let opened = TableView::<K>::open(&mut node.endpoint());
    let refreshed = view.refresh(&mut node.endpoint()).unwrap();
    match why {
        "" => assert!(opened.is_ok() && matches!(refreshed, Refresh::Newer(_))),
        why => {
            let error = opened.expect_err(why);
            assert!(matches!(&error, OpenError::Corrupt(c) if c.what == "change log"), "{why}: {error}");
            assert!(matches!(refreshed, Refresh::Lost), "{why}");
        }
    }
}

#[test]
fn a_change_to_a_coder_that_the_reader_lacks_is_refused() {
    for (encoder, why) in [(0, ""), (1, "no such encoder")] {
        let good = Descriptor::<ByteKeys> {
            start: ByteKeys::key(10),
            tail: ByteTail { encoder, ..ByteKeys::tail(10) },
            model: ByteKeys::model(10, CAP, EPSILON),
            address: SegmentAddress::from_bits(8192),
            generation: 7,
        };
        let change = SegmentReplacement { with: vec![good], end: Some(ByteKeys::key(20)) };
        assert_refused_unless_sound::<ByteKeys>(&change.records(0), why);
    }
}

/// A reader without a budget takes room for as many as the root says, before it has read them.
fn counts_of_segments_that_cannot_be_are_errors<K: Numbered>() {
    for segments in [0, 7, 1 << 40, 1 << 60, u64::MAX] {
        let mut node = node::<K>();
        node.claim_segments(segments);
        let opened = TableView::<K>::open(&mut node.endpoint());
        let told = opened.map(drop);
        assert!(matches!(told, Err(OpenError::Corrupt(_))), "{segments}: {told:?}");
    }
}

/// What is read of a directory was bounded by the length that the region itself claims.
fn a_region_that_claims_more_than_its_area_has_is_an_error<K: Numbered>() {
    let has = node::<K>().region_bytes();
    for claimed in [has, has + 1, 1 << 40, u64::MAX] {
        let mut node = node::<K>();
        node.claim_region(claimed);
        let told = TableView::<K>::open(&mut node.endpoint()).map(drop);
        match claimed == has {
            true => assert!(told.is_ok(), "{told:?}"),
            false => {
                let error = told.unwrap_err();
                assert!(
                    error.to_string().contains("the region is shorter than it says"),
                    "{claimed}: {error}"
                );
            }
        }
    }
}

/// Clients had as many pages mapped.
fn a_table_that_claims_more_than_its_region_has_is_an_error<K: Numbered>() {
    let has = node::<K>().region_bytes();
    for claimed in [has, has + 8, 1 << 40, u64::MAX] {
        let mut node = node::<K>();
        node.claim_used(claimed);
        assert_eq!(read_used::<K, _>(&mut node.endpoint()).unwrap(), has, "{claimed}");
        let told = TableView::<K>::open(&mut node.endpoint()).map(drop);
        assert_eq!(told.is_ok(), claimed == has, "{told:?}");
        assert!(told.is_ok() || told.unwrap_err().to_string().contains("used bytes"), "{claimed}");
    }
    let node = node::<K>();
    node.put(REUSE_OFFSET, &DROPPED.to_le_bytes());
    assert!(matches!(read_used::<K, _>(&mut node.endpoint()), Err(OpenError::Superblock(_))));
}

fn heads_and_logs_that_cannot_be_are_errors<K: Numbered>() {
    for head in [LOG + 1, 1 << 20, u64::MAX] {
        let mut node = node::<K>();
        let view = open(&node);
        node.set_head(head);
        assert!(matches!(view.refresh(&mut node.endpoint()).unwrap(), Refresh::Lost));
        let error = TableView::<K>::open(&mut node.endpoint()).unwrap_err();
        assert!(error.to_string().contains("change log") && error.to_string().contains("records"), "{error}");
    }
    // Below the checkpoint.
    let mut node = node::<K>();
    node.replace(10, Some(20), &[10]);
    node.checkpoint();
    node.set_head(0);
    assert!(matches!(TableView::<K>::open(&mut node.endpoint()), Err(OpenError::Corrupt(_))));
    let end = node.region_bytes();
    for (log, records) in [(8192, 3), (8196, 8), (end, 8), (8192, 1 << 63), (u64::MAX - 7, 1 << 58)] {
        let mut node = self::node::<K>();
        (node.log, node.log_records) = (log, records);
        node.checkpoint();
        let error = TableView::<K>::open(&mut node.endpoint()).unwrap_err();
        assert!(error.to_string().contains("no log of"), "{error}");
    }
}
