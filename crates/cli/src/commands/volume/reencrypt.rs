//! `strongroom volume reencrypt`: a LUKS2 volume under a new key, in place.

use std::ops::ControlFlow;

use device::Access;
use serde_json::json;
use volume::luks::{Dump, LuksError, Progress, ReencryptOptions};
use zeroize::Zeroizing;

use super::image::{CredentialArgs, ImageArgs, luks_exit, luks_said};
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
    if resumed && !is_what_was_begun(args, &luks.dump()) {
        return Err(Error::usage_at(
            path,
            "a reencryption to another cipher, key size or sector size is under way, and goes on as it was begun: leave --cipher, \
             --key-size and --sector-size away",
        ));
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
        .map_err(|e| match e {
            // Wherever it was: the header says where to go on.
            LuksError::Io { .. } => Error::said(
                luks_exit(&e),
                format!(
                    "{}: {e}; what is done is kept, and the same command goes on",
                    path.display()
                ),
            ),
            other => said(other),
        })?;
    bar.end();
    if !ended {
        return Err(interrupted());
    }
    output::done(
        global,
        json!({
            "image": args.image.image.to_string_lossy(),
            "bytes": total,
            "resumed": resumed,
        }),
        format!(
            "{} are under a new key; backups of the old header open nothing any more.",
            output::size(total)
        ),
    );
    Ok(())
}

/// Whether what is asked for is what the reencryption that is under way leads to: the same command goes on with it.
fn is_what_was_begun(args: &Args, dump: &Dump) -> bool {
    let mut segments = dump.segments.iter();
    let Some(end) = segments.find(|segment| segment.flags.iter().any(|f| f == "backup-final"))
    else {
        return args.cipher.is_none() && args.key_size.is_none() && args.sector_size.is_none();
    };
    let mut digests = dump.digests.iter();
    let digest = digests.find(|digest| digest.segments.contains(&end.id));
    let mut slots = dump.keyslots.iter();
    let slot = slots.find(|slot| digest.is_some_and(|digest| digest.keyslots.contains(&slot.id)));
    (args.cipher.is_none() || args.cipher == end.cipher)
        && (args.sector_size.is_none() || args.sector_size == end.sector_size)
        && (args.key_size.is_none() || args.key_size == slot.map(|slot| slot.key_bits))
}
