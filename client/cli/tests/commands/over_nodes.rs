//! Tables over several memory nodes.

use std::fs;

use fpcache_fabric::Serving;
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Catalogue, CatalogueConfig};

use super::{Node, command, text};

/// Runs a command line at no particular memory node, which must end with this exit code.
#[track_caller]
fn ends_with(code: i32, line: &str) -> (String, String) {
    let output = command().args(line.split_whitespace()).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{line}\n{out}\n{err}");
    (out, err)
}

/// It was split by its first part: the last memory node got nearly all of it.
#[test]
fn a_file_of_more_records_than_memory_for_them_is_split_only_where_it_is_told() {
    let nodes = [(); 2].map(|()| Node::start(32 << 20));
    let all = format!("{},{}", nodes[0].url, nodes[1].url);
    let lines: String = (0..20_000).map(|i| format!("{i}\t{i}\n")).collect();
    let file = nodes[0].file("records.tsv", lines);
    let import = format!("import {file} --table t --sort-memory 100KiB");
    let (_, err) = ends_with(2, &format!("{import} --nodes {all}"));
    assert!(err.contains("--split-at") && err.contains("--sort-memory"), "{err}");
    assert!(!nodes[0].ends_with(0, "tables").0.contains("range"));
    ends_with(0, &format!("create t --value-bytes vary --nodes {all} --split-at 10000"));
    nodes[1].ends_with(0, &import);
    for node in &nodes {
        assert!(node.ends_with(0, "metrics").0.contains("} 10000\n"), "half of them");
    }
    ends_with(
        0,
        &format!("{import} --nodes {0} --url {0}", nodes[0].url).replace("--table t", "--table one"),
    );
}

#[test]
fn a_table_over_three_memory_nodes_is_made_loaded_read_and_dropped() {
    let nodes = [(); 3].map(|()| Node::start(32 << 20));
    let urls = nodes.each_ref().map(|node| node.url.as_str());
    let all = urls.join(",");
    let (out, _) = ends_with(0, &format!("create --table t --nodes {all} --split-at 1000,2000"));
    assert!(out.contains(&format!("range 2     {}: keys from 1000 on, below 2000", urls[1])), "{out}");
    for (i, key) in [5, 1000, 2500].into_iter().enumerate() {
        // By the URL of any.
        nodes[i].ends_with(0, &format!("put --table t {key} {i}"));
    }
    for (i, node) in nodes.iter().enumerate() {
        let (out, _) = node.ends_with(0, "scan --table t 0 --limit 9");
        assert_eq!(out.lines().count(), 3, "{out}");
        assert_eq!(node.ends_with(0, "count --table t").0.trim(), "3");
        let (out, _) = ends_with(0, &format!("--url shm://nobody,{} get --table t 1000", urls[i]));
        assert!(out.contains('1'), "{out}");
        node.ends_with(1, "get --table t 999");
    }
    assert_eq!(nodes[2].json(0, "stats --table t --json")["keys"], 3);
    let (_, err) = nodes[0].ends_with(2, "create --table t");
    assert!(err.contains("over several memory nodes"), "{err}");
    let (_, err) = nodes[1].ends_with(2, "drop t");
    assert!(err.contains("--yes"), "{err}");
    // What lies there of a name is not always told, so that it is asked for any.
    for name in ["t", "nosuch"] {
        let (_, err) = ends_with(2, &format!("drop {name} --nodes {all}"));
        assert!(err.contains("--yes"), "{err}");
    }
    nodes[1].ends_with(0, "drop t --yes");
    for node in &nodes {
        let (_, err) = node.ends_with(2, "get --table t 5");
        assert!(err.contains("there is no table"), "{err}");
    }

    let tuned =
        format!("create --table t --nodes {all} --split-at 5,6 --tune auto --like fb:1k --tune-for rdma");
    let (out, _) = ends_with(0, &tuned);
    assert!(out.contains("tuned") && out.contains("round trips"), "why these parameters: {out}");
    ends_with(0, &format!("drop t --yes --nodes {all}"));
    ends_with(0, &format!("load uniform:30k --table u --nodes {all}"));
    for node in &nodes {
        let tables = node.json(0, "tables --json");
        let ranges = tables[0]["tables"].as_array().unwrap();
        let range = ranges.iter().find(|table| table["name"].as_str().unwrap().starts_with("u@")).unwrap();
        assert_eq!(range["keys"], 10_000, "as many each");
        let only = node.json(0, "tables --json --table u");
        assert_eq!(only[0]["tables"], serde_json::json!([range]), "alone by the table's name");
        assert_eq!((&range["range_of"], &range["ranges"]), (&"u".into(), &3.into()));
    }
    let (out, _) = nodes[1].ends_with(0, "tables");
    assert!(out.contains("\nu, range 2 of 3  u64 ") && !out.contains('@'), "{out}");
    let (out, _) = nodes[1].ends_with(0, "metrics");
    assert!(out.contains("fpcache_table_keys{table=\"u\",range=\"2\",creation=\""), "{out}");
    nodes[1].ends_with(0, "verify uniform:30k --table u");
    // Again: now it is there, and takes the same records once more.
    let (out, _) = ends_with(0, &format!("load uniform:30k --table u --nodes {all}"));
    assert!(out.contains("30000 updated"), "{out}");
    ends_with(0, &format!("load words --table w --nodes {all}"));
    nodes[0].ends_with(0, "verify words --table w");
    // Out of one such table, and into another.
    let file = nodes[0].directory.path().join("u.tsv");
    let file = file.to_str().unwrap();
    nodes[1].ends_with(0, &format!("export --table u --output {file}"));
    let import = format!("import {file} --table x --value-bytes 8");
    assert!(ends_with(0, &format!("{import} --nodes {all}")).0.contains("keys        30000"));
    nodes[0].ends_with(0, "verify uniform:30k --table x");
    let (out, _) = nodes[2].ends_with(0, &format!("import {file} --table x"));
    assert!(out.contains("0 new, 30000 updated"), "by the URL of any: {out}");
    nodes[2].ends_with(0, "drop x --yes");
    nodes[2].ends_with(0, "drop u --yes");
    ends_with(0, &format!("drop w --yes --nodes {all}"));
    let left =
        nodes.each_ref().map(|node| node.json(0, "tables --json")[0]["tables"].as_array().unwrap().len());
    assert_eq!(left, [1; 3], "but for the default ones");
}

