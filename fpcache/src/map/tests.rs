use super::*;

fn urls(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("tcp://node{i}:7400")).collect()
}

fn words(words: &[u64]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_be_bytes().to_vec()).collect()
}

fn of_words(split_at: &[u64]) -> RangeMap {
    let name = "orders".parse().expect("a name");
    let nodes = urls(split_at.len() + 1);
    RangeMap::divide(name, KeyKind::U64, 0x0102, &nodes, &words(split_at)).expect("in order")
}

#[test]
fn maps_have_the_drawn_bytes() {
    let name = "ab".parse().expect("a name");
    let nodes = ["shm://x".to_owned(), "shm://yz".to_owned()];
    let map = RangeMap::divide(name, KeyKind::U64, 0x0102, &nodes, &words(&[0x0304])).expect("in order");
    let bytes = map.encode();
    let head = *b"FPRANGES\x01\0\0\0\x80\0\0\0\x02\x01\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0";
    let first = *b"\0\0\0\0\x07\0\0\0\x08\0\x01\0\0\0\0\0shm://x\0\0\0\0\0\0\x03\x04\0";
    let second = *b"\x01\0\0\0\x08\0\x08\0\0\0\0\0\0\0\0\0shm://yz\0\0\0\0\0\0\x03\x04";
    let drawn = [&head[..], &first, &second].concat();
    assert_eq!(bytes[..bytes.len() - 8], drawn);
    assert_eq!(bytes[bytes.len() - 8..], xxh3_64(&drawn).to_le_bytes());
    assert_eq!(RangeMap::decode(&bytes), Ok(map.clone()));
    assert_eq!(map.table(&map.ranges[1]).expect("short").as_str(), "ab@0000000000000102.1");
    let later = map.next(MapState::Whole).expect("a version");
    let last = RangeMap { version: u32::MAX, ..map.clone() };
    assert!(last.next(MapState::Dropping).is_err(), "it has no next version");
    assert_eq!((later.version, later.has_ranges_of(&map)), (2, true));
    assert_eq!(RangeMap::decode(&later.encode()), Ok(later));
}

#[test]
fn ranges_that_are_no_table_are_refused_and_it_is_said_why() {
    let good = of_words(&[10, 20, 30]);
    let broken = |what: fn(&mut RangeMap), why: &str| {
        let mut map = good.clone();
        what(&mut map);
        let error = map.check().expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert!(RangeMap::decode(&map.encode()).is_err(), "{why}");
    };
    broken(|map| map.ranges[1].start = 11u64.to_be_bytes().to_vec(), "between ranges 0 and 1");
    broken(|map| map.ranges[1].start = 9u64.to_be_bytes().to_vec(), "ranges 0 and 1 overlap");
    broken(|map| map.ranges[2].end = None, "ranges 2 and 3 overlap");
    broken(|map| map.ranges.swap(1, 2), "between ranges 0 and 2");
    broken(|map| drop(map.ranges.pop()), "above the last one");
    broken(|map| drop(map.ranges.remove(0)), "below the first one");
    broken(|map| map.ranges.clear(), "no range");
    broken(|map| map.ranges[2].number = 1, "number 1");
    broken(|map| map.ranges[0].node.clear(), "URL of range 0");
    broken(|map| map.ranges[0].end = Some(vec![1]), "no key");
    broken(|map| map.creation = 0, "creation");
    broken(
        |map| {
            map.ranges[1].end = Some(10u64.to_be_bytes().to_vec());
            map.ranges[2].start = 10u64.to_be_bytes().to_vec();
        },
        "has no keys",
    );
    let name = good.name;
    let many: Vec<u64> = (1..65).collect();
    for (nodes, at, why) in
        [(65, &many[..], "at most 64"), (2, &[][..], "need 1"), (3, &[7, 7], "no keys"), (2, &[0], "no keys")]
    {
        let error = RangeMap::divide(name, KeyKind::U64, 1, &urls(nodes), &words(at)).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
    let long = [vec![1; 9000], vec![2; 9000]];
    let error = RangeMap::divide(name, KeyKind::Bytes, 1, &urls(3), &long).expect_err("long");
    assert!(!error.to_string().is_empty());
}

#[test]
fn keys_keep_their_order_as_bytes() {
    for word in [0, 1, 255, 256, u64::MAX] {
        let bytes = ordered_bytes::<U64Keys>(&word);
        assert_eq!(key_of_bytes::<U64Keys>(&bytes), Some(word));
        assert!(word == u64::MAX || ordered_bytes::<U64Keys>(&(word + 1)) > bytes);
    }
    assert_eq!(key_of_bytes::<U64Keys>(&[]), Some(0));
    assert_eq!(key_of_bytes::<U64Keys>(&[1]), None);
    assert_eq!(key_of_bytes::<ByteKeys>(&ordered_bytes::<ByteKeys>(b"ab")), Some(b"ab".to_vec()));
}

#[test]
fn every_damaged_byte_of_a_map_is_seen() {
    let bytes = of_words(&[1, 2]).encode();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(RangeMap::decode(&damaged).is_err(), "byte {at}");
        assert!(RangeMap::decode(&bytes[..at]).is_err(), "cut to {at}");
    }
}

#[test]
fn published_maps_are_read_whole_or_not_at_all() {
    let maps = [of_words(&[5]), of_words(&[6, 7])];
    let bytes = encode_published(3, &maps).expect("room");
    assert_eq!(Published::read(&bytes), Ok(Published::Whole(maps.to_vec())));
    let longer = [&bytes[..], &[7; 100]].concat();
    assert_eq!(Published::read(&longer), Ok(Published::Whole(maps.to_vec())));
    assert_eq!(Published::read(&bytes[..100]), Ok(Published::Needs(bytes.len())));
    assert_eq!(Published::read(&[0; 4096]), Ok(Published::Torn));
    for at in 0..bytes.len() {
        let mut torn = bytes.clone();
        torn[at] ^= 1;
        assert_eq!(Published::read(&torn), Ok(Published::Torn), "byte {at}");
    }
    let none = encode_published(1, []).expect("room");
    assert_eq!(Published::read(&none), Ok(Published::Whole(Vec::new())));
    assert_eq!(encode_published(1, std::iter::repeat_n(&maps[0], 10_000)), None);
}
