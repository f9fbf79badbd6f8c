//! `strongroom bench tools`: a plain directory, a mounted room and the encrypted file systems that are installed.

use std::path::PathBuf;

use bench::ceiling;
use bench::published::tools_of;
use bench::store::{ServedKind, labels};
use bench::work;

use strongroom_cli::program::{Global, Result};

use super::{CEILING, Common, Handling, Wanted, ceiling_option, finish_done, measure, word_of};

/// Compare a room with the encrypted file systems that are installed, on a source tree, a large file and synced changes
///
/// gocryptfs, securefs and CryFS, each with its default options, in turns with a plain directory and a mounted room; beside what
/// was once published of their like.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where all of them are made, and removed again
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Only these beside the directory and the room; may be repeated [default: those that are installed]
    #[arg(long, value_name = "STORE", value_parser = ["gocryptfs", "securefs", "cryfs"])]
    with: Vec<String>,
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
    let others: Vec<String> = if args.with.is_empty() {
        let words = ServedKind::ALL
            .into_iter()
            .filter(|kind| kind.is_other_tool());
        words
            .map(|kind| kind.word().to_owned())
            .filter(|word| installed(word))
            .collect()
    } else {
        args.with
    };
    let kinds = ["directory", "mounted"]
        .map(String::from)
        .into_iter()
        .chain(others)
        .chain(args.fuse_ceiling.then(|| CEILING.to_owned()));
    let targets: Vec<String> = kinds.map(|kind| format!("{kind}:{directory}")).collect();
    let wanted = Wanted {
        command: "peers", // words.py: results have had this name
        options: ceiling_option(args.fuse_ceiling),
        labels: labels(&targets),
        targets,
        works: work::tools(),
        noise: true,
        suite: None,
        key: None,
        volume_key: None,
    };
    let mut done = measure(wanted, &args.common, &args.handling, global)?;
    let table = tools_of(&done.report);
    done.report.tables.extend(table);
    if args.fuse_ceiling {
        let share = ceiling::share(&done.report, "mounted", CEILING);
        done.report.tables.push(share);
    }
    done.report.notes.push(
        "\"md5sum of all\" reads every file of the tree and compares it, without a sum".into(),
    );
    finish_done(done, &args.common, global)
}

/// Whether a program is in one of the directories of PATH.
fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
