//! The generators: the same keys for the same seed everywhere, and as hard as what they stand in
//! for.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod support;

use fpcache_datasets::generate::wiki::WikiTimes;
use fpcache_datasets::{OpenOptions, Spec};
use fpcache_index::count_segments;
use support::Fitter;

fn keys(spec: &str) -> Vec<u64> {
    spec.parse::<Spec>().unwrap().open(&OpenOptions::default()).unwrap().into_keys()
}

fn segments(keys: &[u64], epsilon: u32) -> u64 {
    count_segments(keys.iter().copied(), epsilon).unwrap()
}

#[test]
fn ipv4_is_the_shipped_file() {
    let keys = keys("ipv4");
    assert_eq!((keys.len(), keys[0], keys[385_601]), (385_602, 15_726_992, 4_026_470_400));
    assert_eq!([8, 32, 64, 256].map(|epsilon| segments(&keys, epsilon)), [6_061, 1_744, 914, 245]);
    let data = "ipv4:1K".parse::<Spec>().unwrap().open(&OpenOptions::default()).unwrap();
    assert_eq!((data.len(), data.source(), data.value(999)), (1_000, "shipped", 999));
    assert!(data.keys().iter().all(|key| keys.binary_search(key).is_ok()));
}

#[test]
fn a_seed_gives_the_same_keys_everywhere() {
    let digest = |spec: Spec| {
        let keys = keys(&spec.to_string());
        let sum = keys.iter().fold(0u64, |sum, key| sum.rotate_left(7) ^ key);
        ([keys[0], keys[1], keys[2], keys[3]], sum)
    };
    let found: Vec<Golden> = GOLDEN.iter().map(|(spec, _)| (*spec, digest(spec.parse().unwrap()))).collect();
    assert_eq!(found, GOLDEN, "{found:#?}");
}

#[test]
fn another_seed_gives_other_keys() {
    for spec in
        ["fb:1K", "wiki:1K", "osm:1K", "books:1K", "uniform:1K", "normal:1K", "lognormal:1K", "ipv4:1K"]
    {
        let spec: Spec = spec.parse().unwrap();
        let open = |seed| spec.open(&OpenOptions { seed, ..OpenOptions::default() }).unwrap().into_keys();
        assert_ne!(open(1), open(2), "{spec}");
    }
}

#[test]
fn every_generator_gives_exactly_the_count() {
    for spec in ["fb", "osm", "books", "uniform", "normal", "lognormal", "sequential"] {
        for count in [1, 2, 1_000, 4_097] {
            let keys = keys(&format!("{spec}:{count}"));
            assert!(keys.len() == count && keys.windows(2).all(|pair| pair[0] < pair[1]), "{spec}:{count}");
        }
    }
    for count in [1, 2, 1_000, 4_097] {
        assert_eq!(WikiTimes::new(count, 42).count() as u64, count);
    }
}

/// Keys per segment of the published files, in thousandths, at ε 8, 32, 64 and 256.
const PUBLISHED: [(&str, [(u32, f64); 4]); 3] = [
    ("fb", [(8, 47.2), (32, 189.5), (64, 382.4), (256, 1_668.2)]),
    ("osm", [(8, 71.64), (32, 302.5), (64, 611.7), (256, 2_457.2)]),
    ("books", [(8, 88.96), (32, 761.6), (64, 2_484.4), (256, 33_636.1)]),
];

/// Checks a stand-in's keys per segment, relative to the published, at the ε that leave a few dozen
/// segments.
fn assert_as_hard(count: &str, within: impl Fn(&str) -> std::ops::Range<f64>) {
    for (name, published) in PUBLISHED {
        let keys = keys(&format!("{name}:{count}"));
        for (epsilon, per_segment) in published {
            let found = segments(&keys, epsilon);
            if found < 30 {
                continue;
            }
            let ratio = keys.len() as f64 / found as f64 / per_segment;
            println!("{name}:{count} at ε {epsilon}: {ratio:.3}");
            assert!(within(name).contains(&ratio), "{name} at ε {epsilon}: {ratio}");
        }
    }
}

#[test]
fn stand_ins_are_as_hard_as_the_published_files_also_at_small_size() {
    assert_as_hard("400K", |name| if name == "fb" { 0.9..1.15 } else { 0.9..1.1 });
}

