//! `strongroom metadata rotate`: another certificate authority for a room, without an interruption.

use std::path::PathBuf;

use super::admin::{self, Reply, Request};
use crate::access::OpenArgs;
use crate::args::Global;
use crate::error::Result;
use crate::output;

/// Replace the certificate authority of a room, which vouches for its users and its server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    /// Finish: the authority before, and keys of users from before the rotation, are not accepted any more
    #[arg(long)]
    finish: bool,
    /// Finish although users have keys from before the rotation; these end
    #[arg(long, requires = "finish")]
    force: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let request = if args.finish {
        Request::FinishRotation { force: args.force }
    } else {
        Request::RotateAuthority {}
    };
    let Reply::Done = admin::ask(&args.room, &args.open, request)? else {
        return Err(admin::unexpected());
    };
    let note = if args.finish {
        "The rotation is finished."
    } else {
        "Both authorities are accepted. Renew the users' keys (`strongroom user renew --replaces`), then: strongroom metadata rotate --finish"
    };
    output::note(global, note);
    Ok(())
}
