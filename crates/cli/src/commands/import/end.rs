//! How an import ends: committed, opened again for the comparison, and reported.

use serde_json::json;

use super::Args;
use crate::access::{Access, Intent};
use crate::args::Global;
use crate::copy::give::Kept;
use crate::copy::verify::Verifier;
use crate::credentials;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::place::RoomPath;
use crate::progress::Bar;

/// What was done, for the report.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Of the files: there already.
    pub(super) present: u64,
    pub(super) failures: Failures,
    pub(super) kept: Kept,
}

/// What was found at the end.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) equal: u64,
    pub(super) different: u64,
    pub(super) failures: Failures,
}

/// Why it stopped matters more than what came of that.
pub(super) fn stopped(error: Error, ended: Result<Option<Access>>) -> Error {
    if let Err(e) = ended {
        tracing::warn!("{e}");
    }
    error
}

/// Commits what was done, and opens what was committed for the comparison, if there is to be one.
pub(super) fn end(
    access: Access,
    to: &RoomPath,
    args: &Args,
    given: Option<credentials::Given>,
    whole: bool,
) -> Result<Option<Access>> {
    if let Access::Mounted(_) = &access {
        access.tree()?.sync().map_err(|fault| to.failed(fault))?;
        return Ok((whole && !args.no_verify).then_some(access));
    }
    access.close()?;
    match given {
        Some(given) if whole && !args.no_verify => {
            // A moment ago this machine had it open: nothing older is accepted.
            let options = room::OpenOptions {
                accept_rollback: false,
                ..args.open.options(Intent::Read)
            };
            Access::open(&to.room, &given, options).map(Some)
        }
        _ => Ok(None),
    }
}

/// Compares what was committed with what it came from, as `look` does, where there is a room to look at; closes that. `total`:
/// bytes of files, where that is known.
pub(super) fn compare(
    access: Option<Access>,
    to: &RoomPath,
    kept: &Kept,
    total: u64,
    global: &Global,
    look: impl FnOnce(&mut Verifier<'_>) -> Result<()>,
) -> Result<Option<Compared>> {
    let Some(access) = access else {
        return Ok(None);
    };
    let tree = access.tree()?;
    let bar = Bar::counting("comparing", global);
    bar.expect(total);
    let mut verifier = Verifier {
        target: &*tree,
        target_name: format!("{}:", to.room.display()),
        kept,
        global,
        bar: &bar,
        failures: Failures::default(),
        equal: 0,
        different: 0,
        bytes: 0,
    };
    let looked = look(&mut verifier);
    bar.end();
    looked?;
    let compared = Compared {
        equal: verifier.equal,
        different: verifier.different,
        failures: verifier.failures,
    };
    drop(tree);
    access.close()?;
    Ok(Some(compared))
}

/// Says what was done, and fails where anything did.
pub(super) fn report(done: Done, compared: Option<Compared>, global: &Global) -> Result<()> {
    let Done {
        files,
        bytes,
        present,
        mut failures,
        kept,
    } = done;
    if kept.owners_lost > 0 {
        output::note(
            global,
            format!(
                "Owner or group of {} could not be set by this user, who owns them now.",
                output::count(kept.owners_lost, "file")
            ),
        );
    }
    for (name, count) in &kept.xattrs_lost {
        output::note(
            global,
            format!(
                "The attribute {} of {} was not taken by the room.",
                output::shown(name),
                output::count(*count, "file")
            ),
        );
    }
    let (equal, different) = match compared {
        Some(compared) => {
            failures.absorb(compared.failures);
            (Some(compared.equal), compared.different)
        }
        None => (None, 0),
    };
    if global.json {
        output::json_line(&json!({
            "files": files,
            "bytes": bytes,
            "present": present,
            "compared": equal.map(|equal| equal + different),
            "different": different,
            "owners_lost": kept.owners_lost,
            "attributes_lost": kept.xattrs_lost.keys().map(|name| output::shown(name)).collect::<Vec<_>>(),
        }));
    } else {
        let compared = match equal {
            None => "not compared".to_owned(),
            Some(equal) if different == 0 => format!("{equal} compared, all equal"),
            Some(equal) => format!("{} compared, {different} differ", equal + different),
        };
        output::note(
            global,
            format!(
                "{} ({present} there already), {} copied; {compared}.",
                output::count(files, "file"),
                output::size(bytes)
            ),
        );
    }
    failures.end()
}
