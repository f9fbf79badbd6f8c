//! Walking a tree, for every command that goes into directories.

use std::path::Path;

use room::FileKind;

use crate::tree::{Fault, Meta, Source};

/// What the walk comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Anything but a directory.
    File,
    /// A directory, before what is in it.
    Enter,
    /// The same directory, after what is in it.
    Leave,
}

/// Walks `path` and everything below it, in the order of names. A directory that cannot be listed is passed to `unlisted`, and the
/// walk goes on.
pub(crate) fn walk<E>(
    tree: &dyn Source,
    path: &Path,
    meta: &Meta,
    visit: &mut dyn FnMut(Step, &Path, &Meta) -> Result<(), E>,
    unlisted: &mut dyn FnMut(&Path, Fault) -> Result<(), E>,
) -> Result<(), E> {
    if meta.kind != FileKind::Directory {
        return visit(Step::File, path, meta);
    }
    visit(Step::Enter, path, meta)?;
    match tree.list(path) {
        Ok(entries) => {
            for (name, below) in entries {
                walk(tree, &path.join(name), &below, visit, unlisted)?;
            }
        }
        Err(fault) => unlisted(path, fault)?,
    }
    visit(Step::Leave, path, meta)
}
