//! `strongroom du`: what directories of a room take, or its snapshots.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;

use room::FileKind;
use serde_json::json;

use super::snapshot::Reached;
use crate::access::{self, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::{RoomPath, readable_paths};
use crate::tree::{FileId, Meta, Source};

/// Show how much directories of a room hold
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path, ROOM for its root, or ROOM@SNAPSHOT:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    /// Only the sum of each argument
    #[arg(short, long)]
    summarize: bool,
    /// Lengths of files instead of the storage their data takes
    #[arg(long)]
    apparent_size: bool,
    /// What each snapshot of a room alone holds, which deleting it frees, and what all of them hold
    #[arg(long, conflicts_with_all = ["summarize", "apparent_size"])]
    snapshots: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = readable_paths(&args.paths)?;
    if args.snapshots {
        return paths
            .iter()
            .try_for_each(|path| snapshots(path, &args.open, global));
    }
    access::read_each(&paths, &args.open, global, |tree, path, failures| {
        let mut sum = Sum {
            args: &args,
            global,
            tree,
            path,
            seen: HashSet::new(),
            failures,
        };
        let meta = tree
            .stat(&path.path, path.must_be_directory)
            .map_err(|fault| path.failed(fault))?;
        let total = sum.of(&path.path, &meta);
        if args.summarize || meta.kind != FileKind::Directory {
            sum.show(&path.path, total);
        }
        Ok(())
    })
}

/// The accounts are of whole snapshots, so that this reads no file of the room.
fn snapshots(path: &RoomPath, open: &OpenArgs, global: &Global) -> Result<()> {
    if path.path != Path::new("/") || path.snapshot.is_some() {
        return Err(Error::usage(format!(
            "{}: what snapshots hold is known of a whole room: strongroom du --snapshots {}",
            path.words(),
            output::quoted(&path.room)
        )));
    }
    let access = Reached::find(&path.room, open, Intent::Read)?;
    let reply = access.run(&Request::Snapshots {}, &|_, _| true)?;
    access.close()?;
    let Reply::Snapshots(all) = reply else {
        return Err(unexpected());
    };
    for snapshot in &all.snapshots {
        let (bytes, name) = (snapshot.exclusive, &snapshot.name);
        if global.json {
            output::json_line(&json!({"snapshot": name, "bytes": bytes}));
        } else {
            let name = output::shown(name.as_ref());
            output::line(format!("{:>12}  {name}", output::size(bytes)));
        }
    }
    if global.json {
        output::json_line(&json!({"snapshots": all.snapshots.len(), "bytes": all.held}));
    } else {
        let count = output::count(all.snapshots.len() as u64, "snapshot");
        output::line(format!("{:>12}  {count} together", output::size(all.held)));
    }
    Ok(())
}

struct Sum<'a> {
    args: &'a Args,
    global: &'a Global,
    tree: &'a dyn Source,
    path: &'a RoomPath,
    /// Files with several names count once.
    seen: HashSet<FileId>,
    failures: &'a mut Failures,
}

impl Sum<'_> {
    /// (bytes, files) of a file or of everything below a directory.
    fn of(&mut self, path: &Path, meta: &Meta) -> (u64, u64) {
        let own = if self.args.apparent_size {
            meta.size
        } else {
            meta.allocated
        };
        if meta.kind != FileKind::Directory {
            return if meta.nlink > 1 && !self.seen.insert(meta.id) {
                (0, 0)
            } else {
                (own, 1)
            };
        }
        let mut total = (0, 1);
        match self.tree.list(path) {
            Ok(entries) => {
                for (name, below) in entries {
                    let (bytes, files) = self.of(&path.join(name), &below);
                    total = (total.0 + bytes, total.1 + files);
                }
            }
            Err(fault) => {
                let what = format!("{}:{}", self.path.tree_words(), output::shown_path(path));
                self.failures.note(&Error::At { what, fault }, self.global);
            }
        }
        if !self.args.summarize {
            self.show(path, total);
        }
        total
    }

    fn show(&self, path: &Path, (bytes, files): (u64, u64)) {
        if self.global.json {
            output::json_entry(
                &json!({"path": path.to_string_lossy(), "bytes": bytes, "files": files}),
            );
        } else {
            output::entry(format!(
                "{:>12}  {}",
                output::size(bytes),
                output::shown_path(path)
            ));
        }
    }
}
