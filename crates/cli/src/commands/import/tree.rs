//! Importing what is a tree of files: a container, a directory, what a peer has mounted.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use room::FileKind;

use super::Args;
use super::end::{Compared, Done, end, report, stopped};
use crate::access::{Access, Intent};
use crate::args::Global;
use crate::copy::Copier;
use crate::copy::give::Kept;
use crate::copy::place::Existing;
use crate::copy::verify::Verifier;
use crate::error::{Error, Result};
use crate::output::Failures;
use crate::place::RoomPath;
use crate::progress::Bar;
use crate::tree::{Source, Tree};

/// Copies all that is below `from` (of the host's own tree, or of another), and compares. `sound`: whether the source can still be believed.
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
    let done = (|| {
        let tree = access.tree()?;
        if is_host {
            refuse_itself(&access, from)?;
        }
        let at = |fault| Error::At {
            what: from.display().to_string(),
            fault,
        };
        let meta = source.stat(from, true).map_err(at)?;
        make_above(&*tree, &to.path, &to.words())?;
        let mut copier = Copier {
            from: source,
            to: &*tree,
            from_name: String::new(),
            existing: Existing::GoOn {
                overwrite: args.overwrite,
            },
            durable: false,
            global,
            bar: &bar,
            failures: Failures::default(),
            links: HashMap::new(),
            files: 0,
            bytes: 0,
            present: 0,
            failed: HashSet::new(),
            kept: Kept::default(),
        };
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
    let ended = end(access, to, args, given, done.is_ok());
    let (mut done, meta) = match done {
        Ok(done) => done,
        Err(error) => return Err(stopped(error, ended)),
    };
    let access = ended?;
    let compared = match &access {
        None => None,
        Some(access) => {
            let tree = access.tree()?;
            let bar = Bar::counting("comparing", global);
            let mut verifier = Verifier {
                target: &*tree,
                target_name: format!("{}:", to.room.display()),
                kept: &done.kept,
                global,
                bar: &bar,
                failures: std::mem::take(&mut done.failures),
                equal: 0,
                different: 0,
                bytes: 0,
            };
            let walked = verifier.trees(source, from, &meta, &to.path, &failed);
            bar.end();
            walked?;
            sound()?;
            Some(Compared {
                equal: verifier.equal,
                different: verifier.different,
                failures: verifier.failures,
            })
        }
    };
    if let Some(access) = access {
        access.close()?;
    }
    report(done, compared, global)
}

/// Makes the directories above the target where they are missing.
pub(super) fn make_above(tree: &dyn Tree, path: &Path, words: &str) -> Result<()> {
    let mut missing = Vec::new();
    for above in path.ancestors().skip(1) {
        match tree.stat(above, true) {
            Ok(there) if there.kind == FileKind::Directory => break,
            Ok(_) => {
                return Err(Error::failed(format!(
                    "{words}: {} is not a directory",
                    above.display()
                )));
            }
            Err(fault) if fault.is_not_found() => missing.push(above),
            Err(fault) => {
                return Err(Error::At {
                    what: words.into(),
                    fault,
                });
            }
        }
    }
    for above in missing.into_iter().rev() {
        tree.make_dir(above, 0o755).map_err(|fault| Error::At {
            what: words.into(),
            fault,
        })?;
    }
    Ok(())
}

/// A directory that holds the room, or is the room mounted, would be imported into itself without end.
fn refuse_itself(access: &Access, from: &Path) -> Result<()> {
    let Ok(from) = from.canonicalize() else {
        return Ok(());
    };
    let inside = |dir: &Path| dir.canonicalize().is_ok_and(|dir| dir.starts_with(&from));
    let mounted_in = |dir: &Path| dir.canonicalize().is_ok_and(|dir| from.starts_with(dir));
    let refused = match access {
        Access::Library { dir, .. } => from.is_dir() && (inside(dir) || mounted_in(dir)),
        Access::Mounted(client) => {
            from.is_dir()
                && (inside(&client.room)
                    || inside(&client.mountpoint)
                    || mounted_in(&client.mountpoint))
        }
    };
    if refused {
        return Err(Error::usage(format!(
            "{}: holds the room itself, or lies in it; import what is beside it",
            from.display()
        )));
    }
    Ok(())
}
