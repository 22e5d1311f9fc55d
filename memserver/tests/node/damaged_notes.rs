//! Notes of a process that ended, whose identity cannot be read: acknowledged writes may be in them
//! alone.

use std::time::Duration;

use crate::common::keys::Integers;
use crate::common::requests::{Writer, value};
use crate::common::world::{Node, World, load};
use fpcache::layout::{LAYOUT_VERSION, RecordToken};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{NodeMemory, Service};
use fpcache_memserver::RecoverError;
use fpcache_memserver::durability::SyncPolicy;
use xxhash_rust::xxh3::xxh3_64;

const HOURLY: SyncPolicy = SyncPolicy::Interval(Duration::from_secs(3600));
/// Where the two identities lie, and how many bytes of each its checksum is of.
const IDENTITIES: [u64; 2] = [128, 512];
const CHECKED: usize = 112;

/// A process that was killed, whose last five entries are in its notes alone, or in the log's file
/// too.
fn killed(is_written: bool) -> World {
    let mut world = World::new(HOURLY, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    let mut writer = Writer::<Integers>::new(5);
    for key in 1..6 {
        let value = value::<Integers>(key, 7, 8);
        let reply = writer.one(&mut node, WriteKind::Put, key, RecordToken::default(), &value);
        assert_eq!(reply.status, WriteStatus::Done);
    }
    if is_written {
        node.work();
    }
    drop(node);
    world.recovery_area = world.recovery_area.heir();
    world
}

/// Changes a word of each identity that there is, at this offset in it.
fn change_word(world: &World, offset: u64, change: impl Fn(u64) -> u64) {
    for at in IDENTITIES {
        let word = world.recovery_area.load_relaxed(at + offset).expect("inside");
        if word != 0 {
            world.recovery_area.store_relaxed(at + offset, change(word)).expect("inside");
        }
    }
}

/// Gives each identity that there is another layout version, and the checksum that it has then.
fn change_version(world: &World, change: impl Fn(u64) -> u64) {
    change_word(world, 8, change);
    for at in IDENTITIES {
        let mut bytes = [0; CHECKED];
        world.recovery_area.read_bytes(at, &mut bytes).expect("inside");
        if bytes != [0; CHECKED] {
            let checksum = xxh3_64(&bytes);
            world.recovery_area.store_relaxed(at + CHECKED as u64, checksum).expect("inside");
        }
    }
}

fn is_refused(world: &mut World, part: &str) {
    for _ in 0..2 {
        let Err(error) = world.try_begin::<Integers>() else { panic!("it began without its last writes") };
        assert!(matches!(error, RecoverError::UnreadableNotes { first: 1, last: 5, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(part) && text.contains("notes.fpn") && text.contains("LSN 1 on"), "{text}");
    }
}

fn has_all(node: &mut Node<Integers>) -> bool {
    let reader = Writer::<Integers>::new(9);
    (1..6).all(|key| reader.get(node, key).is_some())
}

/// After an upgrade, of a process that was killed.
#[test]
fn notes_of_another_layout_are_kept_for_the_release_that_reads_them() {
    let mut world = killed(false);
    change_version(&world, |word| word + 1);
    is_refused(
        &mut world,
        &format!("version {}, this program uses version {LAYOUT_VERSION}", LAYOUT_VERSION + 1),
    );
    change_version(&world, |word| word - 1);
    let (mut node, recovery) = world.begin::<Integers>();
    assert!(has_all(&mut node), "{recovery}");
}

#[test]
fn notes_whose_identity_is_damaged_are_not_replaced_where_the_log_lacks_what_they_have() {
    for offset in [0, 8, 40, CHECKED as u64] {
        let mut world = killed(false);
        change_word(&world, offset, |word| word ^ 1 << 20);
        is_refused(&mut world, "damaged");
        change_word(&world, offset, |word| word ^ 1 << 20);
        let (mut node, recovery) = world.begin::<Integers>();
        assert!(has_all(&mut node), "{offset}: {recovery}");
    }
}

#[test]
fn notes_that_cannot_be_read_are_not_missed_where_the_log_has_all() {
    let mut world = killed(true);
    change_version(&world, |word| word + 1);
    let (mut node, recovery) = world.begin::<Integers>();
    assert!(has_all(&mut node), "{recovery}");
}

/// The machine lost its power before they were written.
#[test]
fn notes_that_are_empty_are_replaced() {
    let mut world = killed(false);
    (0..128).for_each(|word| world.recovery_area.store_relaxed(word * 8, 0).expect("inside"));
    let (mut node, recovery) = world.begin::<Integers>();
    assert!(!has_all(&mut node), "{recovery}");
}
