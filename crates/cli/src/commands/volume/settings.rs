//! `strongroom volume resize` and `convert`: the length of the data, and how key slots derive their keys.

use device::Access;
use serde_json::json;

use super::image::{CredentialArgs, ImageArgs, luks_said};
use super::kdf::KdfArgs;
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output;
use crate::size::bytes;

/// Set the length of a LUKS2 volume's contents; the data is neither moved nor wiped
#[derive(Debug, clap::Args)]
pub(crate) struct ResizeArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Length of the contents [default: all that the image has]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
}

/// Derive a key slot's key in another way from now on, from the same passphrase or key file
#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// The slot's number [default: the one that the credential opens]
    #[arg(long, value_name = "N")]
    slot: Option<u8>,
    #[command(flatten)]
    credential: CredentialArgs,
    #[command(flatten)]
    kdf: KdfArgs,
}

impl ResizeArgs {
    pub(super) fn profile(&self) -> confine::Profile {
        self.image.to_change()
    }
}

impl ConvertArgs {
    pub(super) fn profile(&self) -> confine::Profile {
        let mut profile = self.image.to_change();
        self.credential.keep(&mut profile);
        profile
    }
}

pub(crate) fn resize(args: &ResizeArgs, global: &Global) -> Result<()> {
    let path = args.image.header_path();
    let (mut luks, data) = args.image.luks(Access::ReadWriteBesideSystem)?;
    luks.resize(data.as_deref(), args.size)
        .map_err(|e| luks_said(path, e))?;
    output::done(
        global,
        json!({"image": args.image.image.to_string_lossy(), "bytes": args.size}),
        match args.size {
            Some(size) => format!("The contents have {} now.", output::size(size)),
            None => "The contents are all that the image has.".to_owned(),
        },
    );
    Ok(())
}

pub(crate) fn convert(args: &ConvertArgs, global: &Global) -> Result<()> {
    let path = args.image.header_path();
    if !args.kdf.any() {
        return Err(Error::usage(
            "say how the key shall be derived: --kdf, --kdf-memory, --kdf-passes, --kdf-lanes, --kdf-iterations, --kdf-hash",
        ));
    }
    let (mut luks, _) = args.image.luks(Access::ReadWriteBesideSystem)?;
    let kdf = args.kdf.options(luks.default_kdf())?;
    let passphrase = args.credential.passphrase(path)?;
    let limits = args.credential.limits();
    let said = |e| luks_said(path, e);
    let slot = match args.slot {
        Some(slot) => slot,
        None => luks.unlock(&passphrase, &limits).map_err(said)?.1,
    };
    let slot = luks
        .convert_kdf(slot, &passphrase, &kdf, &limits)
        .map_err(said)?;
    output::done(
        global,
        json!({ "slot": slot }),
        format!("Key slot {slot} has new key derivation settings."),
    );
    Ok(())
}
