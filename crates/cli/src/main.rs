//! The `strongroom` program. Everything it does is in the library beside it, where tests and fuzzers can reach it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    strongroom_cli::run(std::env::args_os().collect())
}
