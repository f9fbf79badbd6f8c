//! Any volume: which format an image has, and its contents under one credential.
//!
//! It deliberately knows no format: each has a module that finds its key.

use std::fmt;
use std::io;
use std::sync::Arc;

use device::Device;
use zeroize::Zeroizing;

/// The formats that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// LUKS, version 1.
    Luks1,
    /// LUKS, version 2.
    Luks2,
    /// The full-disk encryption of Android 4.4 to 9.
    Android,
    /// FileVault 2 on CoreStorage.
    FileVault2,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Luks1 => "LUKS1",
            Self::Luks2 => "LUKS2",
            Self::Android => "Android full-disk encryption",
            Self::FileVault2 => "FileVault 2 (CoreStorage)",
        })
    }
}

/// What opens a volume.
pub enum Credential {
    /// A passphrase, or the contents of a key file.
    Passphrase(Zeroizing<Vec<u8>>),
    /// The key that the contents are encrypted with, without any key slot.
    MasterKey(Zeroizing<Vec<u8>>),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passphrase(_) => "Passphrase(..)",
            Self::MasterKey(_) => "MasterKey(..)",
        })
    }
}

/// How a volume is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Pass discards down to the image: they show which sectors are unused.
    pub allow_discards: bool,
    /// Derive keys at whatever cost the header asks for. Otherwise costs that would eat the machine are refused.
    pub any_cost: bool,
}

/// Why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// No known format shows in it.
    #[error(
        "no encrypted volume is recognised in it; where its header is kept apart, name the header"
    )]
    NotAVolume,
    /// What the volume needs is not supported here.
    #[error("{0}")]
    Unsupported(String),
    /// Passphrase or key are not this volume's.
    #[error("{0}")]
    WrongCredential(String),
    /// The device below failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the device said.
        source: io::Error,
    },
}

/// The format of the volume on this device, or of the detached header on it; `None` where none is known.
pub fn recognise(device: &dyn Device) -> Result<Option<Format>, VolumeError> {
    let _ = device;
    Ok(None)
}

/// The plain contents of a volume. `header` is the device with its header where that is kept apart.
pub fn open(
    device: Arc<dyn Device>,
    header: Option<Arc<dyn Device>>,
    credential: &Credential,
    options: OpenOptions,
) -> Result<Arc<dyn Device>, VolumeError> {
    let _ = (credential, options);
    match recognise(header.as_deref().unwrap_or(&*device))? {
        Some(format) => Err(VolumeError::Unsupported(format!(
            "{format} is not supported yet"
        ))),
        None => Err(VolumeError::NotAVolume),
    }
}
