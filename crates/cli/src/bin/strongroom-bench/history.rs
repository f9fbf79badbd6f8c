//! `strongroom bench history`: earlier results of this machine, and what changed between them.

use bench::history::{Error as HistoryError, History, text};

use strongroom_cli::program::{Error, Global, Result, output};

use super::columns;

/// Show earlier results of this machine, and what changed between them
///
/// Each result is compared with the one before it that answers the same question: same command, options and stores.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How many of the newest results are shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    newest: usize,
    /// Also rows that did not change
    #[arg(long)]
    all: bool,
}

pub(super) fn run(args: &Args, global: &Global) -> Result<()> {
    let (entries, skipped) = History::of_the_user()
        .and_then(|history| history.list())
        .map_err(failed)?;
    if global.json {
        let first = entries.len().saturating_sub(args.newest);
        for entry in &entries[first..] {
            output::json_entry(&entry.report);
        }
        for of in &skipped {
            output::note(global, format!("skipped {}: {}", of.path.display(), of.why));
        }
        return Ok(());
    }
    output::bytes(text(&entries, &skipped, columns(), args.newest, args.all).as_bytes());
    Ok(())
}

/// Keeps a result for `history`. What fails here fails nothing: the result itself is printed.
pub(super) fn keep(report: &bench::model::Report, global: &Global) {
    if let Err(error) = History::of_the_user().and_then(|history| history.keep(report)) {
        output::note(global, format!("strongroom: {error}"));
    }
}

fn failed(error: HistoryError) -> Error {
    Error::failed(error.to_string())
}
