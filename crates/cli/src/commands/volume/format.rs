//! `strongroom volume format`: makes a LUKS volume of an image or a block device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use device::{Access, Device, FileDevice};
use serde_json::json;
use volume::luks::{self, FormatOptions, Hash, Version};

use super::image::{self, luks_said, said};
use super::kdf::{KdfArgs, hash};
use crate::args::Global;
use crate::ask;
use crate::confinement::file_or_directory;
use crate::credentials;
use crate::error::{Error, Result};
use crate::output;
use crate::size::bytes;

/// Make an encrypted volume; all that the image holds is lost
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume: a file, which is made if it does not exist, or a block device
    image: PathBuf,
    /// Size of a file that does not exist yet, header included; it takes no space before it is written
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
    /// Keep the header in FILE instead of before the data; a file of 16 MiB is made if there is none
    #[arg(long, value_name = "FILE")]
    header: Option<PathBuf>,
    /// The format
    #[arg(long = "type", value_enum, default_value = "luks2")]
    kind: Kind,
    /// The sector cipher, as dm-crypt names it; xchacha12,aes-adiantum-plain64 for processors without AES instructions
    #[arg(long, default_value = "aes-xts-plain64")]
    cipher: String,
    /// Bits of the volume's key [default: the cipher's most, 512 for XTS]
    #[arg(long, value_name = "BITS")]
    key_size: Option<usize>,
    /// Bytes of a sector: 512, 1024, 2048 or 4096 [default: 4096 where the size allows it; LUKS1 has 512 only]
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,
    /// The header's hash (LUKS1)
    #[arg(long, value_parser = hash)]
    hash: Option<Hash>,
    /// A name for the volume (LUKS2)
    #[arg(long, default_value = "")]
    label: String,
    /// A second name, for programs (LUKS2)
    #[arg(long, default_value = "")]
    subsystem: String,
    /// The volume's UUID [default: a random one]
    #[arg(long)]
    uuid: Option<String>,
    /// Where the data begins [default: 16 MiB, LUKS1 2 MiB, 0 with a detached header]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    data_offset: Option<u64>,
    /// Format even over a volume, a file system or other data, which is lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    kdf: KdfArgs,
}

#[derive(Debug, Clone, clap::Args)]
#[command(
    next_help_heading = "What will open the volume (a passphrase is asked for when none is given)"
)]
struct KeyArgs {
    /// Read the passphrase from FILE ("-": one line of standard input); one trailing newline is stripped
    #[arg(long, value_name = "FILE", group = "volume_credential")]
    passphrase_file: Option<PathBuf>,
    /// Use the content of FILE as the passphrase (up to 1 MiB, every byte counts)
    #[arg(long, value_name = "FILE", group = "volume_credential")]
    key_file: Option<PathBuf>,
    /// Encrypt the data with the key in FILE instead of a random one: for a new header before data that is still there
    #[arg(long, value_name = "FILE")]
    master_key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// LUKS, version 2
    Luks2,
    /// LUKS, version 1: for programs that know no other
    Luks1,
}

/// Bytes of a new file for a header: what LUKS2's default takes.
const HEADER_FILE: u64 = 16 << 20;

