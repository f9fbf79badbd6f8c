//! `strongroom rekey`: a new master key.

use std::path::PathBuf;

use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::Result;
use crate::output;
use crate::progress::Bar;

/// Give a room a new master key and seal everything anew; goes on where a stopped one ended
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The credential you give keeps its slot, and so do age and SSH recipients. Other passphrases and key \
files cannot be carried over, because the room does not know them: their slots are dropped and listed, to be added \
again with `strongroom key add`."
)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (access, with) = Access::reach_with_key(&args.room, &args.open, Intent::Change)?;
    let bar = Bar::start("sealing anew", global);
    let reply = access.run(&Request::Rekey { with }, &|done, total| {
        bar.tell(done, total)
    });
    bar.end();
    let Reply::Rekeyed(dropped) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
    if global.json {
        output::json_line(&json!({"dropped_slots": dropped, "finished": !bar.stopped()}));
    } else {
        for slot in &dropped {
            output::line(format!(
                "key slot {slot} was dropped: add its key again with `strongroom key add`"
            ));
        }
        output::note(
            global,
            "Backups of the header made before are useless now: make a new one with `strongroom header backup`.",
        );
    }
    if bar.stopped() {
        Err(crate::progress::interrupted())
    } else {
        Ok(())
    }
}
