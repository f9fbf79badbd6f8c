//! `strongroom ls`: lists a directory of a room.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use room::FileKind;
use serde_json::json;

use crate::access::{self, OpenArgs};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::{RoomPath, readable_paths};
use crate::tree::{Meta, Source};

/// List files in a room
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path, ROOM for its root, or ROOM@SNAPSHOT:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    /// With mode, links, owner, size and time
    #[arg(short)]
    long: bool,
    /// With names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// And what is in the directories
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = readable_paths(&args.paths)?;
    let titled = paths.len() > 1 || args.recursive;
    access::read_each(&paths, &args.open, global, |tree, path, failures| {
        let mut lister = Lister {
            args: &args,
            global,
            tree,
            path,
            failures,
        };
        let meta = tree
            .stat(&path.path, path.must_be_directory || !args.long)
            .map_err(|fault| path.failed(fault))?;
        lister.list(&path.path, &meta, titled)
    })
}

struct Lister<'a> {
    args: &'a Args,
    global: &'a Global,
    tree: &'a dyn Source,
    path: &'a RoomPath,
    failures: &'a mut Failures,
}

impl Lister<'_> {
    fn list(&mut self, dir: &Path, meta: &Meta, titled: bool) -> Result<()> {
        if meta.kind != FileKind::Directory {
            self.show(Path::new("/"), dir.as_os_str(), meta, dir);
            return Ok(());
        }
        let entries = self.tree.list(dir).map_err(|fault| {
            Error::at(
                format!("{}:{}", self.path.tree_words(), output::shown_path(dir)),
                fault,
            )
        })?;
        if titled && !self.global.json {
            output::entry(format!("{}:", output::shown_path(dir)));
        }
        let entries: Vec<_> = entries
            .into_iter()
            .filter(|(name, _)| self.args.all || !name.as_encoded_bytes().starts_with(b"."))
            .collect();
        for (name, meta) in &entries {
            self.show(dir, name, meta, &dir.join(name));
        }
        if !self.args.recursive {
            return Ok(());
        }
        for (name, meta) in entries
            .iter()
            .filter(|(_, meta)| meta.kind == FileKind::Directory)
        {
            if !self.global.json {
                output::entry("");
            }
            if let Err(error) = self.list(&dir.join(name), meta, true) {
                self.failures.note(&error, self.global);
            }
        }
        Ok(())
    }

    fn show(&mut self, dir: &Path, name: &OsStr, meta: &Meta, path: &Path) {
        let target = (meta.kind == FileKind::Symlink && (self.args.long || self.global.json))
            .then(|| self.tree.read_link(path).ok())
            .flatten();
        if self.global.json {
            let mut value = output::file_json(name, meta, target.as_deref());
            value["directory"] = json!(dir.to_string_lossy());
            output::json_entry(&value);
        } else if self.args.long {
            output::entry(long_line(name, meta, target.as_deref()));
        } else {
            output::entry(output::shown(name));
        }
    }
}

/// A line as `ls -l` shows it, times in UTC.
pub(crate) fn long_line(name: &OsStr, meta: &Meta, target: Option<&OsStr>) -> String {
    let size = match meta.kind {
        FileKind::CharDevice | FileKind::BlockDevice => output::device(meta.rdev),
        _ => meta.size.to_string(),
    };
    let arrow = target
        .map(|target| format!(" -> {}", output::shown(target)))
        .unwrap_or_default();
    format!(
        "{} {:>3} {:>5} {:>5} {size:>12} {} {}{arrow}",
        output::mode_letters(meta.kind, meta.mode),
        meta.nlink,
        meta.uid,
        meta.gid,
        output::moment(meta.mtime.secs),
        output::shown(name),
    )
}
