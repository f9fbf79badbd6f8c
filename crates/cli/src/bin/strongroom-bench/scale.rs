//! `strongroom bench scale`: how the cost of a room grows with its size.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bench::clock::SystemClock;
use bench::work::Begun;
use bench::work::scale::{self, step};
use strongroom_cli::program::{Error, Global, Result};

use super::{Common, begin, bytes, failed, finish, stop_flag};

/// Measure how the cost of a room grows with its files, the length of one file, and how full its disk is
///
/// Opening, looking up, creating, syncing, checking, compacting, and opening after a crash with a full log: the time of each, and the
/// memory of a process that does only this, for rooms of rising sizes. The tables say by how much ten times the size costs more.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the rooms are created, one after the other, and removed [default: here]
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Most files; the sizes are 1,000, 10,000 and so on up to it
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    max_files: u64,
    /// Most bytes of one file; the sizes are 1 MiB, 16 MiB, 256 MiB, 4 GiB up to it
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes)]
    max_bytes: u64,
    /// Bytes of the disk that is filled from 1 to 95 %: a bound that the room is given, no disk of its own
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes)]
    disk: u64,
    /// How many times each row is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seed of all data and orders [default: a new one, printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only rows whose name has all of these words; may be repeated for more rows
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Also write a page for the browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let begun = Begun::now();
    let seed = begin::seed(args.seed);
    let options = scale::Options {
        max_files: args.max_files,
        max_bytes: args.max_bytes,
        disk: args.disk,
        rounds: args.rounds,
        seed,
        only: args.only.clone(),
        ..scale::Options::default()
    };
    let mut said = vec![
        format!("--max-files {}", args.max_files),
        format!("--max-bytes {}", args.max_bytes),
        format!("--disk {}", args.disk),
        format!("--rounds {}", args.rounds),
        format!("--seed {seed}"),
    ];
    said.extend(args.only.iter().map(|words| format!("--only '{words}'")));
    let common = Common {
        rounds: args.rounds,
        size: None,
        seconds: 0.0,
        seed: Some(seed),
        only: args.only,
        html: args.html,
    };
    let progress = begin::progress(global);
    let mut work = begin::work_directory(&args.directory)?;
    let program = std::env::current_exe()
        .map_err(|e| Error::failed(format!("this program's own file is not known: {e}")))?;
    let mut runner = |request: &step::Request| -> bench::Result<step::Answer> {
        ask(Command::new(&program).arg("scale-step"), request)
            .map_err(|why| bench::Error::store(scale::STORE, why))
    };
    let stop = stop_flag();
    let out = scale::run(&options, work.path(), &mut runner, &*progress, &stop).map_err(failed)?;
    work.remove().map_err(failed)?;
    finish(&out.report("scale", said, seed, begun), &common, global)
}

/// Has a process do a step.
fn ask(
    command: &mut Command,
    request: &step::Request,
) -> std::result::Result<step::Answer, String> {
    use std::os::unix::process::CommandExt;
    let text = serde_json::to_vec(request).map_err(|e| e.to_string())?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for us: the step under way is done.
        .process_group(0)
        .spawn()
        .map_err(|e| format!("a process for a step could not be started: {e}"))?;
    if let Some(mut input) = child.stdin.take() {
        // One that ended without reading says why.
        let _ = input.write_all(&text);
    }
    let ended = child.wait_with_output().map_err(|e| e.to_string())?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("{:?}: {}", request.step, said.trim()));
    }
    serde_json::from_slice(&ended.stdout).map_err(|e| format!("the answer of a step: {e}"))
}

/// Does the step that standard input asks for.
pub(crate) fn step() -> Result<()> {
    let wrong = |e: &dyn std::fmt::Display| Error::failed(format!("a step of bench scale: {e}"));
    let mut text = Vec::new();
    std::io::stdin()
        .read_to_end(&mut text)
        .map_err(|e| wrong(&e))?;
    let request = serde_json::from_slice(&text).map_err(|e| wrong(&e))?;
    let answer = step::run(&request, &SystemClock).map_err(failed)?;
    let text = serde_json::to_vec(&answer).map_err(|e| wrong(&e))?;
    std::io::stdout().write_all(&text).map_err(|e| wrong(&e))
}