#[test]
fn what_divides_no_table_is_told() {
    let node = Node::start(8 << 20);
    for (line, why) in [
        (format!("create --nodes {0},{0}", node.url), "named twice"),
        (format!("create --keys bytes --nodes {},shm://x", node.url), "--split-at"),
        (
            format!("create --nodes {},shm://x --split-at 5,6", node.url),
            "--split-at names 2 keys, but 2 memory nodes need 1 key",
        ),
        (
            format!("create --nodes {},shm://x,shm://y --split-at 9,5", node.url),
            "must ascend, but 5 does not come after 9",
        ),
        ("create --split-at 5".to_owned(), "--nodes"),
        (format!("create --table t --nodes {},shm://nobody-is-here", node.url), "nobody-is-here"),
    ] {
        let (_, err) = node.ends_with(2, &line);
        assert!(err.contains(why), "{line}: {err}");
    }
}

#[test]
fn a_drop_tells_of_a_range_that_is_closed_and_does_not_say_who_has_the_others() {
    let other = Node::start(8 << 20);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let address = ShmAddress::at_path(place.path().join("node.sock")).unwrap();
    let url = address.to_string();
    let serve = || -> Serving {
        let folders = Folders { data: data.clone(), region: data.clone() };
        let config =
            CatalogueConfig { durable: Some((folders, SyncPolicy::Never)), ..CatalogueConfig::of(8 << 20) };
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        listener.spawn(Catalogue::open(&config).unwrap()).unwrap()
    };
    let serving = serve();
    ends_with(0, &format!("create --table u --nodes {url},{} --split-at 1000", other.url));
    // Another one, so that there is something to serve.
    ends_with(0, &format!("--url {url} create --table v"));
    drop(serving);
    let tables = fs::read_dir(data.join("tables")).unwrap().map(|entry| entry.unwrap().path());
    let range = tables.into_iter().find(|path| path.join("map.fpm").exists()).unwrap();
    fs::write(range.join("map.fpm"), "damaged").unwrap();
    let _serving = serve();
    for line in ["drop u", "drop u --yes"] {
        let (_, err) = ends_with(2, &format!("--url {url} {line}"));
        for part in ["u@", "is closed and does not say who has the others", &format!("--nodes {url}")] {
            assert!(err.contains(part), "{line}: {err}");
        }
    }
    // For a name that no table has, the memory node says what there is instead.
    let (_, err) = ends_with(2, &format!("--url {url} drop w --yes"));
    assert!(err.contains("no table `w`") && err.contains("`v`"), "{err}");
    other.ends_with(0, &format!("drop u --yes --nodes {}", other.url));
    ends_with(0, &format!("drop u --yes --nodes {url}"));
}

