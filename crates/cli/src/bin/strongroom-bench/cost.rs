//! `strongroom bench cost`: a plain directory and a mounted room beside each other.

use std::path::PathBuf;

use bench::model::Comparison;
use bench::published::{ClockRow, PhoneRows, phone_clock, phone_loss};
use bench::work::{self, Work};
use room::Suite;

use strongroom_cli::program::{Global, Result};

use super::{Common, Handling, Wanted, finish_done, measure, word_of};

/// Make a plain directory and a mounted room beside each other, and say what the room costs
///
/// The answer in one command: what is lost, in per cent, for random and sequential reads and writes, beside what was once
/// published of a phone; then what a log, a mail server and a database lose that make each small change durable.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where both are made, and removed again
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// The room's cipher suite; the faster one here if not given
    #[arg(long, value_parser = ["aes-256-gcm", "chacha20-poly1305"])]
    suite: Option<String>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    handling: Handling,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let directory = word_of(&args.directory)?;
    let targets = ["directory", "mounted"].map(|kind| format!("{kind}:{directory}"));
    let suite = args
        .suite
        .as_deref()
        .and_then(|name| Suite::ALL.into_iter().find(|suite| suite.name() == name));
    let calls = work::cost();
    let wanted = Wanted {
        command: "cost",
        options: args
            .suite
            .iter()
            .map(|name| format!("--suite {name}"))
            .collect(),
        targets: targets.into(),
        labels: ["plain", "room"].map(String::from).into(),
        works: calls
            .iter()
            .map(|calls| Box::new(*calls) as Box<dyn Work>)
            .chain(work::durable())
            .collect(),
        noise: true,
        suite,
        key: None,
        volume_key: None,
    };
    let mut done = measure(wanted, &args.common, &args.handling, global)?;
    let find = |name: String| -> Option<&Comparison> {
        done.report.comparisons.iter().find(|one| one.work == name)
    };
    let table = phone_loss(&PhoneRows {
        random_read: find(calls[0].name()),
        random_write: find(calls[1].name()),
        sequential_read: find(calls[2].name()),
        sequential_write: find(calls[3].name()),
    });
    // What the phone's benchmark would have said here: the plain directory by processor time.
    let rows = &done.report.rows;
    let clock = |calls: &work::Calls| {
        let name = calls.name();
        let row = rows
            .iter()
            .find(|row| row.store == "plain" && row.work == name);
        row.and_then(ClockRow::of)
    };
    let clocks = phone_clock([0, 1, 2, 3].map(|at| clock(&calls[at])));
    done.report.tables.extend([table, clocks]);
    done.report.notes.push(
        "the table's reads and sequential writes are of 256 KiB, its random writes of 4 KiB".into(),
    );
    finish_done(done, &args.common, global)
}
