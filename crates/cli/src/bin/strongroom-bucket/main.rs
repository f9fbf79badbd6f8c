//! The `strongroom-bucket` program: every command of `strongroom`, for rooms named `s3://bucket/prefix`.
//!
//! A place in an argument becomes the directory that represents it on this machine, before the command line is read: its cache. Options that
//! only rooms in buckets have are taken out of the command line here, and kept in that directory.

#![forbid(unsafe_code)]

mod proxy;
mod words;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use strongroom_cli::bucket::provide;
use strongroom_cli::program::output::to_stderr;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some((arguments, password)) = words::split_password(&arguments) {
        // Again, with a command line that shows no password.
        let mut again = Command::new("/proc/self/exe");
        again.arg0(&arguments[0]).args(&arguments[1..]);
        let why = again.env(proxy::LOG_PASSWORD, password).exec();
        to_stderr(format_args!("strongroom: {why}"));
        return ExitCode::FAILURE;
    }
    let arguments = match words::read(arguments) {
        Ok(arguments) => arguments,
        Err(why) => {
            to_stderr(format_args!("strongroom: {why}"));
            return strongroom_cli::Exit::Usage.into();
        }
    };
    provide(Box::new(proxy::Proxies));
    strongroom_cli::run(arguments)
}
