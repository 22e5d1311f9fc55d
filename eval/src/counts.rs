//! Counts as options take them.

use fpcache_datasets::count;

/// A whole number above 0, with decimal K, M and G.
pub fn positive_count(text: &str) -> Result<u64, String> {
    count::parse(text)
        .filter(|&count| count > 0)
        .ok_or_else(|| "write a whole number above 0, plain or with K, M or G, such as 2M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_above_zero_are_taken() {
        assert_eq!(positive_count("2M"), Ok(2_000_000));
        for bad in ["0", "", "-1", "1.5", "0K"] {
            assert!(positive_count(bad).unwrap_err().contains("2M"), "{bad}");
        }
    }
}
