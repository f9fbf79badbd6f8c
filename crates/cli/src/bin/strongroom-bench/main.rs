//! The `strongroom-bench` program, started by `strongroom bench`: what encryption costs here, and whether a number is
//! valid.
//!
//! One module a subcommand; what they share is here: the options, the signal that stops them, and the one function by
//! which each prints.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bench::model::Report;
use bench::session::{Ask, Done, Means};
use bench::store::{Key, Making, VolumeKey};
use bench::work::{self, Work};
use clap::{Args as ClapArgs, Parser, Subcommand};
use strongroom_cli::program::{
    self, CredentialArgs, Error, Exit, Global, PROGRAM_VARIABLE, Result, bytes, output,
};
use tracing_subscriber::util::SubscriberInitExt;

mod begin;
mod cipher;
mod clean;
mod compare;
mod completions;
mod cost;
mod dd;
mod history;
mod ladder;
mod man;
mod scale;
mod serve_memory;
mod small_files;
mod storage;
mod tools;

/// Measure what encryption costs here, and mark unreliable measurements as INVALID
#[derive(Debug, Parser)]
#[command(
    name = "strongroom-bench",
    bin_name = "strongroom bench",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Storage(storage::Args),
    Compare(compare::Args),
    Cost(cost::Args),
    Dd(dd::Args),
    #[command(name = "tools", alias = "peers")] // words.py: the old name
    Tools(tools::Args),
    SmallFiles(small_files::Args),
    Ladder(ladder::Args),
    Scale(scale::Args),
    Cipher(cipher::Args),
    History(history::Args),
    Clean(clean::Args),
    /// Print completions of `strongroom` and its benchmark for a shell; `strongroom completions` starts this
    #[command(hide = true)]
    Completions(completions::Args),
    /// Mount files in memory; what measures `memory:DIRECTORY` starts this
    #[command(hide = true)]
    ServeMemory(serve_memory::Args),
    /// Do one step of `bench scale`, which starts this
    #[command(hide = true)]
    ScaleStep,
    /// Write the manual pages; `strongroom man` starts this
    #[command(hide = true)]
    Man(man::Args),
}

fn main() -> ExitCode {
    seal::protect_process();
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match program::parse::<Cli>(&arguments) {
        Ok(cli) => cli,
        Err(ended) => return ended,
    };
    let log = program::log(&cli.global);
    if cli.command.listens() {
        let _ = bench::spans::Spans::listen(log);
    } else {
        log.init();
    }
    program::end(run(cli.command, &cli.global), &cli.global)
}

fn run(command: Command, global: &Global) -> Result<()> {
    match command {
        Command::Storage(args) => storage::run(args, global),
        Command::Compare(args) => compare::run(args, global),
        Command::Cost(args) => cost::run(args, global),
        Command::Dd(args) => dd::run(args, global),
        Command::Tools(args) => tools::run(args, global),
        Command::SmallFiles(args) => small_files::run(args, global),
        Command::Ladder(args) => ladder::run(args, global),
        Command::Scale(args) => scale::run(args, global),
        Command::Cipher(args) => cipher::run(args, global),
        Command::History(args) => history::run(&args, global),
        Command::Clean(args) => clean::run(args, global),
        Command::Completions(args) => completions::run(&args),
        Command::ServeMemory(args) => serve_memory::run(&args),
        Command::ScaleStep => scale::step(),
        Command::Man(args) => man::run(&args),
    }
}

impl Command {
    /// Whether the program's own spans are recorded, which slows every other measurement a little.
    fn listens(&self) -> bool {
        matches!(self, Command::SmallFiles(_) | Command::Ladder(_))
    }
}

/// The works of a store, and the options to be reported with them.
fn works_of(full: bool) -> (Vec<String>, Vec<Box<dyn Work>>) {
    match full {
        true => (vec!["--full".to_owned()], work::full()),
        false => (Vec::new(), work::usual()),
    }
}

/// What measures the ceiling of FUSE: the word of its store, and its label.
const CEILING: &str = "memory";

/// The option that asks for it, as it is reported.
fn ceiling_option(asked: bool) -> Vec<String> {
    asked
        .then(|| "--fuse-ceiling".to_owned())
        .into_iter()
        .collect()
}

/// A directory's name as a part of a store's.
fn word_of(directory: &Path) -> Result<&str> {
    directory.to_str().ok_or_else(|| {
        Error::usage_at(
            directory,
            "the directory's name is no text; use one that is",
        )
    })
}

/// Options of every measurement.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Common {
    /// How many times each row is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Bytes of the file that is read and written: 4096, 64KiB, 256MiB, 2GiB [default: 1GiB, or an eighth of the memory]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) size: Option<u64>,
    /// Longest time of one measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seed of all data and orders [default: a new one, printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Only rows whose name has all of these words; may be repeated for more rows
    #[arg(long, value_name = "WORDS")]
    pub(crate) only: Vec<String>,
    /// Also write a page for the browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Options of what measures stores.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Handling {
    /// Small files of the rows on names, if there is time for so many
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) files: u32,
    /// Before cold reads empty the caches of the whole machine, too (root): it slows down everything else for a while
    #[arg(long)]
    pub(crate) drop_caches: bool,
}

