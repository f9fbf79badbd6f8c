//! FileVault 2 on CoreStorage (macOS 10.7 to 10.15), read only.
//!
//! 1. Every block of metadata that is used has its checksum checked; of several versions of one, the newest counts.
//! 2. A logical volume in several pieces is put together in order; pieces that are missing or overlap are refused.
//! 3. What is only partly encrypted, spans several disks, or is not AES-XTS-128 is refused by name.
//!
//! It deliberately does not know APFS, whose encryption is another.
//!
//! Sources: libfvde's description of the format (J. Metz, "FileVault Drive Encryption"), cryptsetup's `lib/fvault2`, RFC 3394.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header;
mod metadata;
mod plist;
mod segments;

use std::num::NonZeroU32;
use std::sync::Arc;

use aws_lc_rs::key_wrap::{AES_128, AesKek, KeyWrap};
use aws_lc_rs::{digest, pbkdf2};
use device::Device;
use zeroize::Zeroizing;

use crate::common::{Certainty, Credential, OpenOptions, VolumeError, io_error};
use crate::crypt::{CryptDevice, CryptOptions, Extent};
use crate::sector::SectorCipher;

pub(crate) use header::Header;
use metadata::Metadata;
use segments::Segments;

/// Most iterations of PBKDF2 that metadata may ask for; macOS takes some ten thousand.
const ITERATIONS: u32 = 200_000_000;
/// Most crypto users whose passphrases are tried.
const USERS: usize = 64;
/// Bytes of a key of AES-128.
const KEY: usize = 16;
/// Bytes of such a key, wrapped.
const WRAPPED: usize = 24;

type Key = Zeroizing<[u8; KEY]>;

/// What the metadata of a volume says, as far as no secret is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Name of the logical volume.
    pub name: Option<String>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Segments that hold it.
    pub segments: usize,
    /// Users whose passphrases open it, a recovery key included.
    pub users: usize,
    /// "Complete" where all of it is encrypted.
    pub conversion: Option<String>,
}

/// What the metadata says.
pub fn summary(device: &dyn Device) -> Result<Summary, VolumeError> {
    let header = Header::read(device)?.ok_or(VolumeError::NotAVolume)?;
    let metadata = Metadata::read(device, &header)?;
    Ok(Summary {
        name: metadata.name.clone(),
        uuid: metadata.uuid.clone(),
        bytes: metadata.bytes,
        segments: metadata.segments.len(),
        users: metadata.users.len(),
        conversion: metadata.conversion.clone(),
    })
}

/// The plain contents.
pub(crate) fn open(
    device: Arc<dyn Device>,
    credential: &Credential,
    options: OpenOptions,
) -> Result<(Arc<dyn Device>, Certainty), VolumeError> {
    if !options.read_only {
        return Err(VolumeError::Unsupported(
            "FileVault 2 volumes are only read here: open it read-only".to_owned(),
        ));
    }
    let header = Header::read(&*device)?.ok_or(VolumeError::NotAVolume)?;
    let metadata = Metadata::read(&*device, &header)?;
    if let Some(status) = metadata.conversion.as_deref().filter(|s| *s != "Complete") {
        return Err(VolumeError::Unsupported(format!(
            "the volume is not wholly encrypted (its conversion is {status:?})"
        )));
    }
    let (key, tweak) = match credential {
        Credential::Passphrase(passphrase) => {
            let key = unlock(&metadata, passphrase, options.any_cost)?;
            let tweak = tweak_key(&key, &metadata.family);
            (key, tweak)
        }
        Credential::MasterKey(bytes) => given(bytes, &metadata.family)?,
    };
    let mut both = Zeroizing::new([0; 2 * KEY]);
    both[..KEY].copy_from_slice(&key[..]);
    both[KEY..].copy_from_slice(&tweak[..]);
    let cipher = SectorCipher::new("aes-xts-plain64", &both[..], 512)
        .map_err(|e| VolumeError::Unsupported(e.to_string()))?;
    let below = Segments::new(device, &header, &metadata)?;
    let at = Extent {
        offset: 0,
        len: metadata.bytes,
        iv_offset: 0,
    };
    let crypt = CryptOptions {
        read_only: true,
        allow_discards: false,
    };
    let contents = CryptDevice::new(Arc::new(below), cipher, at, crypt)
        .map_err(io_error("opening the contents"))?;
    let certainty = match credential {
        Credential::Passphrase(_) => Certainty::Checked,
        Credential::MasterKey(_) if begins_like_hfs(&contents)? => Certainty::Checked,
        Credential::MasterKey(_) => Certainty::Unknown,
    };
    Ok((Arc::new(contents), certainty))
}

