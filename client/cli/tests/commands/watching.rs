//! Memory nodes are watched: whether they answer, and what they count.

use std::collections::{HashMap, HashSet};
use std::fs;

use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Catalogue, CatalogueConfig};
use serde_json::Value;

use crate::{Node, command, text};

#[test]
fn a_ping_tells_times_or_that_there_is_no_memory_node() {
    let mut node = Node::start(8 << 20);
    let (out, _) = node.ends_with(0, "ping");
    assert!(out.contains(&node.url) && out.contains("median of 3;"), "{out}");
    let ping = node.json(0, "ping --count 5 --deadline 1s --json");
    let ping = &ping[0];
    assert_eq!((&ping["count"], &ping["url"]), (&5.into(), &node.url.as_str().into()));
    let us = ["min_us", "median_us", "max_us"].map(|field| ping[field].as_f64().unwrap());
    assert!(us[0] > 0.0 && us.is_sorted(), "{ping}");
    assert!(node.ends_with(2, "ping --count 0").1.contains("--count"));
    drop(node.serving.take());
    let (out, err) = node.ends_with(2, "ping");
    assert!(out.is_empty() && err.contains("no memory node at"), "{err}");
}

/// It ended with 0 whatever became of the table.
#[test]
fn a_ping_that_names_a_table_opens_it() {
    let node = Node::start(16 << 20);
    node.ends_with(0, "load words:100 --table words");
    for table in ["default", "words"] {
        node.ends_with(0, &format!("--table {table} ping"));
    }
    let (out, err) = node.ends_with(2, "--table orders ping");
    assert!(out.contains("median of 3;") && err.contains("no table `orders`"), "{out}{err}");
    let (out, _) = node.ends_with(2, "--table orders ping --json");
    assert!(serde_json::from_str::<Value>(&out).is_ok(), "{out}");
    // One of the environment is for the commands that need one.
    let of_environment =
        command().env("FPCACHE_URL", &node.url).env("FPCACHE_TABLE", "orders").arg("ping").output();
    assert!(of_environment.unwrap().status.success());
}

#[test]
fn a_ping_of_a_table_over_several_memory_nodes_asks_all_of_them() {
    let mut nodes = [(); 2].map(|()| Node::start(16 << 20));
    let urls = format!("{},{}", nodes[0].url, nodes[1].url);
    let output = command().args(["load", "uniform:1000", "--table", "t", "--nodes", &urls]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    nodes[0].ends_with(0, "--table t ping");
    drop(nodes[1].serving.take());
    nodes[0].ends_with(0, "ping");
    let (_, err) = nodes[0].ends_with(2, "--table t ping");
    assert!(err.contains(&nodes[1].url), "{err}");
}

#[test]
fn a_memory_node_with_a_closed_table_answers_and_is_not_ready() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let address = ShmAddress::at_path(place.path().join("node.sock")).unwrap();
    let serve = || {
        let folders = Folders { data: data.clone(), region: data.clone() };
        let config =
            CatalogueConfig { durable: Some((folders, SyncPolicy::Never)), ..CatalogueConfig::of(8 << 20) };
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        listener.spawn(Catalogue::open(&config).unwrap()).unwrap()
    };
    let ends_with = |code: i32, line: &str| {
        let output =
            command().env("FPCACHE_URL", address.to_string()).args(line.split(' ')).output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        out + &err
    };
    let serving = serve();
    ends_with(0, "create --table orders");
    ends_with(0, "create --table other");
    ends_with(0, "ping --ready");
    drop(serving);
    fs::write(data.join("tables/orders/table.fpt"), "damaged").unwrap();
    let _serving = serve();

    ends_with(0, "ping");
    let told = ends_with(1, "ping --ready");
    assert!(told.contains("closed      orders\n"), "{told}");
    assert!(ends_with(1, "ping --ready --json").contains("\"closed\":[\"orders\"]"));
    assert!(ends_with(2, "--table orders ping").contains("is closed"));
    ends_with(0, "--table other ping");
    // It is no failure of the metrics.
    assert!(ends_with(0, "metrics").contains("fpcache_table_open{table=\"orders\",key_kind=\"u64\"} 0\n"));
}

