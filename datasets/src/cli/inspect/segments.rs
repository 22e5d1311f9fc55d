//! Counts of segments by ε, as JSON has them.

use serde::Serializer;
use serde::ser::SerializeMap;

/// A member for each ε, in the order asked for.
pub(super) fn by_epsilon<S: Serializer>(segments: &&[(u32, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(segments.len()))?;
    for (epsilon, count) in *segments {
        map.serialize_entry(&epsilon.to_string(), count)?;
    }
    map.end()
}
