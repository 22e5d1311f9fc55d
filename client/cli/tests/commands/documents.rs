//! The terminal sessions of README and guide: what they show is what a user sees.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::{Node, text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A command of a session, and what the document says it prints.
struct Step {
    command: String,
    output: String,
}

/// The steps of all sessions of a document, in its order.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_session = false;
    for line in document.lines() {
        match (line.strip_prefix("```"), line.strip_prefix("$ ")) {
            (Some(kind), _) => is_session = !is_session && kind == "console",
            (None, Some(command)) if is_session => {
                steps.push(Step { command: command.to_owned(), output: String::new() });
            }
            (None, None) if is_session => {
                let step = steps.last_mut().expect("a session begins with a command");
                step.output.push_str(line);
                step.output.push('\n');
            }
            _ => {}
        }
    }
    steps
}

/// Without what differs from run to run: times, and lines about memory that depends on when it is
/// given back.
fn stable(output: &str) -> String {
    let word = |word: &str| match word.parse::<f64>() {
        Ok(_) if word.contains('.') => "N".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| match line.starts_with("time ") || line.contains(" looked up in ") {
        true => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    };
    output.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Runs a document's sessions one after the other against one memory node.
fn plays(document: &str) {
    let node = Node::start(256 << 20);
    let programs = node.directory.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_fpcache-cli"), programs.join("fpcache-cli")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let contents = std::fs::read_to_string(Path::new(ROOT).join(document)).unwrap();
    let steps = steps(&contents);
    assert!(steps.len() > 5, "{document} has sessions");
    for Step { command, output } in steps {
        // The memory node is a thread of this process.
        if command.starts_with("fpcache-memserver ") && command.ends_with('&') {
            continue;
        }
        let ran = Command::new("sh")
            .args(["-c", &format!("({command}) 2>&1")])
            .env("PATH", &path)
            .env("FPCACHE_URL", &node.url)
            .env_remove("FPCACHE_DATA")
            .env_remove("FPCACHE_TABLE")
            .output()
            .unwrap();
        assert_eq!(stable(&text(&ran.stdout)), stable(&output), "{document}: {command}");
    }
}

#[test]
fn the_session_of_the_readme_is_what_a_user_sees() {
    plays("README.md");
}

#[test]
fn the_sessions_of_the_guide_are_what_a_user_sees() {
    plays("docs/guide.md");
}

#[test]
fn documents_link_to_files_that_are_there() {
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/ARCHITECTURE.md",
        "docs/guide.md",
        "docs/operations.md",
        "docs/performance.md",
        "docs/datasets.md",
    ] {
        let path = Path::new(ROOT).join(document);
        let contents = std::fs::read_to_string(&path).unwrap();
        for link in contents.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") || file.contains(char::is_whitespace) {
                continue;
            }
            assert!(path.parent().unwrap().join(file).exists(), "{document} links to {link}");
        }
    }
}
