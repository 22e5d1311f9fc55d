//! Metrics that are served to Prometheus.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fpcache::key_space::U64Keys;
use fpcache::message::{ErrorCode, Refusal, encode_reply};
use fpcache_fabric::{Handled, Service};
use fpcache_memserver::Catalogue;
use rustix::process::{Pid, Signal, kill_process};

use crate::failures::{Otherwise, STATS};
use crate::{Node, command, text};

/// A process that serves metrics.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn of(url: &str) -> Self {
        Self::within("20s", url)
    }

    fn within(deadline: &str, url: &str) -> Self {
        let mut command = command();
        command.args(["--url", url, "--deadline", deadline, "metrics", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("serving http://").unwrap().strip_suffix("/metrics").unwrap();
        Self { address: address.to_owned(), child }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The status line and the body of the answer to a request.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nConnection: close"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\n\r\n", self.address))
    }

    /// Ends it by a signal, and returns what it wrote to its standard error.
    #[track_caller]
    fn end(mut self, signal: Signal) -> String {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{errors}");
        errors
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn metrics_are_served_until_a_signal_whether_the_memory_node_answers_or_not() {
    let mut node = Node::start(16 << 20);
    node.ends_with(0, "load words:100 --table words");
    let exporter = Exporter::of(&node.url);
    for _ in 0..3 {
        let (status, body) = exporter.get("/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        for line in [
            "# TYPE fpcache_table_keys gauge",
            "fpcache_up 1",
            "fpcache_table_keys{table=\"words\",key_kind=\"bytes\"} 100",
            "fpcache_table_scrape_ok{table=\"default\",key_kind=\"u64\"} 1",
            "fpcache_table_scrape_ok{table=\"words\",key_kind=\"bytes\"} 1",
        ] {
            assert!(body.lines().any(|own| own == line), "{line} in {body}");
        }
    }
    // Its own clients stay, and are no more than one of each table.
    assert!(
        exporter.get("/metrics").1.contains("fpcache_table_clients{table=\"words\",key_kind=\"bytes\"} 1\n")
    );
    assert_eq!(exporter.get("/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));

    // A table of the same name with other keys.
    node.ends_with(0, "drop words --yes");
    node.ends_with(0, "load sequential:100 --table words");
    let (_, body) = exporter.get("/metrics");
    assert!(body.contains("fpcache_table_scrape_ok{table=\"words\",key_kind=\"u64\"} 1\n"), "{body}");

    drop(node.serving.take());
    let (status, body) = exporter.get("/metrics");
    assert!(
        status.ends_with(" 200 OK") && body.ends_with("fpcache_up 0\n") && !body.contains("table"),
        "{body}"
    );
    let (status, body) = exporter.get("/healthz");
    assert!(status.ends_with(" 503 Service Unavailable") && body.contains(&node.url), "{status}: {body}");
    let errors = exporter.end(Signal::TERM);
    assert_eq!(errors.matches("warning: ").count(), 1, "{errors}");
}

/// With one memory node nothing was printed, so that a collector of files was not told.
#[test]
fn the_only_memory_node_is_printed_as_down_too() {
    let mut node = Node::start(8 << 20);
    drop(node.serving.take());
    let (out, err) = node.ends_with(2, "metrics");
    assert!(out.ends_with("fpcache_up 0\n") && err.contains(&node.url), "{out}{err}");
    let json = node.json(2, "metrics --json");
    assert_eq!(json[0]["samples"][0]["value"], 0, "{json}");
}

/// What a shell had from a command that was ended midway replaced the file, half of it.
#[test]
fn a_file_of_metrics_is_replaced_whole_and_as_down_too() {
    let mut node = Node::start(8 << 20);
    let path = node.directory.path().join("fpcache.prom");
    let line = format!("metrics --output {}", path.display());
    let written = || std::fs::read_to_string(&path).unwrap();
    assert_eq!(node.ends_with(0, &line).0, "");
    let complete = written();
    assert!(complete.contains("fpcache_up 1\n") && complete.ends_with('\n'), "{complete}");
    let old = std::fs::File::open(&path).unwrap();
    drop(node.serving.take());
    let (out, err) = node.ends_with(2, &line);
    assert!(out.is_empty() && err.contains(&node.url), "{out}{err}");
    assert!(written().ends_with("fpcache_up 0\n"), "{}", written());
    // Who reads it meanwhile has all of the one before.
    assert_eq!(std::io::read_to_string(old).unwrap(), complete);
    assert!(node.ends_with(2, &format!("{line} --json")).1.contains("--json"));
    assert!(node.ends_with(2, &format!("{line}/none")).1.contains("fpcache.prom/none"));
}

#[test]
fn requests_for_nothing_that_there_is_are_refused() {
    let node = Node::start(8 << 20);
    let exporter = Exporter::of(&node.url);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 "),
        ("GET /metrics/more HTTP/1.1\r\n\r\n", "404 "),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "405 "),
        ("\x16\x03\x01 no request\r\n\r\n", "400 "),
    ] {
        let (line, body) = exporter.ask(request);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status}")) && body.contains("/metrics"),
            "{line} {body}"
        );
    }
    let long = format!("GET /metrics HTTP/1.1\r\nCookie: {}\r\n\r\n", "x".repeat(20_000));
    assert!(exporter.ask(&long).0.starts_with("HTTP/1.1 431 "));
    assert!(exporter.get("/metrics").0.ends_with(" 200 OK"));
    exporter.end(Signal::INT);

    let (_, err) = node.ends_with(2, "metrics --listen 127.0.0.1");
    assert!(err.contains("--listen") && err.contains("HOST:PORT"), "{err}");
    assert!(node.ends_with(2, "metrics --listen 127.0.0.1:0 --json").1.contains("--json"));
}

