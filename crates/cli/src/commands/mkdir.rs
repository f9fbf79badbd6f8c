//! `strongroom mkdir`: makes directories in a room.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use room::FileKind;

use crate::access::{self, OpenArgs};
use crate::args::Global;
use crate::error::Result;
use crate::place::room_paths;
use crate::tree::{Fault, Tree};

/// Make directories in a room
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    /// Make the directories above too, and accept one that is there
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = room_paths(&args.paths)?;
    access::change_each(&paths, &args.open, global, |tree, path, _| {
        let made = if args.parents {
            make_all(tree, &path.path)
        } else {
            tree.make_dir(&path.path, 0o755)
        };
        made.map_err(|fault| path.failed(fault))
    })
}

fn make_all(tree: &dyn Tree, path: &Path) -> std::result::Result<(), Fault> {
    let mut above = PathBuf::from("/");
    for part in path.strip_prefix("/").unwrap_or(path) {
        above.push(part);
        match tree.make_dir(&above, 0o755) {
            Err(fault)
                if fault.is_exists() && tree.stat(&above, true)?.kind == FileKind::Directory => {}
            other => other?,
        }
    }
    Ok(())
}
