//! `strongroom volume key`: what opens a LUKS volume.

use clap::Subcommand;
use device::Access;
use serde_json::json;

use super::image::{CredentialArgs, ImageArgs, luks_said, unlock};
use super::kdf::{KdfArgs, NewKeyArgs};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output;

/// Add, remove or change the keys that open a LUKS volume; data is not touched
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a passphrase or key file
    Add {
        #[command(flatten)]
        image: ImageArgs,
        /// The slot's number [default: the lowest that is free]
        #[arg(long, value_name = "N")]
        slot: Option<u8>,
        #[command(flatten)]
        credential: CredentialArgs,
        #[command(flatten)]
        new: NewKeyArgs,
        #[command(flatten)]
        kdf: KdfArgs,
    },
    /// Remove a key slot and wipe what it held; the credential must open another one
    #[command(visible_alias = "rm")]
    Remove {
        #[command(flatten)]
        image: ImageArgs,
        /// The slot's number, as `volume dump` shows it
        slot: u8,
        /// Remove it also when no other slot is left: then only a copy of the volume's key or header opens the volume
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        credential: CredentialArgs,
    },
    /// Put another passphrase or key file in the place of a slot's
    Change {
        #[command(flatten)]
        image: ImageArgs,
        /// The slot's number [default: the one that the given credential opens]
        #[arg(long, value_name = "N")]
        slot: Option<u8>,
        #[command(flatten)]
        credential: CredentialArgs,
        #[command(flatten)]
        new: NewKeyArgs,
        #[command(flatten)]
        kdf: KdfArgs,
    },
}

impl Args {
    pub(super) fn profile(&self) -> confine::Profile {
        let (image, credential, new) = match &self.command {
            Command::Add {
                image,
                credential,
                new,
                ..
            }
            | Command::Change {
                image,
                credential,
                new,
                ..
            } => (image, credential, Some(new)),
            Command::Remove {
                image, credential, ..
            } => (image, credential, None),
        };
        let mut profile = image.to_change();
        credential.keep(&mut profile);
        if let Some(new) = new {
            new.keep(&mut profile);
        }
        profile
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Add {
            image,
            slot,
            credential,
            new,
            kdf,
        } => {
            let path = image.header_path();
            let (mut luks, _) = image.luks(Access::ReadWriteBesideSystem)?;
            let kdf = kdf.options(luks.default_kdf())?;
            let (key, _) = unlock(&luks, &credential, path)?;
            let secret = new.read(path)?;
            let slot = luks
                .add_key(&key, &secret, &kdf, slot)
                .map_err(|e| luks_said(path, e))?;
            done(global, slot, &format!("Key slot {slot} was added."));
        }
        Command::Remove {
            image,
            slot,
            force,
            credential,
        } => {
            let path = image.header_path();
            let (mut luks, _) = image.luks(Access::ReadWriteBesideSystem)?;
            let (_, opened) = unlock(&luks, &credential, path)?;
            if opened == Some(slot) && !force {
                return Err(Error::failed(format!(
                    "{}: key slot {slot} is the one that was opened just now: give a credential that stays, so that it is sure \
                     the volume still opens, or --force",
                    path.display()
                )));
            }
            let removed = if force {
                luks.remove_last_key(slot)
            } else {
                luks.remove_key(slot)
            };
            removed.map_err(|e| luks_said(path, e))?;
            done(global, slot, &format!("Key slot {slot} was removed."));
        }
        Command::Change {
            image,
            slot,
            credential,
            new,
            kdf,
        } => {
            let path = image.header_path();
            let (mut luks, _) = image.luks(Access::ReadWriteBesideSystem)?;
            let kdf = kdf.options(luks.default_kdf())?;
            let (key, opened) = unlock(&luks, &credential, path)?;
            let slot = slot.or(opened).ok_or_else(|| {
                Error::usage("--master-key-file does not name a key slot: give --slot N")
            })?;
            let secret = new.read(path)?;
            let slot = luks
                .change_key(&key, slot, &secret, &kdf)
                .map_err(|e| luks_said(path, e))?;
            done(global, slot, &format!("Key slot {slot} has the new key."));
        }
    }
    Ok(())
}

fn done(global: &Global, slot: u8, words: &str) {
    output::done(global, json!({ "slot": slot }), words);
}
