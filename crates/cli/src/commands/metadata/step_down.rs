//! `strongroom metadata step-down`: another server of the room takes over, at once.

use std::path::PathBuf;

use super::admin::{self, Reply, Request};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::must_be_room;
use crate::proxy::room_name;

/// Have another server of a room take over from the one on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room: s3://BUCKET/PREFIX
    room: PathBuf,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    must_be_room(&args.room)?;
    match admin::ask_running(&args.room, &Request::StepDown {})? {
        Some(Reply::Done) => {
            output::note(
                global,
                "The room is closed here, and served by the next server that is there.",
            );
            Ok(())
        }
        Some(_) => Err(admin::unexpected()),
        None => Err(Error::said(
            Exit::NotMounted,
            format!(
                "{}: no metadata server runs on this machine",
                room_name(&args.room).display()
            ),
        )),
    }
}
