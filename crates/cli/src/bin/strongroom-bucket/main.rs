//! The `strongroom-bucket` program: every command of `strongroom`, for rooms named `s3://bucket/prefix`.
//!
//! A place in an argument becomes the directory that represents it on this machine, before the command line is read: its cache. Options that
//! only rooms in buckets have are taken out of the command line here, and kept in that directory.

#![forbid(unsafe_code)]

mod proxy;
mod words;

use std::process::ExitCode;

use strongroom_cli::bucket::provide;

fn main() -> ExitCode {
    let arguments = match words::read(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("strongroom: {why}");
            return strongroom_cli::Exit::Usage.into();
        }
    };
    provide(Box::new(proxy::Proxies));
    strongroom_cli::run(arguments)
}
