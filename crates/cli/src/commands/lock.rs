//! `strongroom lock`: unmounts rooms and ends the processes that have their keys.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::args::Global;
use crate::error::{Error, Result};
use crate::mounting::lock::{self, Outcome};
use crate::mounting::target::Target;
use crate::mounting::users::Use;
use crate::output::{self, Failures};

/// Lock rooms: make everything durable, unmount, and forget the keys; refused while files are open
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mountpoints, or the directories of mounted rooms
    #[arg(
        value_name = "MOUNTPOINT",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    mountpoints: Vec<PathBuf>,
    /// Lock everything that this user has mounted
    #[arg(short, long)]
    all: bool,
    /// Lock it even if files are open in it: what was written is saved, and programs that use it get errors
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let targets: Vec<Result<Target>> = if args.all {
        Target::all().into_iter().map(Ok).collect()
    } else {
        args.mountpoints
            .iter()
            .map(|path| Target::find(path))
            .collect()
    };
    let single = targets.len() == 1;
    let mut failures = Failures::default();
    for target in targets {
        let locked = target.and_then(|target| lock_one(&target, args.force, global));
        match locked {
            Err(error) if single => return Err(error),
            // Every other room is locked all the same.
            Err(error) => failures.note(&error, global),
            Ok(()) => {}
        }
    }
    failures.end()
}

fn lock_one(target: &Target, force: bool, global: &Global) -> Result<()> {
    let mountpoint = target.mountpoint().to_string_lossy();
    match lock::lock(target, force)? {
        Outcome::Locked(uses) => {
            if global.json {
                output::json_line(&json!({"locked": mountpoint, "cut_off": list(&uses)}));
            } else if !uses.is_empty() {
                output::note(global, lock::cut_off(target, &uses));
            }
            Ok(())
        }
        Outcome::InUse(uses) => {
            if global.json {
                output::json_line(&json!({"in_use": mountpoint, "by": list(&uses)}));
            }
            Err::<(), Error>(lock::in_use(target, &uses))
        }
    }
}

fn list(uses: &[Use]) -> Vec<Value> {
    let value = |one: &Use| {
        json!({
            "pid": one.pid,
            "program": one.program,
            "how": one.how.words(),
            "path": one.path.to_string_lossy(),
        })
    };
    uses.iter().map(value).collect()
}
