//! `strongroom umount`: takes a mounted room away, and returns when everything is committed and its process has ended.

use std::path::PathBuf;

use serde_json::json;

use crate::args::Global;
use crate::error::Result;
use crate::mounting::target::Target;
use crate::output;

/// Unmount a room: commits everything, then waits for the serving process to end
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mountpoint, or the room's directory
    mountpoint: PathBuf,
    /// Take it out of sight even if files are open in it; it ends when they are closed
    #[arg(short, long)]
    lazy: bool,
    /// Not needed; taken so that scripts can pass the same options to every command
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let target = Target::find(&args.mountpoint)?;
    if args.lazy {
        target.detach()?;
    } else {
        target.end(Target::unmount)?;
    }
    if global.json {
        output::json_line(&json!({"unmounted": target.mountpoint().to_string_lossy()}));
    }
    Ok(())
}
