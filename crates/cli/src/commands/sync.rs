//! `strongroom sync`: makes everything written to a mounted room durable now.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::{Request, SOCKET};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::place::room_argument;
use crate::socket;

/// Make everything done to a mounted room so far durable
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, _global: &Global) -> Result<()> {
    // Looked for before anything is opened, which takes it away.
    let was_mounted = socket::is_there(&args.room, SOCKET);
    let access = Access::reach(&args.room, &args.open, Intent::Change)?;
    let crashed = was_mounted && matches!(access, Access::Library { .. });
    access.fetch_written();
    access.run(&Request::Sync {}, &|_, _| true)?;
    access.close()?;
    if crashed {
        // Changes through the mount may not be in the room: to report them as durable would be wrong.
        return Err(Error::said_at(
            Exit::NotMounted,
            &args.room,
            "the process that had it mounted died without closing it, and what was done to the mount after its last \
                 commit is lost; the room is whole, and can be mounted again",
        ));
    }
    Ok(())
}