/// The volume's key, through whichever user's passphrase this is.
fn unlock(metadata: &Metadata, passphrase: &[u8], any_cost: bool) -> Result<Key, VolumeError> {
    for user in metadata.users.iter().take(USERS) {
        if user.iterations > ITERATIONS && !any_cost {
            return Err(VolumeError::TooCostly(format!(
                "a user's passphrase is to be derived with {} iterations, above the limit of {ITERATIONS}",
                user.iterations
            )));
        }
        let iterations = NonZeroU32::new(user.iterations).ok_or_else(|| {
            VolumeError::Damaged("a passphrase that is derived with no iterations".to_owned())
        })?;
        let mut derived = Key::default();
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            &user.salt,
            passphrase,
            &mut derived[..],
        );
        // The key wrap authenticates: it shows whether the passphrase was right.
        let Some(encrypting) = unwrap(&derived, &user.wrapped) else {
            continue;
        };
        return unwrap(&encrypting, &metadata.wrapped_key).ok_or_else(|| {
            VolumeError::Damaged(
                "the passphrase is right, but unwrapping the volume's key fails".to_owned(),
            )
        });
    }
    Err(VolumeError::WrongCredential(
        "the passphrase is none of this volume's users', nor its recovery key".to_owned(),
    ))
}

/// Whether there is a header of HFS+, which these volumes hold: a key that was given is checked by nothing else.
fn begins_like_hfs(contents: &CryptDevice) -> Result<bool, VolumeError> {
    let mut start = [0; 1026];
    if contents.len() < start.len() as u64 {
        return Ok(false);
    }
    contents
        .read_at(&mut start, 0)
        .map_err(io_error("reading the contents"))?;
    Ok(matches!(&start[1024..], b"H+" | b"HX"))
}

/// RFC 3394.
fn unwrap(with: &Key, wrapped: &[u8; WRAPPED]) -> Option<Key> {
    let mut key = Zeroizing::new([0; WRAPPED]);
    let unwrapped = AesKek::new(&AES_128, &with[..])
        .ok()?
        .unwrap(wrapped, &mut key[..])
        .ok()?;
    let mut out = Key::default();
    out.copy_from_slice(unwrapped.get(..KEY)?);
    Some(out)
}

/// The second key of XTS.
fn tweak_key(key: &Key, family: &[u8; 16]) -> Key {
    let mut both = Zeroizing::new([0; 2 * KEY]);
    both[..KEY].copy_from_slice(&key[..]);
    both[KEY..].copy_from_slice(family);
    let hash = digest::digest(&digest::SHA256, &both[..]);
    let mut tweak = Key::default();
    tweak.copy_from_slice(&hash.as_ref()[..KEY]);
    tweak
}

/// A key that somebody kept: of 16 bytes, or of 32 with the second key of XTS.
fn given(bytes: &[u8], family: &[u8; 16]) -> Result<(Key, Key), VolumeError> {
    let wrong = || {
        VolumeError::WrongCredential(format!(
            "this volume's key has 16 bytes, or 32 with its second half, and {} were given",
            bytes.len()
        ))
    };
    let mut key = Key::default();
    key.copy_from_slice(bytes.get(..KEY).ok_or_else(wrong)?);
    match bytes.len() {
        KEY => {
            let tweak = tweak_key(&key, family);
            Ok((key, tweak))
        }
        len if len == 2 * KEY => {
            let mut tweak = Key::default();
            tweak.copy_from_slice(&bytes[KEY..]);
            Ok((key, tweak))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
