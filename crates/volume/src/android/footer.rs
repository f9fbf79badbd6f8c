//! The crypto footer, versions 1.0 to 1.3: little-endian, packed, at the beginning of 16 KiB.
//!
//! Every number in it is checked here, but for the costs of its key derivation, whose limits are the caller's.

use device::Device;

use crate::common::{VolumeError, io_error};

/// Bytes kept for it at the end of a partition.
const SPACE: u64 = 16 << 10;
/// Bytes of the longest version.
const LEN: usize = 2348;
const MAGIC: u32 = 0xd0b5_b1c4;
/// Bytes of a wrapped key at most.
const KEY_MAX: usize = 48;
/// Bytes between the wrapped key and the salt in version 1.0.
const PADDING_1_0: usize = 32;

const IN_PROGRESS: u32 = 0x2;
const INCONSISTENT: u32 = 0x4;
const CORRUPT: u32 = 0x8;
const KEY_IN_CLEAR: u32 = 0x1;

/// Where a footer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FooterLocation {
    /// On a device of its own.
    Apart,
    /// At this byte of the partition that it describes.
    End(u64),
}

/// How the passphrase becomes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kdf {
    /// PBKDF2 with HMAC-SHA1, 2000 rounds.
    Pbkdf2,
    /// scrypt; each cost is the exponent of a power of two.
    Scrypt {
        /// Of N.
        n: u8,
        /// Of r.
        r: u8,
        /// Of p.
        p: u8,
    },
    /// scrypt with a signature of the phone's hardware in between; the number is Android's, 3 to 5.
    Hardware(u8),
}

/// What the passphrase is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordKind {
    /// A password.
    Password,
    /// Android's own, `default_password`.
    Default,
    /// A pattern; its dots are the digits 1 to 9.
    Pattern,
    /// A PIN.
    Pin,
    /// A number that Android does not know.
    Other(u32),
}

/// A footer, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// Second half of the version, 0 to 3; the first is 1.
    pub minor: u16,
    /// Android's flags.
    pub flags: u32,
    /// Bytes of the volume's key.
    pub key_len: usize,
    /// What the passphrase is.
    pub password: PasswordKind,
    /// Length of the contents, in sectors of 512 bytes.
    pub sectors: u64,
    /// Name of the cipher.
    pub cipher: String,
    /// How the passphrase becomes a key.
    pub kdf: Kdf,
    /// Sectors encrypted so far, where the encryption stopped on its way.
    pub encrypted_upto: u64,
    pub(super) wrapped_key: [u8; KEY_MAX],
    pub(super) salt: [u8; 16],
    /// scrypt of the derived key, from 1.3 on.
    pub(super) check: Option<[u8; 32]>,
}

impl Footer {
    /// Looks for a footer at the end of a partition; on a device of its own also at the beginning.
    pub fn find(
        device: &dyn Device,
        apart: bool,
    ) -> Result<Option<(Self, FooterLocation)>, VolumeError> {
        let mut places = Vec::new();
        if apart {
            places.push((0, FooterLocation::Apart));
        }
        if let Some(offset) = (device.len() / 512 * 512).checked_sub(SPACE) {
            let place = if apart {
                FooterLocation::Apart
            } else {
                FooterLocation::End(offset)
            };
            places.push((offset, place));
        }
        for (offset, place) in places {
            // A file may hold the footer alone, without the room kept for it.
            let len = (device.len() - offset).min(LEN as u64) as usize;
            let mut bytes = vec![0; len];
            device
                .read_at(&mut bytes, offset)
                .map_err(io_error("reading the footer"))?;
            if Self::shows(&bytes) {
                return Ok(Some((Self::parse(&bytes)?, place)));
            }
        }
        Ok(None)
    }

    /// Whether a footer begins here.
    pub fn shows(bytes: &[u8]) -> bool {
        bytes.first_chunk() == Some(&MAGIC.to_le_bytes())
    }

