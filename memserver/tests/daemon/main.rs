//! The daemon as a process.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod embedded;
mod environment;
mod files;
mod hostile_clients;
mod keys;
mod log;
mod notify;
mod parent;
mod patience;
mod tls;
mod tokens;

/// The program, which the caller's environment tells nothing.
fn program() -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fpcache-memserver"));
    let own = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FPCACHE_"));
    own.for_each(|(name, _)| _ = command.env_remove(name));
    command
}
