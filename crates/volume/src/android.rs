//! Android's full-disk encryption (4.4 to 9): a partition encrypted by dm-crypt, and a footer with its wrapped key.
//!
//! 1. Only footers that software alone can open are opened by a passphrase; where the phone's hardware signs in between, the
//!    error says so, and the key itself opens it.
//! 2. Footers before 1.3 hold nothing to check a passphrase by. Then the contents must begin like a file system that phones
//!    have, or the volume opens read-only, with a warning.
//!
//! Source: `system/vold/cryptfs.h` and `cryptfs.c` of Android 4.4 to 6.0.

mod footer;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use aes::Aes128;
use aws_lc_rs::pbkdf2;
use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use device::Device;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::common::{Certainty, Credential, OpenOptions, VolumeError, io_error};
use crate::crypt::{CryptDevice, CryptOptions, Extent};
use crate::sector::SectorCipher;

pub use footer::{Footer, FooterLocation, Kdf, PasswordKind};

/// Bytes of a sector.
const SECTOR: usize = 512;
/// Rounds that Android's PBKDF2 has, always.
const PBKDF2_ROUNDS: NonZeroU32 = NonZeroU32::new(2000).unwrap();
/// Most memory that a footer's scrypt may take, in bytes; Android takes 32 MiB.
const SCRYPT_MEMORY: u64 = 1 << 30;
/// Most passes over that memory; Android takes 2.
const SCRYPT_PASSES: u64 = 1 << 4;

/// Key of AES-128, then an IV, both from the passphrase.
type Derived = Zeroizing<[u8; 32]>;

/// The plain contents, and whether the key is known to be right.
pub(crate) fn open(
    device: Arc<dyn Device>,
    header: Option<&dyn Device>,
    credential: &Credential,
    options: OpenOptions,
) -> Result<(Arc<dyn Device>, Certainty), VolumeError> {
    let (footer, place) = Footer::find(header.unwrap_or(&*device), header.is_some())?
        .ok_or(VolumeError::NotAVolume)?;
    footer.whole()?;
    let (key, says) = match credential {
        Credential::MasterKey(key) => {
            if key.len() != footer.key_len {
                return Err(VolumeError::WrongCredential(format!(
                    "this volume's key has {} bytes, and {} were given",
                    footer.key_len,
                    key.len()
                )));
            }
            (key.clone(), Says::Nothing)
        }
        Credential::Passphrase(passphrase) => {
            let derived = derive(&footer, passphrase, options.any_cost)?;
            let says = check(&footer, &derived)?;
            (unwrap(&footer, &derived)?, says)
        }
    };

    let len = footer
        .sectors
        .checked_mul(SECTOR as u64)
        .filter(|&len| len <= device.len() && len > 0)
        .ok_or_else(|| {
            VolumeError::Damaged(format!(
                "the footer speaks of {} sectors of 512 bytes, and the image has {} bytes; is it cut short?",
                footer.sectors,
                device.len()
            ))
        })?;
    if let FooterLocation::End(offset) = place
        && len > offset
    {
        return Err(VolumeError::Damaged(
            "the footer is inside the contents that it describes".to_owned(),
        ));
    }
    let cipher = SectorCipher::new(&footer.cipher, &key, SECTOR)
        .map_err(|e| VolumeError::Unsupported(e.to_string()))?;
    let at = Extent {
        offset: 0,
        len,
        iv_offset: 0,
    };
    let contents = CryptDevice::new(
        device,
        cipher,
        at,
        CryptOptions {
            read_only: options.read_only,
            allow_discards: options.allow_discards,
        },
    )
    .map_err(io_error("opening the contents"))?;
    // Android itself relies on a file system that mounts more than on the footer's check, which a crash can make stale.
    let certainty = if says == Says::Right || begins_like_a_file_system(&contents)? {
        Certainty::Checked
    } else {
        Certainty::Unknown
    };
    if says == Says::Wrong && certainty == Certainty::Unknown {
        return Err(wrong_passphrase(footer.password));
    }
    if certainty == Certainty::Unknown && !options.read_only {
        return Err(VolumeError::Unsupported(
            "this footer holds nothing to check the passphrase or key by, and the contents begin like no file system of a \
             phone: open the volume read-only"
                .to_owned(),
        ));
    }
    Ok((Arc::new(contents), certainty))
}

