//! Histories made by hand, each with the anomaly it is named for beside the right history next to
//! it.

use fpcache_eval::history::Call::{
    Ceiling, CompareAndSet, Count, Delete, Floor, Get, Insert, Put, Scan, ScanRange, Update,
};
use fpcache_eval::history::Outcome::{Absent, Counted, Differs, Done, Exists, Found, Refused, Unknown};
use fpcache_eval::history::{
    Doubt, MalformedHistory, ScanFault, UNSEEN, Violation, Whole, check, check_whole,
};

use super::Script;

#[track_caller]
pub fn right(script: &Script) {
    let checked = script.check();
    assert!(checked.is_linearizable(), "{checked:?}");
}

/// The report of a history with one violation.
#[track_caller]
pub fn wrong(script: &Script) -> Violation {
    let checked = script.check();
    assert!(checked.violated == 1 && checked.undecided.is_empty(), "{checked:?}");
    checked.violations[0].clone()
}

/// The numbers of the operations in the report of a history with one key that has no order.
#[track_caller]
pub fn core(script: &Script) -> Vec<u32> {
    let Violation::Key(disorder) = wrong(script) else { panic!("no scan is wrong by itself") };
    assert!(disorder.minimal);
    disorder.operations.iter().map(|shown| shown.number).collect()
}

pub fn empty() -> Script {
    Script::from(&[])
}

#[test]
fn nothing_and_one_thing_at_a_time_are_right() {
    right(&empty());
    right(&Script::from(&[(1, 10)]));
    let script = empty().call(1, Get, Absent, 1, 2).call(1, Insert(10), Done, 3, 4);
    let script = script.call(1, Insert(11), Exists, 5, 6).call(1, Get, Found(10), 7, 8);
    let script = script.call(1, Update(12), Done, 9, 10).call(1, Put(13), Done, 11, 12);
    let script = script.call(1, CompareAndSet { expected: 12, value: 14 }, Differs, 13, 14);
    let script = script.call(1, CompareAndSet { expected: 13, value: 15 }, Done, 15, 16);
    let script = script.call(1, Delete, Done, 17, 18).call(1, Delete, Absent, 19, 20);
    let script = script.call(1, Update(16), Absent, 21, 22);
    right(&script.call(1, CompareAndSet { expected: 15, value: 17 }, Absent, 23, 24));
}

#[test]
fn a_stale_read() {
    let written = |from| {
        empty().call(1, Put(10), Done, 1, 2).call(1, Put(11), Done, 3, 6).call(1, Get, Found(10), from, 9)
    };
    right(&written(5));
    assert_eq!(core(&written(7)), [1, 2]);
    let Violation::Key(disorder) = wrong(&written(7)) else { panic!() };
    assert_eq!(disorder.writers.iter().map(|shown| shown.number).collect::<Vec<_>>(), [0]);
}

#[test]
fn responses_and_calls_at_one_instant_are_concurrent() {
    right(&Script::from(&[(1, 10)]).call(1, Put(11), Done, 1, 5).call(1, Get, Found(10), 5, 6));
}

#[test]
fn new_then_old() {
    // While a write is under way one reader may see it and one not, but not the later one.
    let reads = |first, second| {
        let script = Script::from(&[(1, 10)]).call(1, Put(11), Done, 1, 20);
        script.call(1, Get, Found(first), 2, 3).call(1, Get, Found(second), 4, 5)
    };
    right(&reads(10, 11));
    assert_eq!(core(&reads(11, 10)), [1, 2]);
}

#[test]
fn a_lost_update() {
    // Both compare with the same record, and both are told that they replaced it.
    let both = |outcome| {
        let script = Script::from(&[(1, 10)]).call(1, CompareAndSet { expected: 10, value: 11 }, Done, 1, 5);
        script.call(1, CompareAndSet { expected: 10, value: 12 }, outcome, 2, 6)
    };
    right(&both(Differs));
    assert_eq!(core(&both(Done)), [0, 1]);
}

#[test]
fn absent_after_present() {
    let reads = |second| {
        let script = empty().call(1, Insert(10), Done, 1, 20).call(1, Get, Found(10), 2, 3);
        script.call(1, Get, second, 4, 5)
    };
    right(&reads(Found(10)));
    assert_eq!(core(&reads(Absent)), [1, 2]);
}

#[test]
fn a_double_insert() {
    let second = |outcome| empty().call(1, Insert(10), Done, 1, 5).call(1, Insert(11), outcome, 2, 6);
    right(&second(Exists));
    assert_eq!(core(&second(Done)), [0, 1]);
    // A delete in between makes it right.
    right(&second(Done).call(1, Delete, Done, 3, 4));
}

