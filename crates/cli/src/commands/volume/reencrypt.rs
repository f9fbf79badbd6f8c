//! `strongroom volume reencrypt`: a LUKS2 volume under a new key, in place.

use std::ops::ControlFlow;

use device::Access;
use serde_json::json;
use volume::luks::{Progress, ReencryptOptions};
use zeroize::Zeroizing;

use super::image::{CredentialArgs, ImageArgs, luks_said};
use super::kdf::KdfArgs;
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output;
use crate::progress::{Bar, interrupted};

/// Re-encrypt a LUKS2 volume in place with a new key; resumes a stopped or killed run
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The sector cipher afterwards [default: the one there is]
    #[arg(long)]
    cipher: Option<String>,
    /// Bits of the new key [default: as many as the old one's]
    #[arg(long, value_name = "BITS")]
    key_size: Option<usize>,
    /// Bytes of a sector afterwards [default: as they are]
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,
    /// Discard the key slots whose passphrases are not given
    #[arg(long)]
    drop_other_keys: bool,
    #[command(flatten)]
    credential: CredentialArgs,
    #[command(flatten)]
    kdf: KdfArgs,
}

impl Args {
    pub(super) fn profile(&self) -> confine::Profile {
        let mut profile = self.image.to_change();
        self.credential.keep(&mut profile);
        profile
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let path = args.image.header_path();
    let said = |e| luks_said(path, e);
    let (mut luks, data) = args.image.luks(Access::ReadWrite)?;
    let resumed = luks.is_reencrypting();
    let asked = args.cipher.is_some() || args.key_size.is_some() || args.sector_size.is_some();
    if resumed && asked {
        return Err(Error::usage(format!(
            "{}: a reencryption is under way, and goes on as it was begun: leave --cipher, --key-size and --sector-size away",
            path.display()
        )));
    }
    if args.key_size.is_some_and(|bits| bits % 8 != 0) {
        return Err(Error::usage("--key-size is a multiple of 8 bits"));
    }
    let passphrase: Zeroizing<Vec<u8>> = args.credential.passphrase(path)?;
    let limits = args.credential.limits();
    if !resumed {
        let kdf = if args.kdf.any() {
            Some(args.kdf.options(luks.default_kdf())?)
        } else {
            None
        };
        let options = ReencryptOptions {
            cipher: args.cipher.clone(),
            key_len: args.key_size.map(|bits| bits / 8),
            sector_size: args.sector_size,
            kdf,
            drop_other_keys: args.drop_other_keys,
        };
        luks.begin_reencryption(data.as_deref(), &[&passphrase[..]], &options, &limits)
            .map_err(said)?;
    }
    let bar = Bar::start("reencrypt", global);
    let mut total = 0;
    let ended = luks
        .reencrypt(data, &passphrase, &limits, &mut |progress: Progress| {
            total = progress.total;
            if bar.report(progress.done, progress.total) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
        .map_err(said)?;
    bar.end();
    if !ended {
        return Err(interrupted());
    }
    if global.json {
        output::json_line(&json!({
            "image": args.image.image.to_string_lossy(),
            "bytes": total,
            "resumed": resumed,
        }));
    } else {
        output::note(
            global,
            format!(
                "{} are under a new key; backups of the old header open nothing any more.",
                output::size(total)
            ),
        );
    }
    Ok(())
}
