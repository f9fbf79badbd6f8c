//! `strongroom bench storage`: one store.

use bench::store::labels;

use strongroom_cli::program::{CredentialArgs, Global, Result};

use super::{Common, Handling, Wanted, finish_done, key_of, measure, works_of};

/// Measure one store: a directory, file, block device, nbd:// address or room
///
/// The kind of a path is detected. A directory is measured by files created in it and removed again; a file or device that is
/// there is only read. A word before a colon makes something fresh in a directory: room:DIR, mounted:DIR, gocryptfs:DIR,
/// securefs:DIR, cryfs:DIR.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// DIRECTORY, FILE, DEVICE, ROOM, nbd://HOST/NAME, or KIND:DIRECTORY
    #[arg(value_name = "STORE")]
    store: String,
    /// Every size, order and depth, instead of what says most
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    handling: Handling,
    #[command(flatten)]
    credential: CredentialArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let targets = vec![args.store];
    let (options, works) = works_of(args.full);
    let wanted = Wanted {
        command: "storage",
        options,
        labels: labels(&targets),
        targets,
        works,
        noise: true,
        suite: None,
        key: Some(key_of(&args.credential)),
        volume_key: None,
    };
    let done = measure(wanted, &args.common, &args.handling, global)?;
    finish_done(done, &args.common, global)
}