#[test]
fn a_resurrected_delete() {
    let after = |outcome| Script::from(&[(1, 10)]).call(1, Delete, Done, 1, 2).call(1, Get, outcome, 3, 4);
    right(&after(Absent));
    assert_eq!(core(&after(Found(10))), [0, 1]);
}

#[test]
fn a_compare_and_set_that_saw_an_old_value() {
    let late = |outcome| {
        let script = Script::from(&[(1, 10)]).call(1, Put(11), Done, 1, 2);
        script.call(1, CompareAndSet { expected: 10, value: 12 }, outcome, 3, 4)
    };
    right(&late(Differs));
    assert_eq!(core(&late(Done)), [0, 1]);
    let differs = Script::from(&[(1, 10)]).call(1, CompareAndSet { expected: 10, value: 12 }, Differs, 3, 4);
    assert_eq!(core(&differs), [0]);
}

#[test]
fn a_value_that_nobody_wrote_or_that_belongs_to_another_key() {
    let Violation::Key(torn) = wrong(&Script::from(&[(2, 10)]).call(1, Get, Found(10), 1, 2)) else {
        panic!()
    };
    assert_eq!(torn.unwritten, Some((10, vec![2])));
    let text = torn.to_string();
    assert!(text.contains("nobody wrote 10 to this key; it was written to [2]"), "{text}");
    let text = wrong(&empty().call(1, Get, Found(10), 1, 2).call(1, Put(10), Done, 3, 4)).to_string();
    assert!(text.contains("found 10"), "{text}");
}

#[test]
fn a_scan_that_misses_a_key() {
    let records = [(1, 10), (2, 20), (3, 30)];
    let script = |seen: &[(u64, u64)], limit| Script::from(&records).scan(1, limit, seen, 5, 9);
    right(&script(&records, 3));
    right(&script(&records, 4));
    right(&script(&records[..2], 2));
    assert_eq!(core(&script(&records[..2], 3)), [0], "fewer than asked for: the third is missing");
    assert_eq!(core(&script(&[(1, 10), (3, 30)], 2)), [0]);
    // It may have been deleted meanwhile, or before, but not come back before.
    let deleted = |from, to| script(&[(1, 10), (3, 30)], 9).call(2, Delete, Done, from, to);
    right(&deleted(8, 20));
    assert_eq!(core(&deleted(10, 20)), [0]);
    let back = deleted(1, 2).call(2, Insert(21), Done, 3, 4);
    let Violation::Key(disorder) = wrong(&back) else { panic!() };
    let text = disorder.to_string();
    assert!(text.contains("key 2:") && text.contains("did not return the key"), "{text}");
}

#[test]
fn a_scan_that_sees_a_deleted_key_or_an_old_value() {
    let script =
        |value| Script::from(&[(1, 10)]).call(1, Put(11), Done, 1, 2).scan(0, 5, &[(1, value)], 3, 4);
    right(&script(11));
    assert_eq!(core(&script(10)), [0, 1]);
    let gone = Script::from(&[(1, 10)]).call(1, Delete, Done, 1, 2).scan(0, 5, &[(1, 10)], 3, 4);
    assert_eq!(core(&gone), [0, 1]);
}

#[test]
fn a_scan_is_no_snapshot() {
    // Two was deleted before three came; the scan saw both.
    let script = Script::from(&[(2, 20)]).scan(1, 9, &[(2, 20), (3, 30)], 1, 20);
    right(&script.call(2, Delete, Done, 2, 3).call(3, Insert(30), Done, 4, 5));
}

#[test]
fn a_scan_out_of_order() {
    let fault = |start, limit, records: &[(u64, u64)]| {
        let script = Script::from(&[(1, 10), (2, 20)]).scan(start, limit, records, 1, 2);
        match wrong(&script) {
            Violation::Scan(scan) => (scan.fault, scan.to_string()).0,
            Violation::Key(disorder) => panic!("{disorder}"),
        }
    };
    assert_eq!(fault(1, 2, &[(2, 20), (1, 10)]), ScanFault::OutOfOrder { before: 2, key: 1 });
    assert_eq!(fault(1, 3, &[(1, 10), (1, 10), (2, 20)]), ScanFault::Twice { key: 1 });
    assert_eq!(fault(2, 2, &[(1, 10), (2, 20)]), ScanFault::Outside { key: 1 });
    assert_eq!(fault(1, 1, &[(1, 10), (2, 20)]), ScanFault::TooMany { count: 2 });
}

