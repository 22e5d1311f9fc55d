//! Order beyond what intervals say: changes of one request, writes of one pipeline; and counts, of
//! what orders allow.

use fpcache_eval::history::Call::{Count, Delete, Get, Insert, Put, Update};
use fpcache_eval::history::Outcome::{Absent, Counted, Done, Exists, Found, Refused, Unknown};
use fpcache_eval::history::{ScanFault, Violation};

use super::Script;
use super::by_hand::{core, empty, right, wrong};

#[test]
fn a_count_is_of_what_orders_allow_and_not_of_what_intervals_do() {
    let miscounted = |script: Script, count| {
        let script = script.call(2, Count { end: 9 }, Counted(count), 3, 6);
        let Violation::Scan(scan) = wrong(&script) else { panic!() };
        scan.fault
    };
    // An insert that overlaps it and was seen before it.
    let seen = || Script::from(&[]).call(5, Insert(50), Done, 1, 9).call(5, Get, Found(50), 1, 2);
    right(&seen().call(2, Count { end: 9 }, Counted(1), 3, 6));
    assert_eq!(miscounted(seen(), 0), ScanFault::Miscounted { least: 1, most: 1, count: 0 });
    // A delete that overlaps it and cannot have come before what an update found.
    let later = || Script::from(&[(5, 50)]).call(5, Delete, Done, 1, 9).call(5, Update(51), Done, 7, 8);
    right(&later().call(2, Count { end: 9 }, Counted(1), 3, 6));
    assert_eq!(miscounted(later(), 0), ScanFault::Miscounted { least: 1, most: 1, count: 0 });
}

#[test]
fn changes_of_one_request_are_in_order() {
    // In reverse: the delete finds nothing, and what was put stays.
    let request = |first, second, kept| {
        let script = empty().call(1, Put(10), Done, 1, 9).by(0).call(1, Delete, second, 1, 9).by(first);
        script.call(1, Get, kept, 11, 12)
    };
    right(&request(1, Absent, Found(10)));
    right(&request(0, Done, Absent));
    assert_eq!(core(&request(0, Absent, Found(10))), [0, 1]);
    assert_eq!(core(&request(0, Absent, Absent)), [0, 1], "nor does the delete find nothing");
    let puts = |process| {
        let script = empty().call(1, Put(10), Done, 1, 9).by(0).call(1, Put(11), Done, 1, 9).by(process);
        script.call(1, Get, Found(10), 11, 12)
    };
    right(&puts(1));
    assert_eq!(core(&puts(0)), [1, 2]);
    // What failed has its turn too, and so have reads.
    let failed = |second| {
        let script = empty().call(1, Delete, Absent, 1, 9).by(0).call(1, Put(10), Done, 1, 9).by(0);
        script.call(1, Get, second, 1, 9).by(0)
    };
    right(&failed(Found(10)));
    assert_eq!(core(&failed(Absent)), [1, 2], "a pipeline's read waits for its write");
}

#[test]
fn a_pipelines_write_without_an_answer_is_not_after_its_later_one() {
    let late = || {
        let script = empty().call(1, Put(10), Unknown, 1, 2).by(0).call(1, Put(11), Done, 3, 6).by(0);
        script.call(1, Get, Found(10), 7, 8)
    };
    right(&late());
    assert_eq!(core(&late().pipelined()), [1, 2]);
    let deleted = || {
        let script = empty().call(1, Put(10), Unknown, 1, 2).by(0).call(1, Delete, Absent, 3, 6).by(0);
        script.call(1, Get, Absent, 7, 8).call(1, Insert(11), Exists, 9, 10)
    };
    right(&deleted());
    assert_eq!(core(&deleted().pipelined()), [2, 3]);
    // A refused one may not have been sent, and another process promises nothing.
    let refused = empty().call(1, Put(10), Unknown, 1, 2).by(0).call(1, Put(11), Refused, 3, 6).by(0);
    right(&refused.call(1, Get, Found(10), 7, 8).pipelined());
    let others = empty().call(1, Put(10), Unknown, 1, 2).by(0).call(1, Put(11), Done, 3, 6).by(1);
    right(&others.call(1, Get, Found(10), 7, 8).pipelined());
}
