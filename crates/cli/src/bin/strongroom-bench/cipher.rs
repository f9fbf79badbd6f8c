//! `strongroom bench cipher`.

use std::path::PathBuf;

use bench::work::{Begun, cipher};

use strongroom_cli::program::{Global, Result};

use super::{Common, begin, failed, finish, stop_flag};

/// Measure every cipher, code and key derivation in memory, on one core and on all
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many times each row is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Longest time of one measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = super::seconds)]
    seconds: f64,
    /// Leave out Argon2id as a new room gets it, which takes a second each time
    #[arg(long)]
    fast: bool,
    /// Also write a page for the browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let begun = Begun::now();
    let options = cipher::Options {
        rounds: args.rounds,
        seconds: args.seconds,
        slow: !args.fast,
        ..cipher::Options::default()
    };
    let common = Common {
        rounds: args.rounds,
        size: None,
        seconds: args.seconds,
        seed: None,
        only: Vec::new(),
        html: args.html,
    };
    let mut said = common.said();
    said.extend(args.fast.then(|| "--fast".to_owned()));
    let progress = begin::progress(global);
    let out = cipher::run(&options, &*progress, &stop_flag()).map_err(failed)?;
    finish(&out.report("cipher", said, 0, begun), &common, global)
}