impl Common {
    /// The options that make the same measurement again, one a line.
    pub(crate) fn said(&self) -> Vec<String> {
        let mut said = vec![
            format!("--rounds {}", self.rounds),
            format!("--seconds {}", self.seconds),
        ];
        said.extend(self.size.map(|size| format!("--size {size}")));
        said.extend(self.seed.map(|seed| format!("--seed {seed}")));
        said.extend(self.only.iter().map(|words| format!("--only '{words}'")));
        said
    }
}

/// What a command asks for beyond what all have in common.
pub(crate) struct Wanted {
    pub(crate) command: &'static str,
    /// Options of the command's own, one a line.
    pub(crate) options: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) works: Vec<Box<dyn bench::work::Work>>,
    pub(crate) noise: bool,
    pub(crate) suite: Option<room::Suite>,
    /// What opens rooms that were there before.
    pub(crate) key: Option<Key>,
    /// What opens encrypted volumes.
    pub(crate) volume_key: Option<VolumeKey>,
}

/// Measures.
pub(crate) fn measure(
    wanted: Wanted,
    common: &Common,
    handling: &Handling,
    global: &Global,
) -> Result<Done> {
    let seed = begin::seed(common.seed);
    let mut options = wanted.options;
    options.extend(common.said());
    options.push(format!("--files {}", handling.files));
    options.extend(handling.drop_caches.then(|| "--drop-caches".to_owned()));
    let stop = stop_flag();
    let progress = begin::progress(global);
    let mut making = Making::new(begin::run()?, "");
    making.drop_caches = handling.drop_caches;
    making.suite = wanted.suite;
    making.key = wanted.key;
    making.volume_key = wanted.volume_key;
    making.program = strongroom();
    let ask = Ask {
        command: wanted.command,
        options,
        targets: wanted.targets,
        labels: wanted.labels,
        works: wanted.works,
        only: common.only.clone(),
        rounds: common.rounds,
        seed,
        size: common.size.unwrap_or_else(bench::work::usual_size),
        seconds: common.seconds,
        files: handling.files,
        noise: wanted.noise,
    };
    let means = Means {
        making,
        clock: &bench::clock::SystemClock,
        stop: &stop,
        progress: &*progress,
        limits: bench::validity::Limits::default(),
    };
    bench::session::run(ask, &means).map_err(failed)
}

/// The `strongroom` that mounts rooms: the one that started this program, else the one beside it or in PATH.
fn strongroom() -> Option<PathBuf> {
    std::env::var_os(PROGRAM_VARIABLE)
        .map(PathBuf::from)
        .or_else(|| program::find("strongroom"))
}

/// What opens a room that is named on the command line.
pub(crate) fn key_of(credential: &CredentialArgs) -> Key {
    let credential = credential.clone();
    Arc::new(move |dir| {
        let name = dir.display().to_string();
        credential
            .credential(&name)
            .map_err(|error| bench::Error::store(name, error.to_string()))
    })
}

/// Prints the report, then says what ended it early.
pub(crate) fn finish_done(done: Done, common: &Common, global: &Global) -> Result<()> {
    let printed = finish(&done.report, common, global);
    match done.failed {
        Some(error) => Err(failed(error)),
        None => printed,
    }
}

/// A flag that Ctrl-C, a closed terminal or `kill` set: what is done is kept, printed, and nothing is left behind. A second
/// Ctrl-C ends at once; `bench clean` then removes what is left.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for (signal, code) in [(SIGINT, 130), (SIGTERM, 143), (SIGHUP, 129)] {
        // Where a handler cannot be set, the signal kills as it always does; the run file knows what is left.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, code, stop.clone());
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

/// Prints what came out: every measuring command ends here.
pub(crate) fn finish(report: &Report, common: &Common, global: &Global) -> Result<()> {
    history::keep(report, global);
    if let Some(file) = &common.html {
        std::fs::write(file, bench::report::page::html(report))
            .map_err(|e| Error::host(file, e))?;
    }
    if global.json {
        output::json_line(report);
    } else if !global.quiet {
        output::bytes(bench::report::table::text(report, columns()).as_bytes());
    }
    if report.interrupted {
        return Err(Error::said(
            Exit::Interrupted,
            "stopped; what was measured so far is printed, and nothing is left behind",
        ));
    }
    Ok(())
}

/// Width of the terminal, or of the page one writes into where there is none.
fn columns() -> usize {
    const USUAL: usize = 80;
    rustix::termios::tcgetwinsize(std::io::stdout())
        .map_or(USUAL, |size| usize::from(size.ws_col).max(40))
}

/// The crate's errors with their exit codes.
pub(crate) fn failed(error: bench::Error) -> Error {
    use bench::Error as E;
    if let E::Volume { image, source } = error {
        return program::volume_error(&image, source);
    }
    let exit = match &error {
        E::Usage(_) | E::Refused(_) => Exit::Usage,
        E::Stopped => Exit::Interrupted,
        E::Io { source, .. } => program::io_exit(source),
        _ => Exit::Failed,
    };
    Error::said(exit, error.to_string())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| (0.01..=3600.0).contains(value))
        .ok_or_else(|| format!("'{text}' is not a time: write seconds from 0.01 to 3600"))
}