#[test]
#[ignore = "16 M keys take minutes in debug builds; run with --release"]
fn stand_ins_of_16m_keys_are_within_the_calibration() {
    assert_as_hard("16M", |name| match name {
        "fb" => 0.95..1.10,
        "osm" => 0.95..1.07,
        _ => 0.92..1.08,
    });
}

#[test]
fn osm_and_books_cover_the_same_range_whatever_their_number() {
    for spec in ["osm:64", "osm:100K", "books:100K", "books:131072", "books:131073"] {
        let keys = keys(spec);
        assert!(keys.last().is_some_and(|&last| last > 1 << 60), "{spec}: {:?}", keys.last());
    }
}

#[test]
fn wiki_grows_as_the_encyclopedia_did_and_sleeps_at_night() {
    let times: Vec<u64> = WikiTimes::new(100_000, 42).collect();
    assert!(times.is_sorted() && times[0] >= 979_586_833 && times[99_999] < 1_216_200_000);
    let year_2005 = 1_104_537_600;
    let share = times.iter().filter(|&&time| time < year_2005).count() as f64 / 100_000.0;
    assert!((0.04..0.055).contains(&share), "{share}");
    let at = |hour| times.iter().filter(|&&time| time % 86_400 / 3_600 == hour).count() as f64;
    let ratio = at(19) / at(8);
    assert!((1.6..2.1).contains(&ratio), "{ratio}");
}

#[test]
#[ignore = "200 M keys take 4 GB and minutes in debug builds; run with --release"]
fn wiki_200m_is_within_a_quarter_of_the_published_facts() {
    let mut points: Vec<(u64, u64)> = Vec::new();
    for (position, time) in WikiTimes::new(200_000_000, 42).enumerate() {
        if points.last().is_none_or(|last| last.0 != time) {
            points.push((time, position as u64));
        }
    }
    let check = |what: &str, ours: u64, published: f64| {
        let ratio = ours as f64 / published;
        println!("{what}: {ratio:.3}");
        assert!((0.8..1.25).contains(&ratio), "{what}: {ratio}");
    };
    check("distinct", points.len() as u64, 90_437_011.0);
    for (epsilon, published) in [(8, 710e3), (32, 85.4e3), (64, 37.6e3), (256, 11.1e3)] {
        // The published numbers are of positions counted with duplicates.
        check(&format!("ε {epsilon}"), Fitter::count(points.iter().copied(), epsilon), published);
    }
}

#[test]
fn an_independent_fit_counts_the_same_segments() {
    for spec in ["fb:20K", "osm:20K", "books:20K", "lognormal:20K", "uniform:5K"] {
        let keys = keys(spec);
        for epsilon in [1, 8, 64] {
            let points = keys.iter().zip(0..).map(|(&key, rank)| (key, rank));
            assert_eq!(segments(&keys, epsilon), Fitter::count(points, epsilon), "{spec} at ε {epsilon}");
        }
    }
}

/// The first four keys for seed 42, and a digest of all.
type Golden = (&'static str, ([u64; 4], u64));
const GOLDEN: [Golden; 8] = [
    ("fb:50K", ([11, 15, 253, 613], 10_385_372_310_665_283_836)),
    ("wiki:50K", ([984_371_035, 988_145_558, 988_911_084, 994_641_050], 18_424_195_352_228_133_539)),
    (
        "uniform:5K",
        (
            [1_943_080_317_414_340, 4_510_711_178_387_536, 5_612_642_054_154_134, 6_577_855_136_943_665],
            15_355_077_826_054_726_980,
        ),
    ),
    ("lognormal:5K", ([369_907_960, 428_022_362, 453_280_018, 493_022_026], 14_243_954_925_688_440_024)),
    (
        "osm:50K",
        (
            [46_409_209_427_212, 232_523_533_161_410, 250_772_138_415_112, 294_803_622_925_936],
            11_037_385_951_672_287_201,
        ),
    ),
    (
        "books:50K",
        (
            [72_796_390_679_627, 472_936_190_324_870, 525_230_713_248_582, 553_578_195_799_551],
            15_087_636_578_104_309_075,
        ),
    ),
    (
        "normal:5K",
        (
            [
                3_605_182_145_522_806_656,
                3_616_312_446_252_715_776,
                3_693_764_645_966_793_472,
                3_776_398_986_603_472_384,
            ],
            9_350_979_978_692_510_417,
        ),
    ),
    ("sequential:5K", ([0, 1, 2, 3], 15_614_374_451_231_551_352)),
];