#[test]
fn a_write_without_an_answer_may_happen_late_or_never_but_not_early_or_twice() {
    let script = || Script::from(&[(1, 10)]).call(1, Put(11), Unknown, 5, 6);
    right(&script());
    right(&script().call(1, Get, Found(10), 100, 101));
    right(&script().call(1, Get, Found(10), 100, 101).call(1, Get, Found(11), 102, 103));
    assert_eq!(core(&script().call(1, Get, Found(11), 1, 2)), [0]);
    let twice = script().call(1, Get, Found(11), 10, 11).call(1, Put(12), Done, 12, 13);
    assert_eq!(core(&twice.call(1, Get, Found(11), 14, 15)), [1, 2, 3]);
    let late = script().call(1, Put(12), Done, 7, 8).call(1, Get, Found(12), 9, 10);
    right(&late.call(1, Get, Found(11), 14, 15));
}

#[test]
fn writes_without_an_answer_whose_values_nobody_saw_happen_once_each() {
    let lost = |inserts: u64, deletes: u64| {
        let mut script = empty();
        for value in 0..inserts {
            script = script.call(1, Insert(100 + value), Unknown, 1, 1);
        }
        for _ in 0..deletes {
            script = script.call(1, Delete, Unknown, 1, 1);
        }
        // A record that no call is known to have made, twice, and each time it goes.
        let script = script.call(1, Insert(1), Exists, 2, 3).call(1, Get, Absent, 4, 5);
        script.call(1, Insert(2), Exists, 6, 7).call(1, Delete, Done, 8, 9).call(1, Get, Absent, 10, 11)
    };
    right(&lost(2, 1));
    right(&lost(40, 40));
    assert_eq!(core(&lost(1, 1)), [2, 3, 4]);
    assert_eq!(core(&lost(2, 0)), [2, 3]);
}

#[test]
fn a_refused_write_and_a_read_without_an_answer_say_nothing() {
    let script = empty().call(1, Put(10), Refused, 1, 2).call(1, Get, Unknown, 3, 4);
    let script = script.call(1, Scan { limit: 4 }, Unknown, 5, 6);
    right(&script.call(1, Get, Absent, 7, 8));
    assert_eq!(core(&empty().call(1, Put(10), Refused, 1, 2).call(1, Get, Found(10), 3, 4)), [1]);
}

#[test]
fn many_writes_at_once_have_an_order_if_there_is_one() {
    // Eight writes at once, read in the order opposite to that in which they began.
    let reads = |order: &[u64]| {
        let mut script = empty();
        for value in 0..8 {
            script = script.call(1, Put(value), Done, value, 100 + value);
        }
        for (at, value) in order.iter().enumerate() {
            script = script.call(1, Get, Found(*value), 20 + 2 * at as u64, 21 + 2 * at as u64);
        }
        script
    };
    let mut order: Vec<u64> = (0..8).rev().collect();
    right(&reads(&order));
    order.push(3);
    assert_eq!(core(&reads(&order)).len(), 3, "it was seen to be overwritten");
}

#[test]
fn what_cannot_be_decided_is_said() {
    let mut script = empty();
    for value in 0..70 {
        script = script.call(1, Put(value), Done, value, 1000);
    }
    let undecided = script.check().undecided;
    assert_eq!(undecided[0].doubt, Doubt::Pending);
    let twice = empty().call(1, Put(7), Done, 1, 2).call(1, Put(7), Done, 3, 4).check();
    assert!(!twice.is_linearizable());
    assert_eq!(twice.undecided[0].doubt, Doubt::ValueTwice(7));
    assert!(twice.undecided[0].doubt.to_string().contains("value 7 was written twice"));
}

#[test]
fn outcomes_and_intervals_that_cannot_be_are_refused() {
    let bad = |script: Script| check(&script.history()).unwrap_err();
    assert_eq!(bad(empty().call(1, Get, Done, 1, 2)), MalformedHistory::Operation(0));
    assert_eq!(bad(empty().call(1, Put(1), Absent, 1, 2)), MalformedHistory::Operation(0));
    assert_eq!(bad(empty().call(1, Get, Absent, 2, 1)), MalformedHistory::Operation(0));
}

