//! Any volume: which format an image has, and its contents under one credential.
//!
//! It deliberately knows no format: each has a module that finds its key.

use std::fmt;
use std::io;
use std::sync::Arc;

use device::Device;

use crate::android::{self, Footer};
use crate::common::{Certainty, Credential, OpenOptions, VolumeError, io_error};
use crate::crypt::{CryptDevice, CryptOptions};
use crate::filevault;
use crate::luks::{Limits, Luks};

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

/// The plain contents of a volume.
#[derive(Debug)]
pub struct Opened {
    /// The format it was recognised as.
    pub format: Format,
    /// The contents.
    pub device: Arc<dyn Device>,
    /// Whether the key is known to be the right one. Only volumes opened read-only are ever uncertain.
    pub certainty: Certainty,
    /// Bytes of a sector, 512 to 4096: what Linux takes for the logical blocks of such a volume.
    pub sector_size: usize,
}

/// The format of the volume on this device, or of the detached header on it; `None` where none is known.
pub fn recognise(device: &dyn Device) -> Result<Option<Format>, VolumeError> {
    find(device, true)
}

fn find(device: &dyn Device, apart: bool) -> Result<Option<Format>, VolumeError> {
    let mut start = vec![0; device.len().min(512) as usize];
    if let Err(error) = device.read_at(&mut start, 0) {
        // Of a LUKS2 volume the second header may be left.
        return match second_luks2_header(device) {
            Ok(true) => Ok(Some(Format::Luks2)),
            _ => Err(io_error("reading the beginning of the image")(error)),
        };
    }
    if let Some(format) = luks_version(&start) {
        return Ok(Some(format));
    }
    if filevault::Header::shows(&start) {
        return Ok(Some(Format::FileVault2));
    }
    if second_luks2_header(device)? {
        return Ok(Some(Format::Luks2));
    }
    Ok(Footer::find(device, apart)?.map(|_| Format::Android))
}

fn luks_version(start: &[u8]) -> Option<Format> {
    let version = start.strip_prefix(b"LUKS\xba\xbe")?.first_chunk::<2>()?;
    match u16::from_be_bytes(*version) {
        1 => Some(Format::Luks1),
        _ => Some(Format::Luks2),
    }
}

/// Whether a second header of LUKS2 shows in one of its nine places, the first being lost.
fn second_luks2_header(device: &dyn Device) -> Result<bool, VolumeError> {
    for shift in 14..=22 {
        let mut magic = [0; 6];
        match device.read_at(&mut magic, 1 << shift) {
            Ok(()) if &magic == b"SKUL\xba\xbe" => return Ok(true),
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(io_error("looking for a second header")(e)),
        }
    }
    Ok(false)
}

fn open_luks(
    device: Arc<dyn Device>,
    header: Option<Arc<dyn Device>>,
    credential: &Credential,
    options: OpenOptions,
) -> Result<CryptDevice, VolumeError> {
    let (header, data) = match header {
        Some(header) => (header, Some(device)),
        None => (device, None),
    };
    let luks = Luks::read(header)?;
    let limits = if options.any_cost {
        Limits::NONE
    } else {
        Limits::default()
    };
    let key = match credential {
        Credential::Passphrase(passphrase) => luks.unlock(passphrase, &limits)?.0,
        Credential::MasterKey(key) => luks.check_key(key)?,
    };
    let crypt = CryptOptions {
        read_only: options.read_only,
        allow_discards: options.allow_discards,
    };
    Ok(luks.open(data, &key, crypt)?)
}

/// The plain contents of a volume. `header` is the device with its header where that is kept apart.
pub fn open(
    device: Arc<dyn Device>,
    header: Option<Arc<dyn Device>>,
    credential: &Credential,
    options: OpenOptions,
) -> Result<Arc<dyn Device>, VolumeError> {
    open_as_recognised(device, header, credential, options).map(|opened| opened.device)
}

/// As [`open`], and what was found on the way.
pub fn open_as_recognised(
    device: Arc<dyn Device>,
    header: Option<Arc<dyn Device>>,
    credential: &Credential,
    options: OpenOptions,
) -> Result<Opened, VolumeError> {
    let apart = header.is_some();
    let format =
        find(header.as_deref().unwrap_or(&*device), apart)?.ok_or(VolumeError::NotAVolume)?;
    let mut sector_size = 512;
    let (device, certainty) = match format {
        Format::Android => android::open(device, header.as_deref(), credential, options)?,
        Format::Luks1 | Format::Luks2 => {
            let opened = open_luks(device, header, credential, options)?;
            sector_size = opened.sector_size();
            (Arc::new(opened) as Arc<dyn Device>, Certainty::Checked)
        }
        Format::FileVault2 => filevault::open(device, credential, options)?,
    };
    Ok(Opened {
        format,
        device,
        certainty,
        sector_size,
    })
}
