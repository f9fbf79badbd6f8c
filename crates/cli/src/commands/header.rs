//! `strongroom header`: a backup of the header, and putting it back.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use seal::Header;
use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::{Client, unexpected};
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::fault::room_exit;
use crate::hex::unhex;
use crate::output;
use crate::place::room_argument;

/// Back up or restore a room's header, without which no key opens it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the header to a new file; it opens the room with the keys of today, so keep it as safe as those
    Backup {
        /// The room's directory, or where it is mounted
        #[arg(value_parser = room_argument())]
        room: PathBuf,
        /// The file to make
        file: PathBuf,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// Put a backed-up header in the place of both copies, after checking that the credential opens it
    Restore {
        /// The room's directory, or where it is mounted
        #[arg(value_parser = room_argument())]
        room: PathBuf,
        /// The backup
        file: PathBuf,
        #[command(flatten)]
        open: OpenArgs,
    },
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Backup { room, file, open } => backup(&room, &file, &open, global),
        Command::Restore { room, file, open } => restore(&room, &file, &open, global),
    }
}

fn backup(room: &Path, file: &Path, open: &OpenArgs, global: &Global) -> Result<()> {
    if file.exists() {
        return Err(Error::failed_at(
            file,
            "exists; a header backup is written to a new file",
        ));
    }
    let (access, with) = Access::reach_with_key(room, open, Intent::Read)?;
    let Reply::Header(header) = access.run(&Request::HeaderBackup { with }, &|_, _| true)? else {
        return Err(unexpected());
    };
    access.close()?;
    let header = unhex(&header)?;
    storage::write_new_private(file, &header).map_err(|e| Error::host(file, e))?;
    output::done(
        global,
        json!({"file": file.to_string_lossy(), "bytes": header.len()}),
        format!(
            "Wrote the header to {}; keep it apart from the room.",
            file.display()
        ),
    );
    Ok(())
}

fn restore(room: &Path, file: &Path, open: &OpenArgs, global: &Global) -> Result<()> {
    if !room.is_dir() {
        crate::place::must_be_room(room)?;
    }
    if let Ok(Some(client)) = Client::find(room) {
        return Err(Error::said(
            Exit::InUse,
            format!(
                "{}: in use by process {}; unmount the room first",
                room.display(),
                client.pid
            ),
        ));
    }
    let header = super::key::read_bounded(file).map_err(|e| Error::host(file, e))?;
    let given = open
        .credential
        .read(&format!("the backup {}", file.display()))?;
    crate::bucket::restore_header(room, &header, &given.credential()?).map_err(|e| match e {
        room::Error::WrongCredential(_) | room::Error::Seal(_) => {
            Error::said(room_exit(&e), format!("{}: {e}", file.display()))
        }
        room::Error::Catalog(_) if !is_like_present(room, &header, global) => Error::failed(format!(
            "{}: the catalog of {} fails authentication with this header's key: it is the header of another room, or from before a \
             rekey, or the catalog is damaged",
            file.display(),
            room.display()
        )),
        other => Error::room(room, other),
    })?;
    output::done(
        global,
        json!({"restored": room.to_string_lossy()}),
        "Both copies of the header were restored.",
    );
    Ok(())
}

/// Whether the room has a header with the same master key as the backup.
fn is_like_present(room: &Path, backup: &[u8], global: &Global) -> bool {
    let of = |header: Header| (header.room_id(), header.epoch());
    let present = super::key::read_header(room, global).map(of);
    Header::parse(backup).is_ok_and(|backup| present.is_ok_and(|present| present == of(backup)))
}