#[test]
fn a_violation_in_a_long_history_is_shown_by_few_operations() {
    let mut script = empty();
    for i in 0..2_000 {
        let at = 10 * i;
        script = script.call(1, Put(i), Done, at, at + 3).call(1, Get, Found(i), at + 4, at + 6);
    }
    let script = script.call(1, Get, Found(700), 30_000, 30_001);
    let Violation::Key(disorder) = wrong(&script) else { panic!() };
    assert_eq!(disorder.operations.len(), 2, "{disorder}");
    assert_eq!((disorder.of, disorder.minimal), (4_001, true));
    let text = disorder.to_string();
    assert!(text.contains("2 of its 4001 operations have no order"), "{text}");
    assert!(text.contains("found 700") && text.contains("not possible by then"), "{text}");
}

#[track_caller]
pub fn right_as_a_whole(script: &Script) {
    right(script);
    let whole = check_whole(&script.history());
    assert!(matches!(whole, Whole::Ordered { .. }), "{whole:?}");
}

#[test]
fn a_scan_down_says_what_is_there_and_what_is_not() {
    let three = || Script::from(&[(2, 20), (5, 50), (9, 90)]);
    right(&three().scan_back(9, 2, &[(9, 90), (5, 50)], 1, 2).scan_back(8, 9, &[(5, 50), (2, 20)], 3, 4));
    right(&three().call(5, Delete, Done, 1, 4).scan_back(9, 9, &[(9, 90), (2, 20)], 2, 3));
    for records in [&[(9, 90), (2, 20)][..], &[(9, 90)], &[(9, 91), (5, 50), (2, 20)]] {
        let script = three().scan_back(9, 9, records, 1, 2);
        assert!(!script.check().is_linearizable(), "{records:?}");
    }
    let Violation::Scan(scan) = wrong(&three().scan_back(9, 9, &[(2, 20), (5, 50)], 1, 2)) else { panic!() };
    assert_eq!(scan.fault, ScanFault::OutOfOrder { before: 2, key: 5 });
}

#[test]
fn a_scan_of_a_range_speaks_of_no_other_keys() {
    let three = || Script::from(&[(2, 20), (5, 50), (9, 90)]);
    for (is_down, both, first) in [(false, [(2, 20), (5, 50)], (2, 20)), (true, [(5, 50), (2, 20)], (5, 50))]
    {
        let call = |end, limit| ScanRange { end, limit, is_down };
        let script = three().records(2, call(9, 9), &both, 1, 2).records(2, call(9, 1), &[first], 3, 4);
        right(&script.records(3, call(5, 9), &[], 5, 6).records(9, call(2, 9), &[], 5, 6));
        assert!(!three().records(2, call(9, 9), &[first], 1, 2).check().is_linearizable());
        let Violation::Scan(scan) = wrong(&three().records(2, call(9, 1), &[(9, 90)], 1, 2)) else {
            panic!()
        };
        assert_eq!(scan.fault, ScanFault::Outside { key: 9 });
    }
}

#[test]
fn keys_alone_are_there_with_any_value() {
    let three = || Script::from(&[(2, 20), (5, 50), (9, 90)]).call(5, Update(51), Done, 1, 4);
    right(&three().scan(3, 9, &[(5, UNSEEN), (9, UNSEEN)], 2, 3));
    assert!(!three().scan(3, 9, &[(9, UNSEEN)], 2, 3).check().is_linearizable());
    let script = three().call(5, Delete, Done, 5, 6).scan(3, 9, &[(5, UNSEEN), (9, UNSEEN)], 7, 8);
    assert!(wrong(&script).to_string().contains("returned the key"));
}

#[test]
fn a_count_lies_between_what_was_there_throughout_and_what_may_have_been() {
    let count =
        |script: Script, end, count, from, to| script.call(2, Count { end }, Counted(count), from, to);
    let miscounted = |script: Script| {
        let Violation::Scan(scan) = wrong(&script) else { panic!() };
        scan.fault
    };
    let three = || Script::from(&[(2, 20), (5, 50), (9, 90)]);
    right(&count(count(three(), 9, 2, 1, 2), 10, 3, 1, 2));
    right(&count(three(), 1, 0, 1, 2));
    assert_eq!(miscounted(count(three(), 9, 3, 1, 2)), ScanFault::Miscounted { least: 2, most: 2, count: 3 });
    // Under way: either will do. Over, or not begun: one alone.
    let (deleted, inserted) =
        (|| three().call(5, Delete, Done, 3, 6), || three().call(6, Insert(60), Done, 3, 6));
    for (before, after, script) in [(2, 1, &deleted as &dyn Fn() -> Script), (2, 3, &inserted)] {
        right(&count(count(script(), 9, before, 4, 5), 9, after, 4, 5));
        right(&count(count(script(), 9, before, 1, 2), 9, after, 7, 8));
        assert!(!count(script(), 9, after, 1, 2).check().is_linearizable());
        assert!(!count(script(), 9, before, 7, 8).check().is_linearizable());
    }
    // Without an answer it may come at any later time, unless what is seen says that it has.
    let unknown = || three().call(6, Insert(60), Unknown, 3, 4);
    right(&count(count(unknown(), 9, 2, 7, 8), 9, 3, 9, 10));
    let seen = unknown().call(6, Get, Found(60), 5, 6);
    assert!(!count(seen, 9, 2, 7, 8).check().is_linearizable());
}

