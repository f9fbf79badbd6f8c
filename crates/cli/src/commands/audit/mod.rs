//! `strongroom audit`: the audit log of a metadata server: made, checked and read.

mod show;
mod verify;

use std::path::PathBuf;

use metadata_server::audit::AuditLog;
use serde_json::json;
use storage::NewPrivateFile;

use crate::args::Global;
use crate::error::{Error, Result};
use crate::output;

/// Create, verify and read the audit log of a metadata server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create an empty log, for `metadata serve --audit`, and the key that verifies it
    Init(Init),
    Verify(verify::Args),
    Show(show::Args),
}

#[derive(Debug, clap::Args)]
struct Init {
    /// The log's directory, which is created
    dir: PathBuf,
    /// Where the key goes that verifies the log: a new file. Keep it on another machine, and only there
    #[arg(long, value_name = "FILE")]
    key_out: PathBuf,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Init(args) => init(&args, global),
        Command::Verify(args) => verify::run(&args, global),
        Command::Show(args) => show::run(&args, global),
    }
}

fn init(args: &Init, global: &Global) -> Result<()> {
    if args.key_out.symlink_metadata().is_ok() {
        return Err(Error::usage_at(
            &args.key_out,
            "exists; a key is never written over: choose another name",
        ));
    }
    let of_file = |e| Error::host(&args.key_out, e);
    // The file first: a log whose key is lost is verified by nobody.
    let file = NewPrivateFile::create(&args.key_out).map_err(of_file)?;
    let key = AuditLog::create(&args.dir).map_err(|e| Error::host(&args.dir, e))?;
    file.keep(key.to_text().as_bytes()).map_err(of_file)?;
    let (dir, key) = (args.dir.display(), args.key_out.display());
    output::done(
        global,
        json!({"log": dir.to_string(), "key": key.to_string()}),
        format!(
            "The log is in {dir}; write it with:  strongroom metadata serve --audit {}\n\
             The key is in {key}. Move it to another machine: anyone with it can write the log again.",
            output::quoted(&args.dir)
        ),
    );
    Ok(())
}
