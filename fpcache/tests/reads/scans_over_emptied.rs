//! Scans of segments that were emptied by deletes.

use std::borrow::Borrow;

use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::layout::{RecordShape, SegmentGeometry, SlotState, SlotWord, TableParameters};
use fpcache::read::{Cost, Scan, ScanScratch, drive};
use fpcache::table_view::TableView;

use crate::built::{Built, Cuts};

const KEYS: u64 = 12_000;

over_both_key_spaces! {
    slots_that_deletes_have_emptied_are_read_twice_at_most
    a_slot_beyond_what_is_wanted_keeps_no_scan_waiting
}

/// A key space with a key for each number, in their order.
trait Ordered: Cuts {
    fn key(number: u64) -> Self::Owned;
    fn shape() -> RecordShape;
}

impl Ordered for U64Keys {
    fn key(number: u64) -> u64 {
        number * number
    }

    fn shape() -> RecordShape {
        RecordShape::fixed(8, 8)
    }
}

impl Ordered for ByteKeys {
    fn key(number: u64) -> Vec<u8> {
        format!("key {:010}", number * number).into_bytes()
    }

    fn shape() -> RecordShape {
        RecordShape { key_bytes: None, value_bytes: Some(8), room: 40 }
    }
}

/// A table of which only the keys stay whose numbers `stays` says.
fn emptied<K: Ordered>(max_slots: u16, stays: impl Fn(u64) -> bool) -> Built<K> {
    let records = (0..KEYS).map(|number| (K::key(number), number.to_le_bytes().to_vec())).collect();
    let parameters =
        TableParameters { shape: K::shape(), epsilon: 8, max_slots, ..TableParameters::default() };
    let mut built = Built::<K>::new(records, parameters);
    let number = |value: &Vec<u8>| u64::from_le_bytes(*value.first_chunk().unwrap());
    let staying: Vec<K::Owned> = (0..KEYS).filter(|number| stays(*number)).map(K::key).collect();
    built.records.retain(|_, value| stays(number(value)));
    change(&built, SlotState::Free, |key| staying.binary_search_by(|stays| stays.borrow().cmp(key)).is_err());
    built
}

/// Gives the slots of these keys another state.
fn change<K: Ordered>(built: &Built<K>, state: SlotState, is_of: impl Fn(&K::Key) -> bool) {
    let geometry: SegmentGeometry = built.parameters.geometry();
    for segment in &built.descriptors {
        for slot in 0..u32::from(segment.model.cap) {
            let at = segment.address.offset() + geometry.slot_offset(segment.model.cap, slot) as u64;
            let mut bytes = vec![0; geometry.slot_bytes];
            built.memory.read_bytes(at, &mut bytes).unwrap();
            let parts = geometry.shape.parts::<K>(&bytes[8..]).and_then(|parts| K::view(parts.key));
            if bytes[0] != 0 && parts.is_some_and(|view| is_of(view.borrow())) {
                let word = SlotWord::new(state, 9, 0).to_bits().to_le_bytes();
                built.memory.write_bytes(at, &word).unwrap();
            }
        }
    }
}

fn scanned<K: Ordered>(
    built: &Built<K>,
    view: &TableView<K>,
    (start, limit, is_down): (u64, usize, bool),
) -> (Vec<K::Owned>, Cost) {
    let mut scratch = ScanScratch::default();
    let mut scan = Scan::new(view, &mut scratch, K::key(start).borrow(), limit);
    if is_down {
        scan = scan.descending();
    }
    drive(&mut built.endpoint(), &mut scan).unwrap();
    (scan.records().map(|(key, _)| key.to_owned()).collect(), scan.cost())
}

/// A stretch without a key that it covered was read again with twice as many slots, and one with
/// few from the last of them on: three to seven times in all.
fn slots_that_deletes_have_emptied_are_read_twice_at_most<K: Ordered>() {
    let stays: [fn(u64) -> bool; 5] = [
        |_| false,
        |number| number == 0 || number == KEYS - 1,
        |number| number % 1000 == 7,
        |number| number % 100 == 99,
        |number| !(500..11_500).contains(&number),
    ];
    for (stays, max_slots) in stays.into_iter().flat_map(|stays| [200, 3000].map(|slots| (stays, slots))) {
        let built = emptied::<K>(max_slots, stays);
        let view = TableView::<K>::open(&mut built.endpoint()).unwrap();
        let slots: u64 = built.descriptors.iter().map(|segment| u64::from(segment.model.cap)).sum();
        let bytes = slots * view.geometry().slot_bytes as u64;
        for (start, limit, is_down) in [0, 2_000]
            .into_iter()
            .flat_map(|start| [1, 5, 400, usize::MAX].map(|limit| (start, limit)))
            .flat_map(|(start, limit)| [false, true].map(|is_down| (start, limit, is_down)))
        {
            let (found, cost) = scanned(&built, &view, (start, limit, is_down));
            let all = built.records.keys().filter(|key| **key >= K::key(start)).cloned();
            let mut all: Vec<K::Owned> = all.collect();
            if is_down {
                all.reverse();
            }
            all.truncate(limit);
            let what = format!("{} slots a segment, from {start}, {limit}, down: {is_down}", max_slots);
            assert!(found == all, "{what}: {} keys of {}", found.len(), all.len());
            assert!(cost.bytes <= 2 * bytes, "{what}: {} bytes of {bytes}", cost.bytes);
            // A few for each key at most, with twice as many slots each time.
            let most = 12 * (found.len() as u32 + 1);
            assert!(cost.round_trips <= most, "{what}: {} round trips", cost.round_trips);
        }
    }
}

/// A scan that has passed emptied segments reads far ahead. A slot that was being written there, for
/// which it had no use, was waited for all the same.
fn a_slot_beyond_what_is_wanted_keeps_no_scan_waiting<K: Ordered>() {
    for (is_down, wanted, beyond) in [(false, 9_000, 9_500), (true, 3_000, 2_500)] {
        let built = emptied::<K>(200, |number| match is_down {
            false => number >= 9_000,
            true => number <= 3_000,
        });
        change(&built, SlotState::Busy, |key| key == K::key(beyond).borrow());
        let view = TableView::<K>::open(&mut built.endpoint()).unwrap();
        let (found, _) = scanned(&built, &view, (0, 1, is_down));
        assert_eq!(found, [K::key(wanted)]);
    }
}