#[test]
fn a_range_alone_is_not_dropped_by_mistake_nor_taken_for_a_table() {
    let nodes = [(); 2].map(|()| Node::start(16 << 20));
    let all = nodes.each_ref().map(|node| node.url.as_str()).join(",");
    ends_with(0, &format!("create --table t --nodes {all} --split-at 1000"));
    let listed = nodes[1].json(0, "tables --json");
    let names = listed[0]["tables"].as_array().unwrap().iter().map(|table| table["name"].as_str().unwrap());
    let range = names.into_iter().find(|name| name.starts_with("t@")).unwrap();
    let (_, err) = nodes[1].ends_with(2, &format!("drop {range} --yes"));
    for part in ["range 2 of the table `t`", "drop t --yes", "--nodes", "--range"] {
        assert!(err.contains(part), "{err}");
    }
    let (_, err) = nodes[1].ends_with(2, &format!("put --table {range} 5 1"));
    assert!(err.contains("another range") && err.contains("--table t") && !err.contains("map"), "{err}");
    let (_, err) = nodes[1].ends_with(2, "get --table nosuch 5");
    assert!(err.contains("`t` (range 2)") && !err.contains('@'), "{err}");
    assert!(err.contains(&format!("--url '{}' create --table nosuch", nodes[1].url)), "{err}");
    nodes[0].ends_with(0, "put --table t 1000 1");
    nodes[1].ends_with(0, &format!("drop {range} --range --yes"));
    let (_, err) = nodes[0].ends_with(2, "get --table t 1000");
    let check = err.find("--data-dir").unwrap();
    assert!(err.contains("has lost its range") && check < err.find("drop t").unwrap(), "{err}");
}

#[test]
fn of_several_memory_nodes_those_that_answer_are_shown_and_the_others_named() {
    let mut nodes = [(); 3].map(|()| Node::start(16 << 20));
    let all = nodes.each_ref().map(|node| node.url.as_str()).join(",");
    ends_with(0, &format!("create --table t --nodes {all} --split-at 1000,2000"));
    let (out, _) = ends_with(0, &format!("--url {all} tables --table t"));
    for (i, node) in nodes.iter().enumerate() {
        assert!(out.contains(&node.url) && out.contains(&format!("t, range {} of 3", i + 1)), "{out}");
    }
    drop(nodes[0].serving.take());
    for command in ["tables", "metrics", "ping", "tables --json", "metrics --json", "ping --json"] {
        let (out, err) = ends_with(2, &format!("--url {all} {command}"));
        assert!(
            err.contains("1 of 3 memory nodes could not be asked") && err.contains(&nodes[0].url),
            "{err}"
        );
        // The metrics say of it that it does not answer.
        let is_shown = command.starts_with("metrics");
        assert_eq!(out.contains(&nodes[0].url), is_shown, "{out}");
        nodes[1..].iter().for_each(|node| assert!(out.contains(&node.url), "{command}: {out}"));
        if command == "metrics" {
            assert_eq!(out.matches("# TYPE fpcache_table_keys ").count(), 1, "{out}");
        }
        if command.ends_with("--json") {
            serde_json::from_str::<serde_json::Value>(&out).unwrap();
        }
    }
    let (_, err) = nodes[1].ends_with(2, "stats --table t --deadline 1s");
    assert!(err.contains(&nodes[0].url) && err.contains("metrics"), "{err}");
    let (_, err) = nodes[1].ends_with(2, "drop t --yes --deadline 1s");
    assert!(err.contains(&nodes[0].url) && err.contains("drop t --nodes URL,URL --yes"), "{err}");
    ends_with(0, &format!("drop t --yes --nodes {},{}", nodes[1].url, nodes[2].url));
}

/// It succeeded without a word of where keys go.
#[test]
fn the_ranges_that_are_chosen_are_shown() {
    let nodes = [(); 2].map(|()| Node::start(8 << 20));
    let [first, second] = nodes.each_ref().map(|node| node.url.as_str());
    let (out, _) = ends_with(0, &format!("create t --nodes {first},{second}"));
    assert!(out.contains(&format!("{first}: keys below 9223372036854775808\n")), "{out}");
    assert!(out.contains(&format!("{second}: keys from 9223372036854775808 on\n")), "{out}");
    // Every one is asked, not the first that answers.
    let (out, _) = ends_with(0, &format!("--url {first},{second} ping"));
    assert!(out.contains(first) && out.contains(second), "{out}");
}

