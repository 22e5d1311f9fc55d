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
            .current_dir(node.directory.path())
            .env("PATH", &path)
            .env("FPCACHE_URL", &node.url)
            .env_remove("FPCACHE_DATASETS")
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

/// The commands for this program in the code of a document, or in the head of an example.
fn commands_in(document: &str) -> Vec<String> {
    let joined = document.replace("\\\n", " ");
    let line = |line: &str| {
        let line = line.trim_start_matches("//!").trim_start().trim_start_matches("$ ").to_owned();
        let is_setting =
            |word: &str| word.split_once('=').is_some_and(|(name, _)| name.starts_with("FPCACHE_"));
        let words = line.split(' ').skip_while(|word| is_setting(word)).collect::<Vec<_>>().join(" ");
        words.starts_with("fpcache-cli ").then(|| {
            let end = [" #", " &", " |", " >", ";"].iter().filter_map(|end| words.find(end)).min();
            words[..end.unwrap_or(words.len())].to_owned()
        })
    };
    joined.lines().filter_map(line).collect()
}

/// With `--help` at its end a command does nothing, but everything before must make sense.
#[test]
fn commands_in_documents_and_examples_have_the_options_that_there_are() {
    let programs = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_fpcache-cli"), programs.path().join("fpcache-cli")).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut all = 0;
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/guide.md",
        "docs/operations.md",
        "docs/performance.md",
        "docs/datasets.md",
        "client/README.md",
        "client/cli/README.md",
        "client/examples/service.rs",
    ] {
        let contents = std::fs::read_to_string(Path::new(ROOT).join(document)).unwrap();
        for command in commands_in(&contents) {
            let ran = Command::new("sh")
                .args(["-c", &format!("{command} --help")])
                .env("PATH", &path)
                .output()
                .unwrap();
            assert!(ran.status.success(), "{document}: {command}: {}", text(&ran.stderr));
            all += 1;
        }
    }
    assert!(all > 30, "{all} commands");
}

/// The anchor that a page has for a heading.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    heading
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[test]
fn documents_link_to_files_that_are_there() {
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/ARCHITECTURE.md",
        "docs/design.md",
        "docs/guide.md",
        "docs/operations.md",
        "docs/performance.md",
        "docs/datasets.md",
    ] {
        let path = Path::new(ROOT).join(document);
        let contents = std::fs::read_to_string(&path).unwrap();
        for link in contents.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") || link.contains(char::is_whitespace) || link.is_empty() {
                continue;
            }
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{document} links to {link}");
            if !heading.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                let page = std::fs::read_to_string(&target).unwrap();
                let mut headings = page.lines().filter_map(|line| line.strip_prefix('#'));
                let is_there = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == heading);
                assert!(is_there, "{document} links to {link}");
            }
        }
    }
}
