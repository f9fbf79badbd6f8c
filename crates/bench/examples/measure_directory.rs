//! Measures a directory for a moment and prints the report that `strongroom bench` prints.
//!
//! `cargo run --release -p strongroom-bench --example measure_directory -- DIRECTORY`: what is written there is removed again. As short
//! as here, rounds are often INVALID, with the reason: take `seconds` and `size` larger for numbers to rely on.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use bench::clock::SystemClock;
use bench::progress::Quiet;
use bench::report::table;
use bench::run_file::Run;
use bench::session::{Ask, Means, run};
use bench::store::Making;
use bench::validity::Limits;
use bench::work;

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    // Lists what is created before it is created, so that also after a kill it can be removed: `strongroom bench clean`.
    let run_file = Run::begin(&dir.join("runs"))?;
    let ask = Ask {
        command: "compare",
        options: Vec::new(),
        // More than one are measured in turns, and compared with the first.
        targets: vec![dir.display().to_string()],
        labels: vec!["directory".into()],
        works: work::usual(),
        only: vec!["sequential write direct".into()],
        rounds: 3,
        seed: 1,
        size: 128 << 20,
        seconds: 1.0,
        files: 10,
        // Compares the store with itself first: what differs then is noise.
        noise: false,
    };
    let means = Means {
        making: Making::new(run_file, "directory"),
        clock: &SystemClock,
        // Set it from a signal handler: what was measured until then is reported.
        stop: &AtomicBool::new(false),
        progress: &Quiet,
        limits: Limits::default(),
    };
    let done = run(ask, &means)?;
    print!("{}", table::text(&done.report, 100));
    // There is a report in any case; this is why it is not complete.
    done.failed.map_or(Ok(()), |error| Err(error.into()))
}