    /// The footer that begins these bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, VolumeError> {
        let fields = Fields(bytes);
        if fields.u32(0)? != MAGIC {
            return Err(VolumeError::NotAVolume);
        }
        let (major, minor) = (fields.u16(4)?, fields.u16(6)?);
        if major != 1 || minor > 3 {
            return Err(VolumeError::Unsupported(format!(
                "an Android crypto footer of version {major}.{minor}; 1.0 to 1.3 are known"
            )));
        }
        let key_len = fields.u32(16)? as usize;
        if key_len == 0 || key_len > KEY_MAX {
            return Err(VolumeError::Damaged(format!(
                "a key of {key_len} bytes in the footer, which holds at most {KEY_MAX}"
            )));
        }
        let cipher = fields.bytes::<64>(36)?;
        let cipher = cipher.split(|&b| b == 0).next().unwrap_or_default();
        let cipher = String::from_utf8(cipher.to_vec())
            .ok()
            .filter(|name| name.chars().all(|c| c.is_ascii_graphic()))
            .ok_or_else(|| {
                VolumeError::Damaged("the cipher's name in the footer is no text".to_owned())
            })?;
        let mut wrapped_key = [0; KEY_MAX];
        let salt;
        if minor == 0 {
            // Key and salt follow the header, whose length says where.
            let end = fields.u32(8)? as usize;
            wrapped_key[..key_len].copy_from_slice(fields.slice(end, key_len)?);
            salt = fields.bytes(end.saturating_add(key_len + PADDING_1_0))?;
        } else {
            wrapped_key = fields.bytes(104)?;
            salt = fields.bytes(152)?;
        }
        let kdf = match (minor, fields.u8(188)) {
            (0 | 1, _) => Kdf::Pbkdf2,
            (_, kind) => match kind? {
                1 => Kdf::Pbkdf2,
                2 => Kdf::Scrypt {
                    n: fields.u8(189)?,
                    r: fields.u8(190)?,
                    p: fields.u8(191)?,
                },
                kind @ 3..=5 => Kdf::Hardware(kind),
                kind => {
                    return Err(VolumeError::Unsupported(format!(
                        "key derivation {kind} in the Android crypto footer; 1 (PBKDF2), 2 (scrypt) and 3 to 5 (bound to \
                         hardware) are known"
                    )));
                }
            },
        };
        let check = if minor >= 3 {
            Some(fields.bytes::<32>(2284)?).filter(|check| check.iter().any(|&b| b != 0))
        } else {
            None
        };
        Ok(Self {
            minor,
            flags: fields.u32(12)?,
            key_len,
            password: match fields.u32(20)? {
                0 => PasswordKind::Password,
                1 => PasswordKind::Default,
                2 => PasswordKind::Pattern,
                3 => PasswordKind::Pin,
                other => PasswordKind::Other(other),
            },
            sectors: fields.u64(24)?,
            cipher,
            kdf,
            encrypted_upto: if minor >= 3 { fields.u64(192)? } else { 0 },
            wrapped_key,
            salt,
            check,
        })
    }

    /// Refuses a partition whose encryption never came to its end: only a part of it is encrypted.
    pub(super) fn whole(&self) -> Result<(), VolumeError> {
        let why = if self.flags & (IN_PROGRESS | INCONSISTENT) != 0
            || (self.encrypted_upto != 0 && self.encrypted_upto < self.sectors)
        {
            "its encryption was interrupted, so only a part of it is encrypted"
        } else if self.flags & CORRUPT != 0 {
            "Android marked it as corrupt"
        } else if self.flags & KEY_IN_CLEAR != 0 {
            "its key is not encrypted (a debugging aid of Android's)"
        } else {
            return Ok(());
        };
        Err(VolumeError::Unsupported(format!(
            "this volume is not opened: {why}"
        )))
    }
}

/// Little-endian fields at their offsets.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn slice(&self, at: usize, len: usize) -> Result<&[u8], VolumeError> {
        at.checked_add(len)
            .and_then(|end| self.0.get(at..end))
            .ok_or_else(|| {
                VolumeError::Damaged("the Android crypto footer is cut short".to_owned())
            })
    }

    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], VolumeError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.slice(at, N)?);
        Ok(bytes)
    }

    fn u8(&self, at: usize) -> Result<u8, VolumeError> {
        Ok(self.bytes::<1>(at)?[0])
    }

    fn u16(&self, at: usize) -> Result<u16, VolumeError> {
        Ok(u16::from_le_bytes(self.bytes(at)?))
    }

    fn u32(&self, at: usize) -> Result<u32, VolumeError> {
        Ok(u32::from_le_bytes(self.bytes(at)?))
    }

    fn u64(&self, at: usize) -> Result<u64, VolumeError> {
        Ok(u64::from_le_bytes(self.bytes(at)?))
    }
}
