//! A memory node inside this process: no daemon, no socket.
//!
//! `cargo run --release -p fpcache-client --example embedded`

use fpcache_client::{Client, ClientError, TableParameters};

fn main() -> Result<(), ClientError> {
    let client = Client::embedded(64 << 20)?;

    // Keys in ascending order, values of one size.
    let mut load = client.load(TableParameters::default(), 100_000)?;
    for i in 0..100_000u64 {
        load.push(i * i, &i.to_le_bytes())?;
    }
    let loaded = load.finish()?;
    println!("loaded {} keys in {} segments", loaded.keys, loaded.segments);

    let mut value = Vec::new();
    let found = client.get_into(49, &mut value)?;
    println!("49 -> {value:?}, version {:?}, plan {}, {:?}", found.version, found.plan.name(), found.cost);
    assert_eq!(value, 7u64.to_le_bytes());

    assert_eq!(client.get(50)?, None);
    for (key, value) in client.scan(90, 3)? {
        println!("{key} -> {value:?}");
    }
    Ok(())
}
