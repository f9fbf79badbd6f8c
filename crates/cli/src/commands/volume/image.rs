//! Which image, where its header is, and what opens it: the arguments that the commands on volumes share.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use confine::Profile;
use device::{Access, Device, FileDevice};
use volume::luks::{Limits, Luks, LuksError, VolumeKey};
use volume::{Certainty, Credential, Format, OpenOptions, Opened, VolumeError};
use zeroize::Zeroizing;

use crate::args::Global;
use crate::ask;
use crate::credentials::{self, KEY_FILE_MAX};
use crate::error::{Error, Result, io_exit};
use crate::exit::Exit;
use crate::output;

/// The image and its header.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ImageArgs {
    /// The volume: an image file or a block device
    pub(crate) image: PathBuf,
    /// The volume's header, where it is kept in a file of its own
    #[arg(long, value_name = "FILE")]
    pub(crate) header: Option<PathBuf>,
}

/// What opens the volume.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "What opens the volume (asked for when none is given)")]
pub struct CredentialArgs {
    /// Read the passphrase from FILE ("-": one line of standard input); one trailing newline is stripped
    #[arg(long, value_name = "FILE", group = "volume_credential")]
    pub passphrase_file: Option<PathBuf>,
    /// Use the content of FILE as the passphrase (up to 1 MiB, every byte counts)
    #[arg(long, value_name = "FILE", group = "volume_credential")]
    pub(crate) key_file: Option<PathBuf>,
    /// Use the key that the data is encrypted with: FILE holds its bytes, or hexadecimal digits
    #[arg(long, value_name = "FILE", group = "volume_credential")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// Derive keys at whatever cost the header asks for; for headers you trust
    #[arg(long)]
    pub any_kdf_cost: bool,
}

impl CredentialArgs {
    /// The files that the command reads for it.
    pub(super) fn keep(&self, profile: &mut Profile) {
        let files = [&self.passphrase_file, &self.key_file, &self.master_key_file];
        profile.read.extend(files.into_iter().flatten().cloned());
    }

    /// Reads what the options name; without any, asks for the passphrase of `of`.
    pub fn read(&self, of: &Path) -> Result<Credential> {
        if let Some(file) = &self.master_key_file {
            return Ok(Credential::MasterKey(master_key_file(file)?));
        }
        self.passphrase(of).map(Credential::Passphrase)
    }

    /// The file that an option names, if one does; not standard input.
    pub fn file(&self) -> Option<&Path> {
        [&self.passphrase_file, &self.key_file, &self.master_key_file]
            .into_iter()
            .find_map(Option::as_deref)
            .filter(|file| *file != Path::new("-"))
    }

    /// The same where only a passphrase or key file will do.
    pub(super) fn passphrase(&self, of: &Path) -> Result<Zeroizing<Vec<u8>>> {
        if self.master_key_file.is_some() {
            return Err(Error::usage(
                "--master-key-file does not name a key slot: give --passphrase-file or --key-file",
            ));
        }
        let secret = match &self.key_file {
            Some(file) => credentials::secret_file(file, KEY_FILE_MAX)?,
            None => credentials::passphrase_given(
                self.passphrase_file.as_deref(),
                &of.display().to_string(),
                ask::passphrase,
            )?,
        };
        Ok(Zeroizing::new(secret.expose().to_vec()))
    }

    pub(super) fn limits(&self) -> Limits {
        if self.any_kdf_cost {
            Limits::NONE
        } else {
            Limits::default()
        }
    }
}

/// The bytes of a volume's key.
pub(crate) fn master_key_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let secret = credentials::secret_file(path, KEY_FILE_MAX)?;
    let bytes = secret.expose();
    let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    // Random bytes that are all digits by chance do not happen: the shortest key has 16.
    Ok(Zeroizing::new(match crate::hex::decode(digits) {
        Some(key) if digits.len() >= 32 => key.to_vec(),
        _ => bytes.to_vec(),
    }))
}

impl ImageArgs {
    /// What a command keeps that only reads the volume.
    pub(super) fn to_read(&self) -> Profile {
        Profile {
            read: self.files().collect(),
            ..Profile::default()
        }
    }

    /// What a command keeps that changes the volume.
    pub(super) fn to_change(&self) -> Profile {
        Profile {
            write: self.files().collect(),
            ..Profile::default()
        }
    }

