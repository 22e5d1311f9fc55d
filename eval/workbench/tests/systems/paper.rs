//! The paper's statements at a small scale.

use fpcache_workbench::nic::NicSpec;
use fpcache_workbench::paper::{Bench, Figure, Scale, all, check_memory, filters, of};

const SCALE: Scale = Scale { keys: 20_000, nic: NicSpec::CX6_100G, seed: 1 };

#[test]
fn a_statement_is_measured_twice_with_the_same_figures_and_right_answers() {
    // ROLEX's throughput falls as its error bound grows.
    let claims = of(Some(Figure::Table(1))).expect("table 1");
    let measure = || Bench::new(SCALE, None).measure(&claims[0]).expect("a row");
    let (row, again) = (measure(), measure());
    assert_eq!((row.wrong(), format!("{row:?}")), (0, format!("{again:?}")));
    assert!(row.ours.is_some_and(|ours| ours < 0.9), "{row:?}");
}

#[test]
fn filters_read_whole_windows_of_keys_that_are_there_and_fpcache_a_tenth_of_that() {
    let claims = of(Some(Figure::Figure(17))).expect("figure 17");
    let mut bench = Bench::new(SCALE, None);
    let rows: Vec<_> = claims.iter().map(|claim| bench.measure(claim).expect("a row")).collect();
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(row.wrong(), 0);
        // Throughput and bytes: a filter that knows slots makes up for all of it.
        let (ours, best) = (row.ours.expect("both run"), row.ours_best.expect("both run"));
        let (better, nearer) = match row.measure {
            "bytes" => (ours < 0.1, best > 2.0 * ours),
            _ => (ours > 5.0, best < ours / 2.0),
        };
        assert!(better && nearer, "{row:?}");
        let differs = row.note.starts_with("differs");
        assert_eq!(
            differs,
            row.note.contains("spares nothing"),
            "the reason is given where they differ: {}",
            row.note
        );
    }
    assert_eq!(filters().len(), 3);
}

#[test]
fn bounds_agree_on_their_side_alone() {
    use fpcache_workbench::paper::Says::{About, Above, Below};
    assert!(About.holds(2.0, 2.1) && !About.holds(2.0, 2.3) && !About.holds(2.0, 1.7));
    assert!(Below.holds(1.0, 0.2) && !Below.holds(1.0, 1.01));
    assert!(Above.holds(1.0, 7.0) && !Above.holds(1.0, 0.99));
}

#[test]
fn figures_that_there_are_not_are_answered_with_a_list() {
    let error = of(Some(Figure::Figure(7))).expect_err("no figure 7").to_string();
    assert!(error.contains("figure 6") && error.contains("table 2"), "{error}");
    assert!(of(Some(Figure::Table(2))).expect("made in another way").is_empty());
}

#[test]
fn scales_beyond_memory_are_refused_with_one_that_fits() {
    let claims = all();
    let scale = Scale { keys: 60_000_000, ..SCALE };
    let error = check_memory(&claims, &scale, 1 << 30).expect_err("more than a gigabyte").to_string();
    let fits = error.rsplit(' ').next().and_then(|keys| keys.parse().ok()).expect("a number of keys");
    assert!(check_memory(&claims, &Scale { keys: fits, ..SCALE }, 1 << 30).is_ok(), "{error}");
}
