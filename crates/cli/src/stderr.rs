//! Standard error, which may be closed, or a log on a full disk.

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line there. Where nobody can be reached, nothing else fails.
pub fn to_stderr(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
