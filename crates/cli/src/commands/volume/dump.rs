//! `strongroom volume dump`: what a volume's header says, without any secret.

use device::Access;
use serde_json::json;
use volume::android::{Footer, Kdf, PasswordKind};
use volume::luks::Luks;
use volume::{Format, VolumeError};

use super::image::{ImageArgs, luks_said, said};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output;

/// Say what a volume's header holds: format, ciphers, key slots; no secret is needed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,
}

impl Args {
    pub(super) fn profile(&self) -> confine::Profile {
        self.image.to_read()
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let path = args.image.header_path();
    let device = match args.image.header_device(Access::ReadOnly)? {
        Some(header) => header,
        None => args.image.device(Access::ReadOnly)?,
    };
    let apart = args.image.header.is_some();
    let format = volume::recognise(&*device)
        .map_err(|e| said(path, e))?
        .ok_or_else(|| said(path, VolumeError::NotAVolume))?;
    match format {
        Format::Luks1 | Format::Luks2 => {
            let luks = Luks::read(device).map_err(|e| luks_said(path, e))?;
            let dump = luks.dump();
            if global.json {
                let mut value = serde_json::to_value(&dump)
                    .map_err(|e| Error::failed(format!("{}: {e}", path.display())))?;
                value["format"] = format.to_string().into();
                output::json_line(&value);
            } else {
                output::bytes(dump.to_string().as_bytes());
            }
        }
        Format::Android => {
            let (footer, _) = Footer::find(&*device, apart)
                .map_err(|e| said(path, e))?
                .ok_or_else(|| said(path, VolumeError::NotAVolume))?;
            android(&footer, global);
        }
        Format::FileVault2 => {
            let summary = volume::filevault::summary(&*device).map_err(|e| said(path, e))?;
            filevault(&summary, global);
        }
    }
    Ok(())
}

fn android(footer: &Footer, global: &Global) {
    let kdf = match footer.kdf {
        Kdf::Pbkdf2 => "PBKDF2-HMAC-SHA1, 2000 iterations".to_owned(),
        Kdf::Scrypt { n, r, p } => format!("scrypt, N 2^{n}, r 2^{r}, p 2^{p}"),
        Kdf::Hardware(kind) => format!("bound to the phone's hardware (Android's number {kind})"),
    };
    let password = match footer.password {
        PasswordKind::Password => "a password",
        PasswordKind::Default => "Android's own, default_password",
        PasswordKind::Pattern => "a pattern (its dots are the digits 1 to 9)",
        PasswordKind::Pin => "a PIN",
        PasswordKind::Other(_) => "of an unknown kind",
    };
    let bytes = footer.sectors.saturating_mul(512);
    if global.json {
        output::json_line(&json!({
            "format": Format::Android.to_string(),
            "version": format!("1.{}", footer.minor),
            "flags": footer.flags,
            "cipher": footer.cipher,
            "key_bits": footer.key_len * 8,
            "bytes": bytes,
            "kdf": kdf,
            "hardware_bound": matches!(footer.kdf, Kdf::Hardware(_)),
            "password": password,
            "encrypted_bytes": footer.encrypted_upto.saturating_mul(512),
        }));
        return;
    }
    output::line(format!(
        "{}, crypto footer 1.{}",
        Format::Android,
        footer.minor
    ));
    output::line(format!(
        "cipher    {}, key of {} bits",
        footer.cipher,
        footer.key_len * 8
    ));
    output::line(format!("contents  {} ({bytes} bytes)", output::size(bytes)));
    output::line(format!("key from  {password}; {kdf}"));
    output::line(format!("flags     {:#x}", footer.flags));
}

fn filevault(summary: &volume::filevault::Summary, global: &Global) {
    if global.json {
        output::json_line(&json!({
            "format": Format::FileVault2.to_string(),
            "name": summary.name,
            "uuid": summary.uuid,
            "bytes": summary.bytes,
            "pieces": summary.segments,
            "users": summary.users,
            "conversion": summary.conversion,
        }));
        return;
    }
    // Names come from the image.
    let shown = |text: &Option<String>| output::shown(text.as_deref().unwrap_or("none").as_ref());
    output::line(Format::FileVault2.to_string());
    output::line(format!("name        {}", shown(&summary.name)));
    output::line(format!("uuid        {}", shown(&summary.uuid)));
    output::line(format!(
        "contents    {} ({} bytes), in {} pieces",
        output::size(summary.bytes),
        summary.bytes,
        summary.segments
    ));
    output::line(format!("users       {}", summary.users));
    output::line(format!("conversion  {}", shown(&summary.conversion)));
}
