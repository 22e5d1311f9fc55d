//! Running the program.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The program, without the caller's data folder and width of a terminal.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpcache-eval"));
    command.env_remove("FPCACHE_DATASETS").env_remove("COLUMNS");
    command
}

/// Runs it to its end with these words as arguments.
pub fn run(arguments: &str) -> Output {
    program().args(arguments.split_whitespace()).output().expect("the program was built")
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The output of a command that succeeds.
pub fn done(command: &str) -> Output {
    let output = run(command);
    assert!(output.status.success(), "{command}: {}", stderr(&output));
    output
}

/// The rows of a command that succeeds.
pub fn json_of(command: &str) -> Vec<Value> {
    let output = done(&format!("{command} --json -"));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON alone")
}

/// The rows of a file.
pub fn json_in(path: &Path) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON")
}

/// What a command that fails says.
pub fn refusal(command: &str) -> String {
    let output = run(command);
    assert_eq!(output.status.code(), Some(2), "{command}: {}{}", stdout(&output), stderr(&output));
    stderr(&output)
}

/// A command is refused with each of these options, with words that name the remedy.
pub fn assert_refused(command: &str, options_and_remedies: &[(&str, &str)]) {
    for (options, remedy) in options_and_remedies {
        let said = refusal(&format!("{command} {options}"));
        assert!(said.contains(remedy), "{options}: {said}");
    }
}

/// A number in a row.
pub fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {row}"))
}

/// The process id in the line `memory node: process PID at …`.
pub fn memory_node_in(line: &str) -> Option<u32> {
    line.strip_prefix("memory node: process ")?.split(' ').next()?.parse().ok()
}

/// Whether a process is there and not merely waiting to be reaped.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('Z')));
    state == Some(false)
}

/// Waits until `condition` holds; whether it did in time.
pub fn eventually(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