/// What a line of the text format says of a metric, with its labels.
fn sample(line: &str) -> (String, HashMap<String, String>, f64) {
    let (rest, value) = line.rsplit_once(' ').unwrap();
    let (name, rest) = rest.split_once('{').unwrap_or((rest, "}"));
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    assert!(is_name(name), "{line}");
    let mut labels = HashMap::new();
    for label in rest.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty()) {
        let (label, value) = label.split_once('=').unwrap();
        let value = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
        assert!(is_name(label) && !value.contains(['"', '\\']), "{line}");
        labels.insert(label.to_owned(), value.to_owned());
    }
    (name.to_owned(), labels, value.parse().unwrap())
}

#[test]
fn every_line_of_the_metrics_is_as_prometheus_reads_it() {
    let node = Node::start(32 << 20);
    node.ends_with(0, "load sequential:1000");
    node.ends_with(0, "put 1000 1");
    node.ends_with(0, "load words:2K --table words");
    let (out, err) = node.ends_with(0, "metrics");
    assert_eq!(err, "");
    let (mut kinds, mut helped, mut seen) = (HashMap::new(), HashSet::new(), HashMap::new());
    for line in out.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && help.ends_with('.'), "once: {line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name) && ["gauge", "counter"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "once: {line}");
        } else {
            let (name, labels, value) = sample(line);
            assert!(kinds.contains_key(&name) && name.starts_with("fpcache_") && value >= 0.0, "{line}");
            assert!(!name.contains("_ns") && !name.contains("_ms"), "base units: {line}");
            let table = labels.get("table").cloned().unwrap_or_default();
            assert!(seen.insert((name, table), value).is_none(), "once: {line}");
        }
    }
    assert_eq!(kinds.len(), helped.len());
    let of = |name: &str, table: &str| seen[&(format!("fpcache_{name}"), table.to_owned())];
    assert_eq!((of("tables", ""), of("capacity_bytes", "")), (2.0, f64::from(32 << 20)));
    assert_eq!((of("table_keys", "default"), of("table_keys", "words")), (1001.0, 2000.0));
    assert_eq!((of("table_inserts_total", "default"), of("table_open", "words")), (1.0, 1.0));
    assert!(of("table_used_bytes", "words") > 0.0 && of("table_uptime_seconds", "words") < 3600.0);
    assert!(out.contains("fpcache_table_keys{table=\"words\",key_kind=\"bytes\"} 2000\n"), "{out}");

    assert_eq!((of("table_log_writable", "words"), of("table_log_errors_total", "words")), (1.0, 0.0));
    let release = format!("fpcache_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
    assert!(out.contains(&release), "{out}");

    let json = node.json(0, "metrics --json");
    let keys = json.as_array().unwrap().iter().find(|metric| metric["name"] == "fpcache_table_keys").unwrap();
    assert_eq!((&keys["type"], &keys["samples"][1]["value"]), (&"gauge".into(), &2000.into()));
    assert_eq!(keys["samples"][0]["labels"]["table"], Value::from("default"));
}

#[test]
fn ranges_of_tables_over_several_memory_nodes_have_metrics_too() {
    let nodes = [(); 2].map(|()| Node::start(16 << 20));
    let urls = format!("{},{}", nodes[0].url, nodes[1].url);
    let output = command().args(["load", "uniform:1000", "--table", "t", "--nodes", &urls]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (out, _) = nodes[1].ends_with(0, "metrics");
    let keys =
        out.lines().find(|line| line.starts_with("fpcache_table_keys{table=\"t\",range=\"2\",")).unwrap();
    assert!(keys.ends_with(" 500"), "{keys}");
    assert!(out.contains("fpcache_table_segments{table=\"t\",range=\"2\","), "{out}");

    let [mut first, second] = nodes;
    drop(first.serving.take());
    let output = command().args(["--url", &urls, "metrics"]).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{err}");
    for (url, up) in [(&first.url, 0), (&second.url, 1)] {
        assert!(out.contains(&format!("fpcache_up{{node=\"{url}\"}} {up}\n")), "{out}");
    }
}
