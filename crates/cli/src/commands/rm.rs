//! `strongroom rm`: removes files of a room.

use std::ffi::OsString;
use std::path::Path;

use room::FileKind;

use crate::access::{self, OpenArgs};
use crate::args::Global;
use crate::copy::Moved;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::room_paths;
use crate::progress::Bar;
use crate::tree::{Fault, Meta, Tree};
use crate::walk::{Step, walk};

/// Remove files from a room
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ROOM:/path
    #[arg(required = true, value_name = "ROOM:/PATH")]
    paths: Vec<OsString>,
    /// Remove directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Say nothing of what is not there
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let paths = room_paths(&args.paths)?;
    // Without a name of its own it is the root, or ends with `..` and may lead there.
    if let Some(above) = paths.iter().find(|path| path.path.file_name().is_none()) {
        let why = match above.path == Path::new("/") {
            true => "the root of a room cannot be removed; name what is in it",
            false => "is named by what is in it; name the directory itself",
        };
        return Err(Error::usage(format!("{}: {why}", above.words())));
    }
    let bar = Bar::of_files("removing", global);
    let done = access::change_each(
        &paths,
        &args.open,
        global,
        |tree, path, failures| match tree.stat(&path.path, false) {
            Err(fault) if fault.is_not_found() && args.force => Ok(()),
            Err(fault) => Err(path.failed(fault)),
            // Nothing is removed by way of a symbolic link.
            Ok(meta) if path.must_be_directory && meta.kind != FileKind::Directory => {
                Err(path.failed(Fault::Refused("not a directory".into())))
            }
            Ok(meta) if meta.kind == FileKind::Directory && !args.recursive => Err(Error::failed(
                format!("{}: is a directory; remove it with -r", path.words()),
            )),
            Ok(meta) => {
                bar.expect(bar.survey(tree, &path.path, &meta).files);
                let place = (&*path.path, &*path.words());
                remove_tree(tree, place, &meta, None, failures, global, &bar)
            }
        },
    );
    bar.end();
    done
}

/// Removes a file, or a directory with everything in it. `words`: how the user named it. `only`: nothing but what was moved, as it was.
pub(crate) fn remove_tree(
    tree: &dyn Tree,
    (path, words): (&Path, &str),
    meta: &Meta,
    only: Option<&Moved>,
    failures: &mut Failures,
    global: &Global,
    bar: &Bar,
) -> Result<()> {
    // Both closures report failures.
    let failures = std::cell::RefCell::new(failures);
    let note = |at: &Path, fault| {
        let what = match at.strip_prefix(path) {
            Ok(below) if !below.as_os_str().is_empty() => {
                format!("{words}/{}", output::shown_path(below))
            }
            _ => words.to_owned(),
        };
        failures
            .borrow_mut()
            .note(&Error::At { what, fault }, global);
    };
    let mut files = 0;
    walk(
        tree,
        path,
        meta,
        &mut |step, at, _| {
            if step != Step::Enter {
                files += 1;
                bar.count(files, 0)?;
            }
            let may_go = || match only {
                Some(moved) if !moved.has(&tree.stat(at, false)?) => Err(Fault::Refused(
                    "is not what was copied, or was changed since; it stays".into(),
                )),
                _ => Ok(()),
            };
            let removed = match step {
                Step::Enter => Ok(()),
                Step::File => may_go().and_then(|()| tree.remove_file(at)),
                Step::Leave => may_go().and_then(|()| tree.remove_dir(at)),
            };
            if let Err(fault) = removed {
                note(at, fault);
            }
            Ok(())
        },
        &mut |at, fault| {
            note(at, fault);
            Ok(())
        },
    )
}
