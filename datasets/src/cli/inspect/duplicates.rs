//! How many keys are not the first of equal ones, in words.

/// `count` duplicates, and of how many equal keys at most, if there are any.
pub(super) fn duplicates(count: u64, most_equal: u64) -> String {
    match count {
        0 => "0".to_owned(),
        _ => format!("{count} (at most {most_equal} equal keys)"),
    }
}
