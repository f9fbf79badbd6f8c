//! `strongroom bench ladder`.

use std::path::PathBuf;

use bench::clock::SystemClock;
use bench::spans::Spans;
use bench::work::{Begun, ladder};

use strongroom_cli::program::{Global, Result};

use super::{Common, begin, bytes, failed, finish, stop_flag};

/// Write 2 MiB into one file of a new room in calls of several sizes, with a commit a call and in one commit
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the room is created, and removed at the end [default: here]
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Bytes that are written
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = bytes)]
    size: u64,
    /// How many times each rung is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Longest time of one measurement, in seconds: one that takes longer is cut, and has no result
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = super::seconds)]
    seconds: f64,
    /// Seed of the data [default: a new one, printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Also write a page for the browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let begun = Begun::now();
    let seed = begin::seed(args.seed);
    let options = ladder::Options {
        bytes: usize::try_from(args.size).unwrap_or(usize::MAX),
        rounds: args.rounds,
        seconds: args.seconds,
        seed,
        ..ladder::Options::default()
    };
    let common = Common {
        rounds: args.rounds,
        size: Some(args.size),
        seconds: args.seconds,
        seed: Some(seed),
        only: Vec::new(),
        html: args.html,
    };
    let progress = begin::progress(global);
    let mut work = begin::work_directory(&args.directory)?;
    let spans = Spans::global();
    let out = ladder::run(
        &options,
        work.path(),
        &SystemClock,
        spans.as_deref(),
        &*progress,
        &stop_flag(),
    )
    .map_err(failed)?;
    work.remove().map_err(failed)?;
    finish(
        &out.report("ladder", common.said(), seed, begun),
        &common,
        global,
    )
}
