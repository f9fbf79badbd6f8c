//! `strongroom volume header`: a LUKS header's backup, and putting it back.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use confine::Profile;
use device::Access;
use serde_json::json;
use volume::luks::{self, LuksError};
use zeroize::Zeroizing;

use super::image::{luks_said, open_device};
use crate::args::Global;
use crate::confinement::file_or_directory;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;

/// Back up or restore a LUKS volume's header, without which no key opens it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the header to a new file; it opens the volume with the keys of today, so keep it as safe as those
    Backup {
        /// The volume, or the file of its detached header
        image: PathBuf,
        /// The file to make
        file: PathBuf,
    },
    /// Put a backed-up header back
    Restore {
        /// The volume, or the file of its detached header
        image: PathBuf,
        /// The backup
        file: PathBuf,
        /// Restore also a header of another volume or key, during a reencryption, or where there is none or none that can be read; the
        /// data can be lost
        #[arg(long)]
        force: bool,
    },
}

/// Bytes of the longest backup: both headers and the place for key slots.
const BACKUP_MAX: u64 = 256 << 20;

impl Args {
    pub(super) fn profile(&self) -> Profile {
        match &self.command {
            Command::Backup { image, file } => Profile {
                read: vec![image.clone()],
                write: vec![file_or_directory(file)],
                ..Profile::default()
            },
            Command::Restore { image, file, .. } => Profile {
                read: vec![file.clone()],
                write: vec![image.clone()],
                ..Profile::default()
            },
        }
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Backup { image, file } => backup(&image, &file, global),
        Command::Restore { image, file, force } => restore(&image, &file, force, global),
    }
}

fn backup(image: &Path, file: &Path, global: &Global) -> Result<()> {
    let device = open_device(image, Access::ReadOnly)?;
    let bytes = luks::backup_header(&device).map_err(|e| luks_said(image, e))?;
    storage::write_new_private(file, &bytes).map_err(|e| Error::host(file, e))?;
    output::done(
        global,
        json!({"file": file.to_string_lossy(), "bytes": bytes.len()}),
        format!(
            "Wrote the header to {}; keep it apart from the volume.",
            file.display()
        ),
    );
    Ok(())
}

fn restore(image: &Path, file: &Path, force: bool, global: &Global) -> Result<()> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(file)
        .and_then(|file| file.take(BACKUP_MAX + 1).read_to_end(&mut bytes))
        .map_err(|e| Error::host(file, e))?;
    if bytes.len() as u64 > BACKUP_MAX {
        return Err(Error::usage_at(file, "larger than any header's backup"));
    }
    luks::read_backup(&bytes).map_err(|e| match e {
        LuksError::NotLuks => Error::said_at(Exit::NotARoom, file, "no backup of a LUKS header"),
        other => luks_said(file, other),
    })?;
    let device = open_device(image, Access::ReadWriteBesideSystem)?;
    let luks = luks::restore_header(&device, &bytes, force).map_err(|e| luks_said(image, e))?;
    output::done(
        global,
        json!({"restored": image.to_string_lossy(), "uuid": luks.uuid()}),
        format!("The header of {} was restored.", luks.uuid()),
    );
    Ok(())
}