fn derive(footer: &Footer, passphrase: &[u8], any_cost: bool) -> Result<Derived, VolumeError> {
    let mut derived = Derived::default();
    match footer.kdf {
        Kdf::Pbkdf2 => pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA1,
            PBKDF2_ROUNDS,
            &footer.salt,
            passphrase,
            &mut derived[..],
        ),
        Kdf::Scrypt { .. } => scrypt(footer, passphrase, any_cost, &mut derived)?,
        Kdf::Hardware(kind) => {
            return Err(VolumeError::HardwareBound(format!(
                "the key is bound to the phone's hardware (key derivation {kind}, scrypt with a signature of Android's \
                 keymaster): no passphrase opens it away from that phone; give the volume's key instead (--master-key-file)"
            )));
        }
    }
    Ok(derived)
}

/// scrypt under the costs and the salt of the footer.
fn scrypt(
    footer: &Footer,
    secret: &[u8],
    any_cost: bool,
    out: &mut [u8; 32],
) -> Result<(), VolumeError> {
    let Kdf::Scrypt { n, r, p } = footer.kdf else {
        return Ok(());
    };
    let malformed =
        || VolumeError::Damaged("scrypt's costs in the footer make no sense".to_owned());
    // Exponents of two that fit: 128 bytes times 2^n times 2^r of memory, 2^p passes.
    let memory = 1_u64
        .checked_shl(u32::from(n) + u32::from(r) + 7)
        .filter(|_| n < 30 && r < 10 && p < 10)
        .ok_or_else(malformed)?;
    if !any_cost && (memory > SCRYPT_MEMORY || 1 << p > SCRYPT_PASSES) {
        return Err(VolumeError::TooCostly(format!(
            "the footer asks for {} MiB of memory and {} passes of scrypt, above the limits of {} MiB and {SCRYPT_PASSES}",
            memory >> 20,
            1_u64 << p,
            SCRYPT_MEMORY >> 20,
        )));
    }
    let params = scrypt::Params::new(n, 1 << r, 1 << p).map_err(|_| malformed())?;
    scrypt::scrypt(secret, &footer.salt, &params, out).map_err(|_| malformed())
}

/// What a footer says of a derived key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Right,
    Wrong,
    Nothing,
}

/// Whether the derived key is the one the footer was made with. Android hashes the key's 16 bytes; tools that make footers
/// are met that hash key and IV.
fn check(footer: &Footer, derived: &Derived) -> Result<Says, VolumeError> {
    let Some(expected) = footer
        .check
        .filter(|_| matches!(footer.kdf, Kdf::Scrypt { .. }))
    else {
        return Ok(Says::Nothing);
    };
    for hashed in [&derived[..16], &derived[..]] {
        let mut found = Derived::default();
        // The costs were allowed when the key was derived.
        scrypt(footer, hashed, true, &mut found)?;
        if bool::from(found.ct_eq(&expected)) {
            return Ok(Says::Right);
        }
    }
    Ok(Says::Wrong)
}

fn wrong_passphrase(kind: PasswordKind) -> VolumeError {
    let hint = match kind {
        PasswordKind::Default => ": the footer says that it is Android's own, \"default_password\"",
        PasswordKind::Pattern => {
            ": the footer says that it is a pattern; its dots are the digits 1 to 9, row by row"
        }
        PasswordKind::Pin => ": the footer says that it is a PIN",
        PasswordKind::Password | PasswordKind::Other(_) => "",
    };
    VolumeError::WrongCredential(format!("wrong passphrase{hint}"))
}

/// The volume's key: AES-128-CBC, no padding.
fn unwrap(footer: &Footer, derived: &Derived) -> Result<Zeroizing<Vec<u8>>, VolumeError> {
    let (key, iv) = derived.split_at(16);
    let mut master = Zeroizing::new(footer.wrapped_key[..footer.key_len].to_vec());
    let unwrapped = cbc::Decryptor::<Aes128>::new_from_slices(key, iv)
        .ok()
        .and_then(|cipher| {
            cipher
                .decrypt_padded::<NoPadding>(&mut master)
                .ok()
                .map(|_| ())
        });
    match unwrapped {
        Some(()) => Ok(master),
        None => Err(VolumeError::Damaged(format!(
            "a wrapped key of {} bytes, which is no multiple of 16",
            footer.key_len
        ))),
    }
}

/// Whether there is a superblock of ext4 or F2FS, which Android's data partitions have.
fn begins_like_a_file_system(contents: &CryptDevice) -> Result<bool, VolumeError> {
    let mut start = [0; 2048];
    match contents.read_at(&mut start, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(e) => return Err(io_error("reading the contents")(e)),
    }
    let ext4 = start[1024 + 56..1024 + 58] == 0xef53_u16.to_le_bytes();
    let f2fs = start[1024..1028] == 0xf2f5_2010_u32.to_le_bytes();
    Ok(ext4 || f2fs)
}

#[cfg(test)]
mod tests;
