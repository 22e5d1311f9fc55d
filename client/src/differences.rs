//! Differences between the parameters of two tables, in words.

use fpcache::layout::TableParameters;

/// What the first have where the second have something else, and what that is: `epsilon 32, not 8`.
pub(crate) fn differences(theirs: &TableParameters, asked: &TableParameters) -> String {
    let differing: Vec<String> = in_words(theirs)
        .into_iter()
        .zip(in_words(asked))
        .filter(|(theirs, asked)| theirs != asked)
        .map(|((what, theirs), (_, asked))| format!("{what} {theirs}, not {asked}"))
        .collect();
    match differing.is_empty() {
        // What cannot be told apart in words: for what they were chosen.
        true => "parameters that were tuned otherwise".to_owned(),
        false => differing.join("; "),
    }
}

fn in_words(parameters: &TableParameters) -> [(&'static str, String); 8] {
    let TableParameters { shape, epsilon, fill, max_slots, groups, .. } = parameters;
    let length =
        |bytes: Option<u32>| bytes.map_or("of any length".to_owned(), |bytes| format!("of {bytes} bytes"));
    let fingerprints = match parameters.fingerprint_bits() {
        0 => "none".to_owned(),
        bits => format!("of {bits} bits"),
    };
    [
        ("keys", length(shape.key_bytes.map(u32::from))),
        ("values", length(shape.value_bytes)),
        ("slots", format!("with room for {} bytes", shape.room)),
        ("epsilon", epsilon.to_string()),
        ("fill", fill.to_string()),
        ("fingerprints", fingerprints),
        ("segments", format!("of at most {max_slots} slots")),
        ("groups", groups.map_or("none".to_owned(), |groups| groups.name().to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use fpcache::layout::{GroupChoice, RecordShape};

    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let one = TableParameters::default();
        let shape = RecordShape { value_bytes: None, room: 72, ..one.shape };
        for (other, told) in [
            (TableParameters { epsilon: 8, ..one }, "epsilon 32, not 8"),
            (
                TableParameters { shape, ..one },
                "values of 8 bytes, not of any length; slots with room for 16 bytes, not with room for 72 bytes",
            ),
            (TableParameters { stores_fingerprints: false, ..one }, "fingerprints of 16 bits, not none"),
            (one, "parameters that were tuned otherwise"),
        ] {
            assert_eq!(differences(&one, &other), told);
        }
        let grouped = differences(&one, &one.with_groups(GroupChoice::Auto));
        assert!(grouped.contains("groups none, not plain"), "{grouped}");
    }
}
