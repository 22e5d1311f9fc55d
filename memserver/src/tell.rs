//! Messages to the operator.

use std::fmt;
use std::io::Write;

/// Writes a line to the standard error, as `eprintln!` does, and loses it if nobody can take it: a
/// log on a full disk, or whose reader has gone, must not end a memory node.
macro_rules! tell {
    ($($line:tt)*) => { $crate::tell::write_line(format_args!($($line)*)) };
}
pub(crate) use tell;

pub(crate) fn write_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
