//! `strongroom bench cost`: a plain directory and a mounted room beside each other.

use std::path::PathBuf;

use bench::ceiling;
use bench::model::Comparison;
use bench::published::{ClockRow, PhoneRows, phone_clock, phone_loss};
use bench::work::{self, Work};
use room::Suite;

use strongroom_cli::program::{Global, Result};

use super::{CEILING, Common, Handling, Wanted, ceiling_option, finish_done, measure, word_of};

/// The room's name in the report.
const ROOM: &str = "room";

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
    /// Also files in memory behind the same FUSE library, and the room's share of what FUSE itself allows
    #[arg(long)]
    fuse_ceiling: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    handling: Handling,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let directory = word_of(&args.directory)?;
    let ceiling = args.fuse_ceiling.then_some(CEILING);
    let kinds = ["directory", "mounted"].into_iter().chain(ceiling);
    let targets = kinds.map(|kind| format!("{kind}:{directory}"));
    let labels = ["plain", ROOM].into_iter().chain(ceiling);
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
            .chain(ceiling_option(args.fuse_ceiling))
            .collect(),
        targets: targets.collect(),
        labels: labels.map(String::from).collect(),
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
        let mut all = done.report.comparisons.iter();
        all.find(|one| one.work == name && one.other == ROOM)
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
    if args.fuse_ceiling {
        let share = ceiling::share(&done.report, ROOM, CEILING);
        done.report.tables.push(share);
    }
    done.report.notes.push(
        "the table's reads and sequential writes are of 256 KiB, its random writes of 4 KiB".into(),
    );
    finish_done(done, &args.common, global)
}
