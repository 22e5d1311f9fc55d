//! Exports of tables that have nothing yet.

use fpcache::key_space::ByteKeys;

use crate::Node;

/// It was complete, and ended as a failure.
#[test]
fn a_table_without_parameters_is_exported_to_a_file() {
    for (node, keys) in [(Node::start(4 << 20), ""), (Node::start_for::<ByteKeys>(4 << 20), " --keys bytes")]
    {
        let file = node.path("none.tsv");
        let (out, _) = node.ends_with(0, &format!("export --output {}", file.display()));
        assert!(out.contains("exported    0 records"), "{out}");
        assert!(out.contains(&format!("--table default{keys}")), "{out}");
        assert!(std::fs::read(&file).unwrap().is_empty());
    }
}