impl Args {
    pub(super) fn profile(&self) -> confine::Profile {
        let key = &self.key;
        let read = [&key.passphrase_file, &key.key_file, &key.master_key_file];
        let made = [Some(&self.image), self.header.as_ref()];
        confine::Profile {
            read: read.into_iter().flatten().cloned().collect(),
            write: made
                .into_iter()
                .flatten()
                .map(|path| file_or_directory(path))
                .collect(),
            ..Default::default()
        }
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let options = options(args)?;
    // Nothing is made or lost before there is a key.
    let secret = match &args.key.key_file {
        Some(file) => credentials::secret_file(file, credentials::KEY_FILE_MAX)?,
        None => credentials::passphrase_given(
            args.key.passphrase_file.as_deref(),
            &args.image.display().to_string(),
            ask::new_passphrase,
        )?,
    };
    let mut made = Made::default();
    let device = made.device(&args.image, args.size, args.force)?;
    let header = match &args.header {
        None => None,
        Some(path) => {
            Some(made.device(path, (!path.exists()).then_some(HEADER_FILE), args.force)?)
        }
    };
    let luks = match &header {
        Some(header) => luks::format(
            Arc::clone(header),
            Some(&*device),
            &options,
            secret.expose(),
        ),
        None => luks::format(Arc::clone(&device), None, &options, secret.expose()),
    }
    .map_err(|e| luks_said(args.header.as_deref().unwrap_or(&args.image), e))?;
    made.keep();
    if global.json {
        output::json_line(&json!({
            "image": args.image.to_string_lossy(),
            "header": args.header.as_ref().map(|h| h.to_string_lossy()),
            "luks": luks.version(),
            "uuid": luks.uuid(),
            "bytes": device.len(),
        }));
    } else {
        output::line(format!("volume  {}", args.image.display()));
        if let Some(header) = &args.header {
            output::line(format!(
                "header  {} (without it nothing opens the volume)",
                header.display()
            ));
        }
        output::line(format!(
            "format  LUKS{}, {}",
            luks.version(),
            options.cipher
        ));
        output::line(format!("uuid    {}", luks.uuid()));
    }
    Ok(())
}

fn options(args: &Args) -> Result<FormatOptions> {
    let version = match args.kind {
        Kind::Luks1 => Version::Luks1,
        Kind::Luks2 => Version::Luks2,
    };
    let lens = volume::sector::SectorCipher::key_lens(&args.cipher)
        .map_err(|e| Error::usage(e.to_string()))?;
    let volume_key = match &args.key.master_key_file {
        Some(file) => Some(image::master_key_file(file)?),
        None => None,
    };
    let key_len = match (args.key_size, &volume_key) {
        (Some(bits), _) if lens.contains(&(bits / 8)) && bits % 8 == 0 => bits / 8,
        (Some(bits), _) => {
            let bits_known: Vec<String> = lens.iter().map(|len| (len * 8).to_string()).collect();
            return Err(Error::usage(format!(
                "{} takes keys of {} bits, not {bits}",
                args.cipher,
                bits_known.join(", ")
            )));
        }
        (None, Some(key)) => key.len(),
        (None, None) => lens[0],
    };
    let kdf = if args.kdf.any() {
        Some(args.kdf.options(match args.kind {
            Kind::Luks1 => luks::KdfOptions::PBKDF2,
            Kind::Luks2 => luks::KdfOptions::argon2id(),
        })?)
    } else {
        None
    };
    Ok(FormatOptions {
        version,
        cipher: args.cipher.clone(),
        key_len,
        sector_size: args.sector_size,
        kdf,
        hash: args.hash.unwrap_or(Hash::Sha256),
        label: args.label.clone(),
        subsystem: args.subsystem.clone(),
        uuid: args.uuid.clone(),
        data_offset: args.data_offset,
        keyslots_size: None,
        volume_key,
    })
}

/// Files that were made on the way, which go again when the rest fails.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn device(&mut self, path: &Path, size: Option<u64>, force: bool) -> Result<Arc<dyn Device>> {
        let exists = path.symlink_metadata().is_ok();
        match (exists, size) {
            (true, Some(_)) => Err(Error::usage_at(
                path,
                "exists and has its size; leave --size away, or name a file that does not exist",
            )),
            (true, None) => {
                let device = image::open_device(path, Access::ReadWrite)?;
                if !force && let Some(what) = volume::holds(&*device).map_err(|e| said(path, e))? {
                    return Err(Error::failed(format!(
                        "{}: holds {what}, which would be lost; give --force to format it nevertheless",
                        path.display()
                    )));
                }
                Ok(device)
            }
            (false, Some(size)) => {
                let device =
                    FileDevice::create(path, size / 512 * 512).map_err(|e| Error::host(path, e))?;
                self.0.push(path.to_owned());
                Ok(Arc::new(device))
            }
            (false, None) => Err(Error::usage_at(
                path,
                "does not exist; say with --size how large it shall be",
            )),
        }
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
