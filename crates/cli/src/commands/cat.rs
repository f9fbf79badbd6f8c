//! `strongroom cat`: a file's contents to standard output.

use std::ffi::OsString;

use crate::access::{Intent, OpenArgs, Rooms};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::{RoomPath, room_path};
use crate::tree::{Fault, Tree};

/// Write files of a room to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = args
        .paths
        .iter()
        .map(|path| room_path(path))
        .collect::<Result<Vec<_>>>()?;
    let mut rooms = Rooms::default();
    let mut failures = Failures::default();
    for path in &paths {
        let at = rooms.reach(&path.room, &args.open, Intent::Read)?;
        let tree = rooms.get(at).tree()?;
        if let Err(fault) = print(&*tree, path) {
            failures.note(
                &Error::At {
                    what: path.words(),
                    fault,
                },
                global,
            );
        }
    }
    rooms.close()?;
    failures.end()
}

fn print(tree: &dyn Tree, path: &RoomPath) -> std::result::Result<(), Fault> {
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
