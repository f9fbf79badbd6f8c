//! `strongroom cat`: a file's contents to standard output.

use std::ffi::OsString;

use crate::access::{self, OpenArgs};
use crate::args::Global;
use crate::error::Result;
use crate::output;
use crate::place::{RoomPath, readable_paths};
use crate::tree::{Fault, Source};

/// Write files of a room to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path, or ROOM@SNAPSHOT:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = readable_paths(&args.paths)?;
    access::read_each(&paths, &args.open, global, |tree, path, _| {
        print(tree, path).map_err(|fault| path.failed(fault))
    })
}

fn print(tree: &dyn Source, path: &RoomPath) -> std::result::Result<(), Fault> {
    let file = tree.open(&path.path)?;
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let len = file.read_at(&mut buf, at)?;
        if len == 0 {
            return Ok(());
        }
        output::bytes(&buf[..len]);
        at += len as u64;
    }
}
