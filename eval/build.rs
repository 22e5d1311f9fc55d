//! A build script: tells the program which commit it was built from, where that is known, and that
//! it was changed since, where it was.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What is not committed is found anew with every change of the code.
    for path in SOURCES.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
    // Both files are there in an ordinary clone and change with every commit and checkout. A path
    // that does not exist would have the program built anew each time.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let mut version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        let changed = git(&[
            "--no-optional-locks",
            "status",
            "--porcelain",
            "--",
            ":(top)*.rs",
            ":(top)*.toml",
            ":(top)Cargo.lock",
        ]);
        let mark = changed.map_or("", |_| "-dirty");
        println!("cargo:rustc-env=FPCACHE_COMMIT={commit}{mark}");
        version += &format!(" ({}{mark})", commit.get(..12).unwrap_or(&commit));
    }
    let rustc = std::env::var_os("RUSTC").and_then(|rustc| output(Command::new(rustc).arg("--version")));
    if let Some(rustc) = rustc {
        println!("cargo:rustc-env=FPCACHE_RUSTC={rustc}");
    }
    // What `--version` says.
    println!("cargo:rustc-env=FPCACHE_VERSION={version}");
}

/// The code that the program is built of.
const SOURCES: [&str; 10] = [
    "Cargo.toml",
    "src",
    "workbench",
    "../Cargo.lock",
    "../client",
    "../datasets/src",
    "../fabric/src",
    "../fpcache/src",
    "../index/src",
    "../memserver/src",
];

/// What git answers; nothing without git or outside a clone.
fn git(arguments: &[&str]) -> Option<String> {
    output(Command::new("git").args(arguments))
}

/// The line that a command writes; nothing if it fails.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