/// It was said to have been created, with whatever region, as at every start-up of a service.
#[test]
fn a_table_over_several_memory_nodes_that_has_records_or_another_region_is_not_created() {
    let nodes = [(); 2].map(|()| Node::start(64 << 20));
    let all = nodes.each_ref().map(|node| node.url.as_str()).join(",");
    let create = format!("create --table t --nodes {all} --split-at 1000");
    ends_with(0, &format!("{create} --region-bytes 8MiB"));
    ends_with(0, &create);
    ends_with(0, &format!("{create} --region-bytes 8MiB"));
    for line in [create.as_str(), &format!("load uniform:1k --table t --nodes {all}")] {
        let (_, err) = ends_with(2, &format!("{line} --region-bytes 16MiB"));
        assert!(err.contains("which cannot be changed: omit --region-bytes"), "{err}");
    }
    nodes[1].ends_with(0, "put --table t 5 7");
    let (_, err) = ends_with(2, &create);
    assert!(err.contains("is there already and has records"), "{err}");
    assert_eq!(nodes[0].ends_with(0, "count --table t").0.trim(), "1");
}

/// A second one was made at the first memory node, and hid the records of the other.
#[test]
fn a_table_of_another_memory_node_in_the_url_is_found_and_made_no_second_time() {
    let mut nodes = [(); 2].map(|()| Node::start(16 << 20));
    let [first, second] = nodes.each_ref().map(|node| node.url.clone());
    let all = format!("--url {first},{second}");
    let file = nodes[0].directory.path().join("five.tsv");
    fs::write(&file, "1\tone\n2\ttwo\n").unwrap();
    let import = format!("import {} --table bytes", file.to_str().unwrap());
    for (kind, name) in [("u64", "numbers"), ("bytes", "bytes")] {
        ends_with(0, &format!("--url {second} create {name} --keys {kind} --value-bytes vary"));
    }
    let (out, _) = ends_with(0, &format!("{all} {import}"));
    assert!(out.contains("keys        2"), "{out}");
    ends_with(0, &format!("{all} load uniform:10 --table numbers --value-bytes vary"));
    let (_, err) = ends_with(2, &format!("{all} create numbers"));
    assert!(err.contains("is there already") && err.contains(&second), "{err}");
    assert_eq!(ends_with(0, &format!("{all} count --table bytes")).0.trim(), "2", "keys of either kind");
    let (_, err) = ends_with(2, &format!("{all} drop numbers"));
    assert!(err.contains("has 10 keys"), "{err}");
    ends_with(0, &format!("{all} drop numbers --yes"));
    drop(nodes[1].serving.take());
    for line in
        ["load uniform:10 --table bytes", "create bytes", &import, "drop bytes --yes", "count --table bytes"]
    {
        let (_, err) = ends_with(2, &format!("{all} --deadline 1s {line}"));
        assert!(err.contains(&second) && !err.contains("there is no table"), "{line}: {err}");
    }
    let left = nodes[0].json(0, "tables --json")[0]["tables"].as_array().unwrap().len();
    assert_eq!(left, 1, "but for the default one");
}

/// Keys were read from the end of the range on, at memory nodes that have none of it.
#[test]
fn keys_of_a_range_are_listed_without_the_memory_nodes_that_have_none_of_them() {
    let mut nodes = [(); 2].map(|()| Node::start(16 << 20));
    let all = nodes.each_ref().map(|node| node.url.as_str()).join(",");
    ends_with(0, &format!("create --table t --nodes {all} --split-at 1000"));
    for key in [5, 6, 900, 1000] {
        nodes[0].ends_with(0, &format!("put --table t {key} 1"));
    }
    drop(nodes[1].serving.take());
    for (range, keys) in [("--to 1000", "5 6 900"), ("--from 6 --to 1000", "6 900"), ("--to 900", "5 6")] {
        let line = format!("scan --table t --deadline 5s --keys-only {range}");
        let (out, _) = nodes[0].ends_with(0, &line);
        assert_eq!(out.split_whitespace().collect::<Vec<_>>().join(" "), keys, "{line}");
    }
}
