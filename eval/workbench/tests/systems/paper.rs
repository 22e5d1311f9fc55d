//! The paper's statements at a small scale.

use fpcache::plan::Plan;
use fpcache_workbench::experiment::{Parameters, Run};
use fpcache_workbench::nic::NicSpec;
use fpcache_workbench::paper::{Bench, Figure, Hotspots, Measure, Scale, all, check_memory, filters, of};

const SCALE: Scale = Scale { keys: 20_000, nic: NicSpec::CX6_100G, seed: 1 };

#[test]
fn a_statement_is_measured_twice_with_the_same_figures_and_right_answers() {
    // ROLEX's throughput falls as its error bound grows.
    let claims = of(Some(Figure::Table(1))).expect("table 1");
    let measure = |threads| {
        let mut rows = Bench::new(SCALE, threads, None).measure(&claims[..2]).expect("rows");
        (rows.swap_remove(0), rows)
    };
    let ((row, _), (again, _)) = (measure(1), measure(2));
    assert_eq!((row.wrong(), format!("{row:?}")), (0, format!("{again:?}")));
    assert!(row.ours.is_some_and(|ours| ours < 0.9), "{row:?}");
}

#[test]
fn filters_read_whole_windows_of_keys_that_are_there_and_fpcache_a_tenth_of_that() {
    let claims = of(Some(Figure::Figure(17))).expect("figure 17");
    let rows = Bench::new(SCALE, 1, None).measure(&claims).expect("rows");
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

/// Reads that always take one round trip were told to be hits.
#[test]
fn hit_rates_are_those_of_the_hot_cache_whatever_the_plan() {
    let mut claims = of(Some(Figure::Figure(13))).expect("figure 13");
    claims.retain(|claim| claim.measure == Measure::HitRate);
    claims.truncate(1);
    let claim = &mut claims[0];
    for side in [&mut claim.this, &mut claim.that] {
        side.1.fixed.plan = Some(Plan::Range);
    }
    let row = Bench::new(SCALE, 1, None).measure(&claims).expect("rows").swap_remove(0);
    let rate = |run: &Option<Run>| run.as_ref()?.measured.hot_cache?.hit_rate();
    let rates: Vec<_> = row.runs.iter().map(rate).collect();
    assert!(row.runs.iter().all(Option::is_some), "{}", row.note);
    assert_eq!(row.ours, rates[0].zip(rates[1]).map(|(this, that)| this / that), "{row:?}");
    assert_ne!(row.ours, Some(1.0), "{row:?}");
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
    let error = of(Some(Figure::Figure(5))).expect_err("no figure 5").to_string();
    assert!(error.contains("figure 6") && error.contains("table 2"), "{error}");
    assert!(of(Some(Figure::Table(2))).expect("made in another way").is_empty());
}

#[test]
fn scales_beyond_memory_are_refused_with_one_that_fits() {
    let claims = all();
    let scale = Scale { keys: 60_000_000, ..SCALE };
    let error =
        check_memory(None, &claims, &scale, 1 << 30, 2).expect_err("more than a gigabyte").to_string();
    let fits = error.rsplit(' ').next().and_then(|keys| keys.parse().ok()).expect("a number of keys");
    let fitting = check_memory(None, &claims, &Scale { keys: fits, ..SCALE }, 1 << 30, 2);
    assert_eq!(fitting.ok(), Some(1), "{error}");
    let quarter = check_memory(None, &claims, &Scale { keys: fits / 4, ..SCALE }, 1 << 30, 2);
    assert_eq!(quarter.ok(), Some(2), "as many at a time as there are threads");
}

#[test]
fn workloads_with_inserts_are_measured_with_every_system() {
    let claims: Vec<_> = all().into_iter().filter(|claim| claim.this.1.name == "D").collect();
    assert!(claims.len() > 10);
    for row in Bench::new(SCALE, 2, None).measure(&claims).expect("rows") {
        assert_eq!(row.wrong(), 0, "{row:?}");
        assert!(row.runs.iter().flatten().count() == 2 && row.ours.is_some(), "{row:?}");
        let changes = row.runs.iter().flatten().map(|run| run.measured.tally);
        assert!(
            changes.into_iter().all(|tally| tally.calls + tally.writes > tally.operations / 25),
            "{row:?}"
        );
    }
}

#[test]
fn scans_are_measured_with_updates_and_with_inserts() {
    let mut claims = of(Some(Figure::Figure(6))).expect("figure 6");
    claims.retain(|claim| claim.this.1.name.starts_with('E'));
    assert_eq!(claims.len(), 10);
    for row in Bench::new(SCALE, 2, None).measure(&claims).expect("rows") {
        assert_eq!(row.wrong(), 0, "{row:?}");
        assert!(row.ours.is_some() && row.ours_best.is_some(), "{row:?}");
        for run in row.runs.iter().flatten() {
            // Fifty records of 256 bytes.
            let tally = run.measured.tally;
            assert!(tally.per_operation(tally.bytes_from) > 0.95 * 50.5 * 256.0, "{row:?}");
        }
    }
}

#[test]
fn a_change_of_the_popular_keys_is_seen_and_got_over() {
    let rows = Bench::new(SCALE, 1, None).hotspots().expect("keys");
    let rows: Vec<_> = rows.into_iter().map(|row| row.expect("a run")).collect();
    assert!(rows.iter().all(|row| row.wrong == 0));
    let best = |of: &&[Hotspots]| of[0].system == of[1].system && of[1].parameters == Parameters::Best;
    assert_eq!(rows.chunks(2).filter(best).count(), 5, "each is also at its best");
    let own = &rows[0];
    assert_eq!((own.system, own.published_slowest), ("fpcache", Some(0.83)));
    assert!(own.slowest < 0.97 && own.recovers_in.is_some_and(|seconds| seconds > 0.0), "{own:?}");
}
