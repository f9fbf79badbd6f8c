//! Importing what is a tree of files: a container, a directory, what a peer has mounted.

use std::collections::HashSet;
use std::path::Path;

use super::Args;
use super::end::{Done, compare, end, report, stopped};
use crate::access::{Access, Intent};
use crate::args::Global;
use crate::copy::Copier;
use crate::copy::place::Existing;
use crate::error::{Error, Result};
use crate::place::RoomPath;
use crate::progress::Bar;
use crate::tree::{Source, make_above};

/// Copies all that is below `from` (of the host's own tree, or of another), and compares. `sound`: whether the source is still valid.
pub(super) fn from_tree(
    args: &Args,
    source: &dyn Source,
    (from, is_host): (&Path, bool),
    to: &RoomPath,
    global: &Global,
    sound: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let (access, given) = Access::reach_again(&to.room, &args.open, Intent::Change)?;
    let bar = Bar::counting("importing", global);
    let mut failed = HashSet::new();
    let mut total = 0;
    let done = (|| {
        let tree = access.tree()?;
        if is_host {
            refuse_itself(&access, from)?;
        }
        let at = |fault| Error::at(from.display().to_string(), fault);
        let meta = source.stat(from, true).map_err(at)?;
        make_above(&*tree, &to.path).map_err(|fault| to.failed(fault))?;
        let survey = bar.survey(source, from, &meta);
        bar.expect(survey.stored);
        total = survey.bytes;
        let existing = Existing::GoOn {
            overwrite: args.overwrite,
        };
        let mut copier = Copier::new((source, String::new()), &*tree, existing, global, &bar);
        copier.copy(from, &meta, &to.path)?;
        failed = std::mem::take(&mut copier.failed);
        let done = Done {
            files: copier.files,
            bytes: copier.bytes,
            present: copier.present,
            failures: copier.failures,
            kept: copier.kept,
        };
        sound()?;
        Ok((done, meta))
    })();
    bar.end();
    if let Err(error) = &done {
        access.advise_when_full(&to.room, error, global);
    }
    let ended = end(access, to, args, given, done.is_ok());
    let (done, meta) = match done {
        Ok(done) => done,
        Err(error) => return Err(stopped(error, ended)),
    };
    let ended = ended?;
    // Committing took its time.
    bar.go_on()?;
    let compared = compare(ended, to, &done.kept, total, global, |verifier| {
        verifier.trees(source, from, &meta, &to.path, &failed)?;
        sound()
    })?;
    report(done, compared, global)
}

/// A directory that holds the room, or is the room mounted, would be imported into itself without end.
fn refuse_itself(access: &Access, from: &Path) -> Result<()> {
    let Ok(from) = from.canonicalize() else {
        return Ok(());
    };
    let is_in = |dir: &Path| dir.canonicalize().is_ok_and(|dir| from.starts_with(dir));
    let is_part = match access {
        Access::Library { dir, .. } => is_in(dir),
        Access::Mounted(client) => is_in(&client.mountpoint),
    };
    if access.is_within(&from) || from.is_dir() && is_part {
        return Err(Error::usage_at(
            &from,
            "holds the room itself, or is in it; import what is beside it",
        ));
    }
    Ok(())
}