    /// The image, and its header where that is another.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        [Some(&self.image), self.header.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
    }

    /// Whether this is the image or its header, by whatever name, or a loop device over one of them, or what one of them is over.
    pub(super) fn is(&self, path: &Path) -> bool {
        let (this, below) = (store(path), image_below(path));
        self.files().any(|file| {
            let other = store(&file);
            other.is_some() && (other == this || other == below)
                || this.is_some() && this == image_below(&file)
        })
    }

    /// The image as a device.
    pub(crate) fn device(&self, access: Access) -> Result<Arc<dyn Device>> {
        open_device(&self.image, access)
    }

    /// The device of the header where that is another.
    pub(crate) fn header_device(&self, access: Access) -> Result<Option<Arc<dyn Device>>> {
        self.header
            .as_deref()
            .map(|path| open_device(path, access))
            .transpose()
    }

    /// Where the header is: for messages about it.
    pub(super) fn header_path(&self) -> &Path {
        self.header.as_deref().unwrap_or(&self.image)
    }

    /// The LUKS header for reading or changing, and the data's device where that is another.
    pub(super) fn luks(&self, access: Access) -> Result<(Luks, Option<Arc<dyn Device>>)> {
        let (device, data) = match self.header_device(access)? {
            Some(header) => (header, Some(self.device(access)?)),
            None => (self.device(access)?, None),
        };
        let found = volume::recognise(&*device).map_err(|e| said(self.header_path(), e))?;
        match found {
            Some(Format::Luks1 | Format::Luks2) => {}
            Some(format) => {
                return Err(Error::failed(format!(
                    "{}: {format} is read and written here, but its header is not changed: only LUKS volumes' are",
                    self.header_path().display()
                )));
            }
            None => return Err(said(self.header_path(), VolumeError::NotAVolume)),
        }
        let luks = Luks::read(device).map_err(|e| luks_said(self.header_path(), e))?;
        Ok((luks, data))
    }

    /// Opens the volume with what was given or is asked for. A volume whose key cannot be known to be right is spoken of.
    pub(crate) fn open(
        &self,
        credential: &CredentialArgs,
        options: OpenOptions,
        global: &Global,
    ) -> Result<Opened> {
        let device = self.device(access(options.read_only))?;
        let header = self.header_device(Access::ReadOnly)?;
        // Before anybody is asked for a passphrase.
        let found = volume::recognise(header.as_deref().unwrap_or(&*device));
        if header.is_none() && found.as_ref().is_ok_and(Option::is_none) {
            return Err(said(&self.image, VolumeError::NotAVolume));
        }
        let secret = credential.read(&self.image)?;
        let options = OpenOptions {
            any_cost: credential.any_kdf_cost,
            ..options
        };
        let opened = self.unlock(device, header, &secret, options)?;
        if opened.certainty == Certainty::Unknown {
            output::note(
                global,
                format!(
                    "warning: {}: nothing in this volume shows whether the passphrase or key is right, and its contents begin \
                     like no file system of a phone: they may be nonsense",
                    self.image.display()
                ),
            );
        }
        Ok(opened)
    }

    /// Opens the volume on devices that were opened before.
    pub(crate) fn unlock(
        &self,
        device: Arc<dyn Device>,
        header: Option<Arc<dyn Device>>,
        credential: &Credential,
        options: OpenOptions,
    ) -> Result<Opened> {
        volume::open_as_recognised(device, header, credential, options)
            .map_err(|e| said(&self.image, e))
    }
}

/// Which store a path leads to: a file's device and inode, or a block device's number.
fn store(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    Some(match metadata.file_type().is_block_device() {
        true => (metadata.rdev(), 0),
        false => (metadata.dev(), metadata.ino()),
    })
}

/// The image of a loop device (`Documentation/ABI`, block/loop); `None` of anything else.
fn image_below(path: &Path) -> Option<(u64, u64)> {
    let (device, _) = store(path).filter(|(_, inode)| *inode == 0)?;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let image = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let image = std::fs::read(image).ok()?;
    store(Path::new(OsStr::from_bytes(image.trim_ascii_end())))
}

/// How what is read, or also written, is opened.
pub(crate) fn access(read_only: bool) -> Access {
    if read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    }
}

/// A key that opens a LUKS volume, and the slot it came from.
pub(super) fn unlock(
    luks: &Luks,
    credential: &CredentialArgs,
    path: &Path,
) -> Result<(VolumeKey, Option<u8>)> {
    match credential.read(path)? {
        Credential::MasterKey(key) => luks.check_key(&key).map(|key| (key, None)),
        Credential::Passphrase(passphrase) => luks
            .unlock(&passphrase, &credential.limits())
            .map(|(key, slot)| (key, Some(slot))),
    }
    .map_err(|e| luks_said(path, e))
}

/// A file or block device that exists.
pub(crate) fn open_device(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    match FileDevice::open(path, access) {
        Ok(device) => Ok(Arc::new(device)),
        Err(e) => Err(Error::device(path, e)),
    }
}

/// Says what is wrong with a volume.
pub(crate) fn said(path: &Path, error: VolumeError) -> Error {
    let exit = match &error {
        VolumeError::Luks(error) => luks_exit(error),
        VolumeError::NotAVolume => Exit::NotARoom,
        VolumeError::WrongCredential(_) => Exit::WrongCredential,
        VolumeError::Damaged(_) => Exit::HeaderDamaged,
        VolumeError::Io { source, .. } => io_exit(source),
        _ => Exit::Failed,
    };
    let hint = match &error {
        VolumeError::TooCostly(_) | VolumeError::Luks(LuksError::TooCostly { .. }) => {
            " (--any-kdf-cost lifts it)"
        }
        VolumeError::Luks(LuksError::Reencrypting) => " (`strongroom volume reencrypt`)",
        _ => "",
    };
    Error::said(exit, format!("{}: {error}{hint}", path.display()))
}

/// The same of a LUKS volume.
pub(super) fn luks_said(path: &Path, error: LuksError) -> Error {
    said(path, error.into())
}

pub(super) fn luks_exit(error: &LuksError) -> Exit {
    match error {
        LuksError::WrongPassphrase | LuksError::WrongKey => Exit::WrongCredential,
        LuksError::NotLuks => Exit::NotARoom,
        LuksError::Damaged(_) | LuksError::Malformed(_) => Exit::HeaderDamaged,
        LuksError::Version(_) | LuksError::Requirement(_) => Exit::Newer,
        LuksError::Option(_) => Exit::Usage,
        LuksError::Io { source, .. } => io_exit(source),
        LuksError::HalfChanged { source, .. } => luks_exit(source),
        _ => Exit::Failed,
    }
}
