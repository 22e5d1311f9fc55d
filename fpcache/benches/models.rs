//! From a key to its segment: with the whole directory here, with its page kept, and with its page
//! to be decoded.

#[path = "../tests/common/mod.rs"]
mod region;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::table_view::TableView;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use region::{Region, first_key, generation, least_bytes};
use std::hint::black_box;

/// Pages of a directory of 163,200 segments: 20 million keys of `fb`.
const PAGES: usize = 1600;
const SEGMENTS: u64 = PAGES as u64 * 102;

fn ways_to_a_segment(c: &mut Criterion) {
    let region = Region::<U64Keys>::new(&[102; PAGES]);
    let mut endpoint = region.endpoint();
    let whole = TableView::<U64Keys>::open(&mut endpoint).expect("a sound directory");
    // A little less than the whole directory: nearly all pages are kept.
    let bytes = whole.model_bytes() as u64;
    let paged = TableView::<U64Keys>::open_within(&mut endpoint, bytes).expect("room for pages");
    let (directory, models) = whole.models().resident().zip(paged.models().paged()).expect("one of each");
    let mut page = [0; U64Keys::PAGE_BYTES];
    for number in 0..models.pages() {
        region.page(number, &mut page);
        models.keep(number, &page).expect("a sound page");
    }
    let mut rng = SmallRng::seed_from_u64(1);
    let random = std::iter::repeat_with(|| first_key::<U64Keys>(rng.random_range(0..SEGMENTS)));
    let keys: Vec<u64> =
        random.filter(|key| models.kept(models.page_of(key)).is_some()).take(1 << 16).collect();
    let mut at = 0;
    let mut next = || {
        at = (at + 1) % keys.len();
        keys[at]
    };
    assert_eq!(directory.locate(&first_key::<U64Keys>(7)).map(|l| l.entry.generation()), Some(generation(7)));
    println!("{} of {} pages kept in {} bytes", models.pages_kept(), models.pages(), paged.model_bytes());
    let mut group = c.benchmark_group("segment_of_a_random_key");
    group.bench_function("resident", |b| {
        b.iter(|| directory.locate(black_box(&next())).map_or(0, |l| l.entry.generation()));
    });
    group.bench_function("page_kept", |b| {
        b.iter(|| {
            let key = black_box(next());
            models.kept(models.page_of(&key)).map_or(0, |page| page.find_shared(&key).0.generation())
        });
    });
    group.finish();
    let few = least_bytes(&region);
    let few = TableView::<U64Keys>::open_within(&mut endpoint, few).expect("room for a page");
    let models = few.models().paged().expect("too little for all");
    c.bench_function("decode_check_and_keep_a_page", |b| {
        let mut number = 0;
        let fetch = || {
            number = (number + 1) % PAGES as u32;
            let mut page = [0; U64Keys::PAGE_BYTES];
            region.page(number, &mut page);
            (number, page)
        };
        b.iter_batched(fetch, |(number, page)| models.keep(number, &page).is_ok(), BatchSize::SmallInput);
    });
}

criterion_group!(benches, ways_to_a_segment);
criterion_main!(benches);
