//! `strongroom stat`: everything known about a file of a room.

use std::ffi::OsString;

use room::{FileFlags, FileKind, Timestamp};
use serde_json::json;

use crate::access::{self, OpenArgs};
use crate::args::Global;
use crate::error::Result;
use crate::output;
use crate::place::{RoomPath, readable_paths};
use crate::tree::{Fault, Source};

/// Show everything about files of a room
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path, or ROOM@SNAPSHOT:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    /// What a symbolic link leads to, instead of the link
    #[arg(short = 'L', long)]
    dereference: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = readable_paths(&args.paths)?;
    access::read_each(&paths, &args.open, global, |tree, path, _| {
        show(tree, path, args.dereference, global).map_err(|fault| path.failed(fault))
    })
}

fn show(
    tree: &dyn Source,
    path: &RoomPath,
    follow: bool,
    global: &Global,
) -> std::result::Result<(), Fault> {
    let meta = tree.stat(&path.path, follow || path.must_be_directory)?;
    let target = if meta.kind == FileKind::Symlink {
        Some(tree.read_link(&path.path)?)
    } else {
        None
    };
    let xattrs = if follow {
        Vec::new()
    } else {
        tree.xattrs(&path.path)?
    };
    let flags = match meta.kind {
        FileKind::Regular | FileKind::Directory => tree.flags(&path.path)?,
        _ => FileFlags::NONE,
    };
    let flags: Vec<&str> = [
        (flags.append_only(), "append-only"),
        (flags.immutable(), "immutable"),
    ]
    .into_iter()
    .filter_map(|(set, word)| set.then_some(word))
    .collect();
    if global.json {
        let mut value = output::file_json(path.path.as_os_str(), &meta, target.as_deref());
        value["xattrs"] = xattrs
            .iter()
            .map(|(name, content)| json!({"name": name.to_string_lossy(), "value_hex": crate::hex::hex(content)}))
            .collect();
        value["flags"] = json!(flags);
        output::json_line(&value);
        return Ok(());
    }
    let time = |t: Timestamp| format!("{}.{:09} UTC", output::moment(t.secs), t.nanos);
    let arrow = target
        .map(|target| format!(" -> {}", output::shown(&target)))
        .unwrap_or_default();
    output::line(format!(
        "path       {}{arrow}",
        output::shown_path(&path.path)
    ));
    output::line(format!("kind       {}", output::kind_word(meta.kind)));
    output::line(format!(
        "mode       {:04o} {}",
        meta.mode,
        output::mode_letters(meta.kind, meta.mode)
    ));
    if !flags.is_empty() {
        output::line(format!("flags      {}", flags.join(", ")));
    }
    output::line(format!("owner      {}:{}", meta.uid, meta.gid));
    output::line(format!("links      {}", meta.nlink));
    output::line(format!("inode      {}", meta.id.1));
    output::line(format!(
        "size       {} ({} stored)",
        meta.size,
        output::size(meta.allocated)
    ));
    if matches!(meta.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        output::line(format!("device     {}", output::device(meta.rdev)));
    }
    output::line(format!("modified   {}", time(meta.mtime)));
    output::line(format!("accessed   {}", time(meta.atime)));
    output::line(format!("changed    {}", time(meta.ctime)));
    if let Some(birth) = meta.btime {
        output::line(format!("born       {}", time(birth)));
    }
    for (name, content) in &xattrs {
        let content = match std::str::from_utf8(content) {
            Ok(text) if !text.chars().any(char::is_control) => format!("\"{text}\""),
            _ => format!("0x{}", crate::hex::hex(content)),
        };
        output::line(format!("attribute  {} = {content}", output::shown(name)));
    }
    Ok(())
}
