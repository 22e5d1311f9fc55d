//! Damaged fingerprints, which no checksum covers, and keys that became others by damage.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::fingerprint::WidthChoice;
use fpcache::layout::{RecordToken, SLOT_WORD_BYTES};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::NodeMemory;
use fpcache_memserver::durability::SyncPolicy;

use crate::common::damage::{APART, Flip, KEY, around, put, snapshots, take_snapshot};
use crate::common::keys::{Integers, TestKeys};
use crate::common::requests::{Writer, value};
use crate::common::world::{Mortal, Node, World, load, load_with, lost, parameters};

/// Without fingerprints nothing but the key says whose a record is.
#[test]
fn a_record_whose_key_becomes_another_by_damage_is_not_taken_for_that_one() {
    const OTHER: u64 = KEY + 1;
    let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<Integers>();
    load_with::<Integers>(&mut node, 1000, parameters::<Integers>().with_width(WidthChoice::None));
    let region = node.region().clone();
    let mut writer = Writer::<Integers>::new(5);
    for key in around() {
        assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done);
    }
    let at = node.place_of(&KEY).expect("it was loaded").slot.start + SLOT_WORD_BYTES as u64;
    let flip = Flip { what: "the key", at, mask: (KEY ^ OTHER) as u8, has_key: true };
    assert_eq!(KEY ^ u64::from(flip.mask), OTHER);
    flip.apply(&region);
    let new = value::<Integers>(OTHER, 2, 8);
    let reply = writer.one(&mut node, WriteKind::Put, OTHER, RecordToken::default(), &new);
    assert_eq!(reply.status, WriteStatus::Done);
    flip.apply(&region);
    for (key, n) in [(KEY, 0), (OTHER, 2)] {
        let found = writer.get(&mut node, key).map(|(value, _)| value);
        assert_eq!(found, Some(value::<Integers>(key, n, 8)), "{key}");
    }
    node.audit().expect("every byte is right");
}

/// Stores these bytes as the fingerprint of the key's record; returns what was there.
fn set_fingerprint(region: &Mortal, at: &Range<u64>, bytes: &[u8]) -> Vec<u8> {
    let mut before = vec![0; (at.end - at.start) as usize];
    region.read_bytes(at.start, &mut before).expect("inside");
    region.write_bytes(at.start, &bytes[..before.len()]).expect("inside");
    before
}

/// A key that is not found for its fingerprint is written anew: what was there before is of no key
/// any more, in new segments and in snapshots.
fn of_two_records_of_a_key_the_newer_one_counts<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 1000);
    let region = node.region().clone();
    let at = node.place_of(T::key(KEY).borrow()).expect("it was loaded").fingerprint;
    let before = set_fingerprint(&region, &at, &[0x5a; 8]);
    assert_ne!(before, vec![0x5a; before.len()]);
    let mut writer = Writer::<T>::new(5);
    assert_eq!(writer.get(&mut node, KEY), None);
    assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Done);
    let is_new = |node: &mut Node<T>| {
        let found = Writer::<T>::new(6).get(node, KEY).map(|(value, _)| value);
        assert_eq!(found, Some(value::<T>(KEY, 1, 8)));
    };
    is_new(&mut node);
    let taken = snapshots(&world);
    take_snapshot::<T>(&mut node);
    assert_ne!(snapshots(&world), taken, "nothing keeps it from being taken");
    let rebuilds = node.stats().rebuilds;
    for key in around() {
        assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done);
    }
    assert!(node.stats().rebuilds > rebuilds);
    is_new(&mut node);
    assert_eq!(node.stats().keys, 1000 + around().count() as u64);
    node.audit().expect("every record has its fingerprint");
    drop(node);
    // The machine ends.
    (world.region, world.recovery_area) = lost(&world.left);
    world.disk = world.disk.crash();
    let (mut node, _) = world.begin::<T>();
    is_new(&mut node);
    node.audit().expect("every byte is right");
}

fn a_record_without_a_fingerprint_keeps_its_slot<T: TestKeys>() {
    let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<T>();
    load::<T>(&mut node, 1000);
    let region = node.region().clone();
    let place = node.place_of(T::key(KEY).borrow()).expect("it was loaded");
    let before = set_fingerprint(&region, &place.fingerprint, &[0; 8]);
    let mut record = vec![0; (place.slot.end - place.slot.start) as usize];
    region.read_bytes(place.slot.start, &mut record).expect("inside");
    let rebuilds = node.stats().rebuilds;
    let mut writer = Writer::<T>::new(5);
    let mut keys = (1..APART).flat_map(|apart| [KEY + apart, KEY - apart]);
    while node.stats().rebuilds == rebuilds {
        let mut now = record.clone();
        region.read_bytes(place.slot.start, &mut now).expect("inside");
        assert_eq!(now, record, "another record lies in its slot");
        assert_eq!(put(&mut writer, &mut node, keys.next().expect("few fit")), WriteStatus::Done);
    }
    assert!(before.iter().any(|byte| *byte != 0) && writer.get(&mut node, KEY).is_some(), "it was lost");
    node.audit().expect("its fingerprint is right again");
}

for_all_keys!(of_two_records_of_a_key_the_newer_one_counts, a_record_without_a_fingerprint_keeps_its_slot,);
