//! `strongroom mv`: renames within a room; into, out of and between rooms it copies and then removes.

use std::collections::HashSet;
use std::ffi::OsString;

use room::RenameMode;

use crate::access::OpenArgs;
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::Failures;
use crate::place::{Location, live};
use crate::progress::Bar;
use crate::tree::Meta;

use super::cp::{CopyOptions, Transfer, parts, sources_and_target, words};
use super::rm::remove_tree;

/// Move or rename files within a room, into it, or out of it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to move, and last where to: host paths, or ROOM:/path
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Do not replace a file that exists
    #[arg(short, long)]
    no_clobber: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (sources, target) = sources_and_target(&args.paths, "move", "mv")?;
    for source in &sources {
        if let Location::Room(path) = source {
            live(path.clone())?;
        }
    }
    let mut work = Transfer::new(&sources, &target, &args.open, true)?;
    let within = (0..sources.len()).all(|at| work.same_tree(at));
    let bar = Bar::counting("moving", global);
    let done = if within {
        rename_all(&work, &sources, &target, args.no_clobber, global)
    } else {
        move_all(&mut work, &sources, args.no_clobber, global, &bar)
    };
    bar.end();
    if let Err(error) = &done {
        work.advise_when_full(error, global);
    }
    let closed = work.close();
    let failures = done?;
    closed?;
    failures.end()
}

fn rename_all(
    work: &Transfer,
    sources: &[Location],
    target: &Location,
    keep: bool,
    global: &Global,
) -> Result<Failures> {
    let mode = match keep {
        true => RenameMode::NoReplace,
        false => RenameMode::Replace,
    };
    let mut failures = Failures::default();
    let mut made = HashSet::new();
    for (at, (source, to)) in sources.iter().zip(work.destinations(sources)?).enumerate() {
        if made.contains(&to) {
            let why = "another of the sources has just been moved there";
            let error = format!("{} to {}: {why}", words(source), words(target));
            failures.note(&Error::failed(error), global);
            continue;
        }
        let tree = work.source_tree(at, source)?;
        match tree.rename(parts(source).0, &to, mode) {
            Err(fault) if keep && fault.is_exists() => {}
            Err(fault) => {
                failures.note(
                    &Error::at(format!("{} to {}", words(source), words(target)), fault),
                    global,
                );
            }
            Ok(()) => {
                made.insert(to);
            }
        }
    }
    Ok(failures)
}

fn move_all(
    work: &mut Transfer,
    sources: &[Location],
    keep: bool,
    global: &Global,
    bar: &Bar,
) -> Result<Failures> {
    if keep {
        // What is left alone at the target must not be removed at the source, and a tree may hold some of each.
        return Err(Error::usage(
            "--no-clobber works only within one room; copy with `strongroom cp -rn` and remove by hand",
        ));
    }
    let mut whole = Vec::new();
    let options = CopyOptions {
        recursive: true,
        keep_existing: false,
        moving: true,
    };
    let mut after = |at, meta: &Meta, moved| whole.push((at, meta.clone(), moved));
    let (_, _, mut failures) = work.copy_all(sources, &options, global, bar, &mut after)?;
    // The copies must be safe before the only other ones go.
    work.sync_target()?;
    for (at, meta, moved) in whole {
        let source = &sources[at];
        let tree = work.source_tree(at, source)?;
        let place = (parts(source).0, &*words(source));
        let moved = moved.as_ref();
        remove_tree(&*tree, place, &meta, moved, &mut failures, global, bar)?;
    }
    Ok(failures)
}
