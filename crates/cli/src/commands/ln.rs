//! `strongroom ln`: hard and symbolic links in a room.

use std::ffi::OsString;
use std::path::PathBuf;

use room::FileKind;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::place::room_path;

/// Give a file of a room another name, or make a symbolic link
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file (ROOM:/path); with -s what the link shall say, as it is
    target: OsString,
    /// The new name: ROOM:/path, or a directory there
    #[arg(value_name = "ROOM:/PATH")]
    link: OsString,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let link = room_path(&args.link)?;
    let source = if args.symbolic {
        None
    } else {
        Some(room_path(&args.target)?)
    };
    if let Some(source) = &source
        && source.room.canonicalize().ok() != link.room.canonicalize().ok()
    {
        return Err(Error::usage(
            "a hard link and its file must be in the same room",
        ));
    }
    let access = Access::reach(&link.room, &args.open, Intent::Change)?;
    {
        let tree = access.tree()?;
        let into = tree
            .stat(&link.path, true)
            .is_ok_and(|meta| meta.kind == FileKind::Directory);
        let name = match &source {
            Some(source) => source.path.file_name().map(OsString::from),
            None => PathBuf::from(&args.target).file_name().map(OsString::from),
        };
        let path = match name {
            Some(name) if into => link.path.join(name),
            _ => link.path.clone(),
        };
        let done = match &source {
            Some(source) => tree.hard_link(&source.path, &path),
            None => tree.symlink(&args.target, &path),
        };
        done.map_err(|fault| link.failed(fault))
            .inspect_err(|error| access.advise_when_full(&link.room, error, global))?;
    }
    access.close()
}
