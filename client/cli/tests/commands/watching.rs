//! Memory nodes are watched: whether they answer.

use crate::Node;

#[test]
fn a_ping_tells_times_or_that_there_is_no_memory_node() {
    let mut node = Node::start(8 << 20);
    let (out, _) = node.ends_with(0, "ping");
    assert!(out.contains(&node.url) && out.contains("median of 3;"), "{out}");
    // Whatever table is named: it is about the memory node.
    let ping = node.json(0, "ping --count 5 --deadline 1s --json --table nosuch");
    assert_eq!((&ping["count"], &ping["url"]), (&5.into(), &node.url.as_str().into()));
    let us = ["min_us", "median_us", "max_us"].map(|field| ping[field].as_f64().unwrap());
    assert!(us[0] > 0.0 && us.is_sorted(), "{ping}");
    assert!(node.ends_with(2, "ping --count 0").1.contains("--count"));
    drop(node.serving.take());
    let (out, err) = node.ends_with(2, "ping");
    assert!(out.is_empty() && err.contains("no memory node at"), "{err}");
}