#[test]
fn a_key_without_an_order_is_told_of_and_not_the_counts_around_it() {
    // Deleted, and found afterwards: there throughout the count, and not there throughout.
    let key = || Script::from(&[(5, 50)]).call(5, Delete, Done, 1, 2).call(5, Get, Found(50), 3, 4);
    let counted =
        key().call(2, Count { end: 9 }, Counted(0), 5, 6).call(2, Count { end: 9 }, Counted(1), 5, 6);
    let Violation::Key(disorder) = wrong(&counted) else { panic!() };
    assert_eq!(disorder.key, 5);
}

#[test]
fn a_floor_says_what_is_there_and_what_is_not() {
    let script = Script::from(&[(2, 20), (5, 50)]);
    let script = script.nearest(4, Floor, Some((2, 20)), 1, 2).nearest(4, Ceiling, Some((5, 50)), 3, 4);
    let script = script.nearest(1, Floor, None, 5, 6).nearest(6, Ceiling, None, 7, 8);
    let script = script.nearest(5, Floor, Some((5, 50)), 9, 10).nearest(2, Ceiling, Some((2, 20)), 11, 12);
    right_as_a_whole(&script);
    for (key, call, found) in [
        (4, Floor, Some((1, 10))),
        (4, Floor, None),
        (6, Floor, Some((2, 20))),
        (6, Floor, Some((5, 51))),
        (1, Ceiling, Some((5, 50))),
        (1, Ceiling, None),
    ] {
        let script = Script::from(&[(2, 20), (5, 50)]).nearest(key, call, found, 1, 2);
        assert!(!script.check().is_linearizable(), "{call} of {key}: {found:?}");
        assert_eq!(check_whole(&script.history()), Whole::Disordered { operation: 0 });
    }
    let fault = |call, found| {
        let Violation::Scan(scan) = wrong(&Script::from(&[(9, 1)]).nearest(4, call, Some(found), 1, 2))
        else {
            panic!()
        };
        scan.fault
    };
    assert_eq!(fault(Floor, (9, 1)), ScanFault::Outside { key: 9 });
    assert_eq!(fault(Ceiling, (3, 1)), ScanFault::Outside { key: 3 });
}

#[test]
fn a_floor_of_two_moments_is_right_of_each_key_and_wrong_of_all() {
    // 2 was there before 1 came: 1 was never the greatest below 3.
    let writes = empty().call(2, Insert(20), Done, 2, 3).call(1, Insert(10), Done, 4, 5);
    let wrong = writes.nearest(3, Floor, Some((1, 10)), 1, 6);
    right(&wrong);
    assert_eq!(check_whole(&wrong.history()), Whole::Disordered { operation: 0 });
    // Had they been under way at once, it could have been.
    let writes = empty().call(2, Insert(20), Done, 2, 4).call(1, Insert(10), Done, 3, 5);
    right_as_a_whole(&writes.nearest(3, Floor, Some((1, 10)), 1, 6));
    // 2 came, then 1 went: one of them was always there.
    let writes = Script::from(&[(1, 10)]).call(2, Insert(20), Done, 2, 3).call(1, Delete, Done, 4, 5);
    let none = writes.nearest(3, Floor, None, 1, 6);
    right(&none);
    assert_eq!(check_whole(&none.history()), Whole::Disordered { operation: 0 });
}

#[test]
fn a_write_of_unknown_outcome_explains_a_floor_or_does_not() {
    let unknown = || Script::from(&[(1, 10)]).call(2, Insert(20), Unknown, 1, 2);
    right_as_a_whole(&unknown().nearest(3, Floor, Some((1, 10)), 3, 4).nearest(
        3,
        Floor,
        Some((2, 20)),
        5,
        6,
    ));
    let back = unknown().nearest(3, Floor, Some((2, 20)), 3, 4).nearest(3, Floor, Some((1, 10)), 5, 6);
    assert_eq!(check_whole(&back.history()), Whole::Disordered { operation: 2 });
}
