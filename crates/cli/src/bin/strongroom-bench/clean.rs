//! `strongroom bench clean`: removes what a killed run left.

use bench::run_file::{self, Cleaned};
use bench::store::remove_in_room;
use room::{OpenOptions, Room};
use serde_json::json;

use strongroom_cli::program::{CredentialArgs, Error, Global, Result, output};

use super::{failed, key_of};

/// Remove what a killed benchmark left: mounts first, then its directories
///
/// Every benchmark writes down what it will make before it makes it, in the user's state directory. What belongs to one that
/// still runs is left alone, and so is whatever does not bear its mark.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    credential: CredentialArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let Some(dir) = run_file::default_dir() else {
        return Err(Error::failed(
            "neither XDG_STATE_HOME nor HOME is set, so it is not known where benchmarks wrote down what they made",
        ));
    };
    let key = key_of(&args.credential);
    let in_room = |dir: &std::path::Path, path: &str| {
        let said = |e: room::Error| bench::Error::store(dir.display().to_string(), e.to_string());
        let room = Room::open(dir, &key(dir)?, OpenOptions::default()).map_err(said)?;
        remove_in_room(&room, path).map_err(said)?;
        room.close().map_err(said)
    };
    let done = run_file::clean(&dir, &in_room).map_err(failed)?;
    for Cleaned { path, said, left } in &done {
        output::done(
            global,
            json!({"path": path.to_string_lossy(), "said": said, "left": left}),
            format!("{}: {said}", path.display()),
        );
    }
    if done.is_empty() && !global.json {
        output::note(global, "nothing was left by any benchmark");
    }
    match done.iter().filter(|one| one.left).count() {
        0 => Ok(()),
        count => Err(Error::failed(format!(
            "{count} things could not be removed; see above, and run this again when that is fixed"
        ))),
    }
}
