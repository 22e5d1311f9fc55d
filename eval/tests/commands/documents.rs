//! The commands that documents name: their options are those that there are.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What stands before a command's words.
const PROGRAMS: [&str; 4] = [
    "cargo run --release --features fpcache-eval/workbench -- ",
    "cargo run --release -- ",
    "target/release/fpcache-eval ",
    "fpcache-eval ",
];
/// Commands that tables name without a program.
const NAMES: [&str; 11] =
    ["run", "sweep", "ycsb", "growth", "waits", "scale", "peers", "density", "explain", "fabric", "paper"];
/// A command with one of these is no command, but says what commands look like.
const PLACEHOLDERS: [&str; 2] = ["…", "COMMAND"];

/// Lines of code blocks, and what prose and tables have between backticks, each on one line.
fn code_in(document: &str) -> Vec<String> {
    let mut code = Vec::new();
    for (index, part) in document.replace("\\\n", " ").split("```").enumerate() {
        if index % 2 == 1 {
            code.extend(part.lines().map(|line| line.split(" #").next().unwrap_or(line).to_owned()));
        } else {
            let paragraphs = part.split("\n\n");
            code.extend(paragraphs.flat_map(|it| it.split('`').skip(1).step_by(2)).map(str::to_owned));
        }
    }
    code.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The words of a command for `fpcache-eval`, without the program's name.
fn words_of(line: &str) -> Option<&str> {
    let line = line.trim_start_matches("$ ");
    let end = [" &", " |", " >", ";"].iter().filter_map(|end| line.find(end)).min();
    let line = &line[..end.unwrap_or(line.len())];
    let has_options = |name: &&str| line.strip_prefix(*name).is_some_and(|rest| rest.starts_with(" --"));
    let words = PROGRAMS.iter().find_map(|program| line.strip_prefix(program));
    words
        .or_else(|| NAMES.iter().any(has_options).then_some(line))
        .filter(|words| !PLACEHOLDERS.iter().any(|it| words.contains(it)))
}

/// With `--help` at its end a command does nothing, but everything before must make sense.
#[test]
fn commands_in_documents_have_the_options_that_there_are() {
    let (mut all, mut wrong) = (0, Vec::new());
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/ARCHITECTURE.md",
        "docs/datasets.md",
        "docs/design.md",
        "docs/guide.md",
        "docs/nic-model.md",
        "docs/operations.md",
        "docs/performance.md",
    ] {
        let contents = std::fs::read_to_string(Path::new(ROOT).join(document)).unwrap();
        for line in code_in(&contents) {
            let Some(words) = words_of(&line) else { continue };
            // Such commands need the workbench.
            if !cfg!(feature = "workbench") && (words.starts_with("paper") || words.contains("nic:")) {
                continue;
            }
            let words = words.split(' ').chain(["--help"]);
            let ran = Command::new(env!("CARGO_BIN_EXE_fpcache-eval")).args(words).output().unwrap();
            if !ran.status.success() {
                wrong.push(format!("{document}: {line}: {}", String::from_utf8_lossy(&ran.stderr)));
            }
            all += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all > 40, "{all} commands");
}

#[test]
fn every_dependency_has_a_row() {
    let read =
        |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).expect("a file of the repository");
    let (manifest, design) = (read("Cargo.toml"), read("docs/design.md"));
    let section = |text: &str, begin: &str, end: &str| {
        let (_, rest) = text.split_once(begin).expect("the section is there");
        rest.split(end).next().unwrap_or(rest).to_owned()
    };
    let rows = section(&design, "\n## Dependencies\n", "\n## ");
    let first_cells = rows.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let named: Vec<_> = first_cells.flat_map(|cell| cell.split(", ")).collect();
    let dependencies = section(&manifest, "\n[workspace.dependencies]\n", "\n[");
    let all: Vec<_> = dependencies
        .lines()
        .filter(|line| !line.contains("path = "))
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .collect();
    assert!(all.len() > 30, "{all:?}");
    let missing: Vec<_> = all.iter().filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "no row in docs/design.md says why these are needed: {missing:?}");
}
