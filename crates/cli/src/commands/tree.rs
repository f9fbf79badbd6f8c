//! `strongroom tree`: everything below a directory of a room, drawn as a tree.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use room::FileKind;
use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::readable_path;
use crate::tree::{Meta, Source};

/// Show a directory of a room and everything below it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path, ROOM for its root, or ROOM@SNAPSHOT:/path
    #[arg(value_name = "ROOM:/PATH")]
    path: OsString,
    /// With names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Go at most this deep
    #[arg(short = 'L', long, value_name = "N")]
    depth: Option<u32>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let path = readable_path(&args.path)?;
    let access = Access::reach(&path.room, &args.open, Intent::Read)?;
    let failures = {
        let tree = access.source(path.snapshot.as_deref())?;
        let meta = tree
            .stat(&path.path, true)
            .map_err(|fault| path.failed(fault))?;
        let mut drawing = Drawing {
            args: &args,
            global,
            tree: &*tree,
            failures: Failures::default(),
            directories: 0,
            files: 0,
        };
        if !global.json {
            output::entry(output::shown_path(&path.path));
        }
        if meta.kind == FileKind::Directory {
            drawing.below(&path.path, "", 1);
        } else {
            drawing.files = 1;
        }
        if !global.json {
            output::entry(format!(
                "\n{}, {}",
                output::count(drawing.directories, "directory"),
                output::count(drawing.files, "file")
            ));
        }
        drawing.failures
    };
    access.close()?;
    failures.end()
}

struct Drawing<'a> {
    args: &'a Args,
    global: &'a Global,
    tree: &'a dyn Source,
    failures: Failures,
    directories: u64,
    files: u64,
}

impl Drawing<'_> {
    fn below(&mut self, dir: &Path, indent: &str, depth: u32) {
        if self.args.depth.is_some_and(|most| depth > most) {
            return;
        }
        let entries = match self.tree.list(dir) {
            Ok(entries) => entries,
            Err(fault) => {
                self.failures
                    .note(&Error::at(output::shown_path(dir), fault), self.global);
                return;
            }
        };
        let entries: Vec<_> = entries
            .into_iter()
            .filter(|(name, _)| self.args.all || !name.as_encoded_bytes().starts_with(b"."))
            .collect();
        for (at, (name, meta)) in entries.iter().enumerate() {
            let last = at + 1 == entries.len();
            let path = dir.join(name);
            self.one(&path, name, meta, indent, last);
            if meta.kind == FileKind::Directory {
                self.directories += 1;
                self.below(
                    &path,
                    &format!("{indent}{}", if last { "    " } else { "│   " }),
                    depth + 1,
                );
            } else {
                self.files += 1;
            }
        }
    }

    fn one(&self, path: &Path, name: &OsStr, meta: &Meta, indent: &str, last: bool) {
        let target = (meta.kind == FileKind::Symlink)
            .then(|| self.tree.read_link(path).ok())
            .flatten();
        if self.global.json {
            let mut value = output::file_json(name, meta, target.as_deref());
            value["path"] = json!(path.to_string_lossy());
            output::json_entry(&value);
            return;
        }
        let arrow = target
            .map(|target| format!(" -> {}", output::shown(&target)))
            .unwrap_or_default();
        output::entry(format!(
            "{indent}{}{}{arrow}",
            if last { "└── " } else { "├── " },
            output::shown(name)
        ));
    }
}
