//! Looks keys up in a memory node of another process.
//!
//! Start one and load data first:
//!
//! ```text
//! fpcache-memserver &
//! fpcache-cli load ipv4
//! cargo run --release -p fpcache-client --example lookup -- shm://fpcache 16777216
//! ```

use std::time::Duration;

use fpcache_client::{Client, ClientError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "shm://fpcache".into());
    let keys = arguments.map(|a| a.parse()).collect::<Result<Vec<u64>, _>>()?;
    match look_up(&url, &keys) {
        Err(error) if error.is_retryable() => Err(format!("{error} (worth another try)").into()),
        other => Ok(other?),
    }
}

fn look_up(url: &str, keys: &[u64]) -> Result<(), ClientError> {
    let client = Client::connect(url)?.with_deadline(Duration::from_millis(100));
    for (key, value) in keys.iter().zip(client.multi_get(keys)?) {
        match value {
            Some(value) => println!("{key} -> {value:02x?}"),
            None => println!("{key} is absent"),
        }
    }
    Ok(())
}
