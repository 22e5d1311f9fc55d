//! The first call has pages mapped for all, and no other waits for that.

use fpcache_fabric::SystemClock;

use super::*;
use crate::session::map_pages;

/// All waited for the pages of the whole table, whatever their deadlines.
#[test]
fn a_table_is_everybodys_before_its_pages_are_mapped() {
    let setup = Setup::new();
    let mapping = || setup.watch.tables.load(Ordering::SeqCst);
    thread::scope(|scope| {
        let gate = setup.watch.gate.lock().expect("no panic");
        scope.spawn(|| look_up_one(&setup.core));
        let begun = Instant::now();
        while mapping() == 0 && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        let answer = look_up_within(&setup.core, Duration::from_secs(2));
        drop(gate);
        answer.expect("an answer");
    });
    assert_eq!(mapping(), 1);
}

#[test]
fn a_call_spends_half_of_its_time_at_most_on_pages() {
    let watch = Arc::new(Watch::default());
    let node = Node { life: Arc::new(Mutex::new(loaded_node())), watch: Arc::clone(&watch) };
    let connection = node.connect(Deadline::NONE).expect("it serves");
    // Each piece takes five milliseconds.
    map_pages(&connection, || 1 << 40, Duration::from_millis(50), &SystemClock);
    let pieces = watch.tables.load(Ordering::SeqCst);
    assert!(pieces <= 5, "{pieces}");
    // Where there is time, all are.
    map_pages(&connection, || 100 << 20, PATIENCE, &SystemClock);
    assert_eq!(watch.tables.load(Ordering::SeqCst) - pieces, 7);
}

/// The pages of what a table had given back were mapped, and took memory anew.
#[test]
fn no_pages_are_mapped_of_what_a_table_has_given_back() {
    let watch = Arc::new(Watch::default());
    let node = Node { life: Arc::new(Mutex::new(loaded_node())), watch: Arc::clone(&watch) };
    let connection = node.connect(Deadline::NONE).expect("it serves");
    let pieces = || watch.tables.load(Ordering::SeqCst);
    let used = || if pieces() == 0 { u64::MAX } else { 24 << 20 };
    map_pages(&connection, used, Duration::MAX, &SystemClock);
    assert_eq!(pieces(), 2);
    assert_eq!(watch.read_to.load(Ordering::SeqCst), 24 << 20);
    map_pages(&connection, || if pieces() == 2 { 24 << 20 } else { 0 }, Duration::MAX, &SystemClock);
    assert_eq!(pieces(), 3, "it was dropped");
}