/// Each of them held up the others for two seconds.
#[test]
fn clients_that_send_nothing_or_take_nothing_hold_up_no_others() {
    let node = Node::start(8 << 20);
    let exporter = Exporter::of(&node.url);
    let takes = || {
        let _silent: Vec<TcpStream> = (0..8).map(|_| exporter.connect()).collect();
        let mut half = exporter.connect();
        half.write_all(b"GET /metrics HT").unwrap();
        let gone = exporter.connect();
        gone.shutdown(Shutdown::Both).unwrap();
        let mut unread = exporter.connect();
        unread.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let started = Instant::now();
        assert!(exporter.get("/metrics").0.ends_with(" 200 OK"));
        started.elapsed()
    };
    // Once is enough: a busy machine may hold up each try.
    assert!((0..5).any(|_| takes() < Duration::from_millis(1500)));
    exporter.end(Signal::TERM);
}

/// A memory node that lets clients connect and says nothing: the kernel accepts them.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// They were waited for one after the other, for longer than Prometheus waits, and all metrics were
/// lost.
#[test]
fn several_silent_memory_nodes_take_a_scrape_no_longer_than_one() {
    let node = Node::start(8 << 20);
    let (silent, urls): (Vec<_>, Vec<_>) = (0..5).map(|_| silent()).unzip();
    let exporter = Exporter::within("2s", &format!("{},{}", urls.join(","), node.url));
    for path in ["/metrics", "/healthz"] {
        let started = Instant::now();
        let (_, body) = exporter.get(path);
        // One after the other they would take ten seconds.
        assert!(started.elapsed() < Duration::from_millis(7000), "{path}: {:?}", started.elapsed());
        assert!(urls.iter().all(|url| body.contains(url.as_str())), "{body}");
        if path == "/metrics" {
            assert!(body.contains(&format!("fpcache_up{{node=\"{}\"}} 1\n", node.url)), "{body}");
        }
    }
    drop(silent);
    exporter.end(Signal::TERM);
}

/// Each waited for the scrapes of all before it, and a check of health for all of them.
#[test]
fn requests_that_come_together_share_a_scrape_and_hold_up_no_check_of_health() {
    let (silent, url) = silent();
    let exporter = Exporter::within("6s", &url);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for i in 0..6 {
            let exporter = &exporter;
            scope.spawn(move || {
                sleep(Duration::from_millis(50 * i));
                assert!(exporter.get("/metrics").1.ends_with("fpcache_up 0\n"));
            });
        }
        sleep(Duration::from_millis(400));
        let asked = Instant::now();
        assert!(exporter.get("/healthz").0.contains(" 503 "));
        // One scrape is under way for all that time, and another one after it.
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    });
    // One after the other they would take 36 seconds.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(silent);
    exporter.end(Signal::TERM);
}

/// It waited for the memory node, too.
#[test]
fn a_second_signal_ends_at_once_what_waits_for_a_memory_node() {
    let (silent, url) = silent();
    let mut exporter = Exporter::within("60s", &url);
    let mut client = exporter.connect();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    // It is waited for from here on.
    let _connected = silent.accept().unwrap();
    let pid = Pid::from_child(&exporter.child);
    kill_process(pid, Signal::TERM).unwrap();
    sleep(Duration::from_secs(2));
    assert!(exporter.child.try_wait().unwrap().is_none());
    let started = Instant::now();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(exporter.child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// One error ended all of the output.
#[test]
fn a_table_that_does_not_tell_its_counters_leaves_the_others_theirs() {
    let refuses = Arc::new(AtomicBool::new(false));
    let turn = Arc::clone(&refuses);
    let mut asked = 0;
    // The first table that is asked refuses.
    let handle = move |catalogue: &mut Catalogue, client, request: &[u8], reply: &mut Vec<u8>| {
        if request[0] == STATS && turn.load(Ordering::SeqCst) {
            asked += 1;
            if asked == 1 {
                encode_reply(Err(&Refusal::new(ErrorCode::Internal, "nothing is told")), reply);
                return Handled::Now;
            }
        }
        catalogue.handle(client, request, reply)
    };
    let node = Node::serving::<U64Keys, _>(16 << 20, |catalogue| Otherwise { catalogue, handle });
    node.ends_with(0, "load words:100 --table words");
    refuses.store(true, Ordering::SeqCst);
    let output = node.run(["metrics"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(
        err.contains("warning: ") && err.contains("`default`") && err.contains("nothing is told"),
        "{err}"
    );
    for line in [
        "fpcache_up 1",
        "fpcache_table_scrape_ok{table=\"default\",key_kind=\"u64\"} 0",
        "fpcache_table_keys{table=\"default\",key_kind=\"u64\"} 0",
        "fpcache_table_scrape_ok{table=\"words\",key_kind=\"bytes\"} 1",
        "fpcache_table_requests_total{table=\"words\"",
    ] {
        assert!(out.contains(line), "{line} in {out}");
    }
    assert!(!out.contains("fpcache_table_requests_total{table=\"default\""), "{out}");
}
