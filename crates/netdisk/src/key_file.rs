//! Files that say which disk this is, with its key: `disk.key` for the disk itself, and `disk.add`, a part of the same, for its
//! metadata server.
//!
//! 1. Both are secret: anyone with the disk's key can make any capability.
//! 2. Only the disk's own file has the private key of its certificate.
//! 3. A certificate has a lifetime. Renewed keys go to new files; the disk's own one keeps the keys before for a while, so that disk
//!    and metadata server need not change at the same moment.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use storage::write_new_private;
use zeroize::Zeroizing;

use crate::certificate::{DiskCertificate, certificate_end, since_epoch};
use crate::keys::random;
use crate::{DiskId, DiskKey};

const TITLE: &str = "strongroom-disk 1";
/// No key file is longer; in bytes.
const LEN_MAX: u64 = 64 << 10;

/// Why a key file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file system said no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Others may read it.
    #[error("others than its owner may read it: make it private with `chmod 600`")]
    NotPrivate,
    /// It is not such a file.
    #[error("it is not a disk's key file: {0}")]
    Form(&'static str),
    /// Only the disk's own file can be renewed.
    #[error("it is the metadata server's part: renew the disk's own key file")]
    Part,
    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Certificate(String),
}

/// A disk's identity, keys and certificate.
#[derive(Debug)]
pub struct KeyFile {
    /// Which disk.
    pub id: DiskId,
    /// Its key.
    pub key: DiskKey,
    /// SHA-256 of its certificate, in DER.
    pub certificate_hash: [u8; 32],
    /// The certificate and its private key; only in the disk's own file.
    pub certificate: Option<DiskCertificate>,
    /// The keys before these, where they were renewed; only in the disk's own file.
    pub previous: Option<PreviousKeys>,
}

/// Keys that were renewed, and are accepted for a while.
#[derive(Debug)]
pub struct PreviousKeys {
    /// The disk's key.
    pub key: DiskKey,
    /// The certificate and its private key.
    pub certificate: DiskCertificate,
    /// The end, seconds since 1970.
    pub until: u64,
}

impl KeyFile {
    /// A new disk's: random identity and key, and a certificate of its own.
    pub fn generate() -> Result<Self, KeyFileError> {
        Self::with(DiskId(random()), None)
    }

    fn with(id: DiskId, previous: Option<PreviousKeys>) -> Result<Self, KeyFileError> {
        let certificate =
            DiskCertificate::generate().map_err(|e| KeyFileError::Certificate(e.to_string()))?;
        Ok(Self {
            id,
            key: DiskKey::new(random()),
            certificate_hash: certificate.hash(),
            certificate: Some(certificate),
            previous,
        })
    }

    /// The same disk with a new key and a new certificate. A disk that is served with them accepts the present ones for `overlap`
    /// more. Refused as [`KeyFileError::Part`] for the metadata server's part.
    pub fn renewed(self, overlap: Duration) -> Result<Self, KeyFileError> {
        let previous = PreviousKeys {
            key: self.key,
            certificate: self.certificate.ok_or(KeyFileError::Part)?,
            until: (since_epoch() + overlap).as_secs(),
        };
        Self::with(self.id, Some(previous))
    }

    /// Reads either file. Refused where others than the owner may read it.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let metadata = fs::metadata(path)?;
        if metadata.mode() & 0o077 != 0 {
            return Err(KeyFileError::NotPrivate);
        }
        if metadata.len() > LEN_MAX {
            return Err(KeyFileError::Form("it is too long"));
        }
        let text = Zeroizing::new(fs::read_to_string(path)?);
        Self::parse(&text)
    }

    /// Writes the disk's own file, readable for its owner only and durable with its name: a store without its key is lost.
    /// `AlreadyExists` where there is one.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        Ok(write_new_private(path, self.text(true).as_bytes())?)
    }

    /// Writes the part that the metadata server needs, in the same way.
    pub fn write_part(&self, path: &Path) -> Result<(), KeyFileError> {
        Ok(write_new_private(path, self.text(false).as_bytes())?)
    }

    /// Takes the text of either file.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let mut lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        if lines.next() != Some(TITLE) {
            return Err(KeyFileError::Form("its first line is another"));
        }
        let (mut id, mut key, mut hash) = (None, None, None);
        let (mut certificate, mut private_key) = (None, None);
        let (mut previous_key, mut previous_until) = (None, None);
        let (mut previous_certificate, mut previous_private_key) = (None, None);
        for line in lines {
            let (name, value) = line
                .split_once(' ')
                .ok_or(KeyFileError::Form("a line has no value"))?;
            let bytes = from_hex(value.trim())?;
            let again = match name {
                "disk" => id.replace(fixed(&bytes)?).is_some(),
                "key" => key.replace(DiskKey::new(fixed(&bytes)?)).is_some(),
                "certificate-sha256" => hash.replace(fixed(&bytes)?).is_some(),
                "certificate" => certificate.replace(bytes.to_vec()).is_some(),
                "private-key" => private_key.replace(bytes).is_some(),
                "previous-key" => previous_key.replace(DiskKey::new(fixed(&bytes)?)).is_some(),
                "previous-until" => previous_until.replace(fixed(&bytes)?).is_some(),
                "previous-certificate" => previous_certificate.replace(bytes.to_vec()).is_some(),
                "previous-private-key" => previous_private_key.replace(bytes).is_some(),
                _ => return Err(KeyFileError::Form("a line has an unknown name")),
            };
            if again {
                return Err(KeyFileError::Form("a line is there twice"));
            }
        }
        let certificate = match (certificate, private_key) {
            (Some(certificate), Some(private_key)) => Some(DiskCertificate {
                certificate,
                private_key,
            }),
            (None, None) => None,
            _ => return Err(KeyFileError::Form("half of the certificate is missing")),
        };
        let previous = match (
            previous_key,
            previous_until,
            previous_certificate,
            previous_private_key,
        ) {
            (Some(key), Some(until), Some(certificate), Some(private_key)) => Some(PreviousKeys {
                key,
                certificate: DiskCertificate {
                    certificate,
                    private_key,
                },
                until: u64::from_be_bytes(until),
            }),
            (None, None, None, None) => None,
            _ => return Err(KeyFileError::Form("a part of the previous keys is missing")),
        };
        let file = Self {
            id: DiskId(id.ok_or(KeyFileError::Form("it names no disk"))?),
            key: key.ok_or(KeyFileError::Form("it has no key"))?,
            certificate_hash: hash.ok_or(KeyFileError::Form("it has no certificate-sha256"))?,
            certificate,
            previous,
        };
        if let Some(certificate) = &file.certificate {
            if certificate.hash() != file.certificate_hash {
                return Err(KeyFileError::Form(
                    "its certificate is not the one it names",
                ));
            }
            if certificate_end(&certificate.certificate).is_err() {
                return Err(KeyFileError::Form("its certificate is none"));
            }
        }
        Ok(file)
    }

    fn text(&self, whole: bool) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(4096));
        text.push_str(TITLE);
        text.push_str(if whole {
            "\n# Secret. For `strongroom disk serve`: anyone with this file can act as the disk.\n"
        } else {
            "\n# Secret. For `strongroom disk add` at the metadata server: anyone with this file can make capabilities for the disk.\n"
        });
        let mut line = |name: &str, bytes: &[u8]| {
            text.push_str(name);
            text.push(' ');
            push_hex(&mut text, bytes);
            text.push('\n');
        };
        line("disk", &self.id.0);
        line("key", self.key.bytes());
        line("certificate-sha256", &self.certificate_hash);
        if let (true, Some(certificate)) = (whole, &self.certificate) {
            line("certificate", &certificate.certificate);
            line("private-key", &certificate.private_key);
        }
        if let (true, Some(previous)) = (whole, &self.previous) {
            line("previous-key", previous.key.bytes());
            line("previous-until", &previous.until.to_be_bytes());
            line("previous-certificate", &previous.certificate.certificate);
            line("previous-private-key", &previous.certificate.private_key);
        }
        text
    }
}

/// Since 1970.
fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], KeyFileError> {
    bytes
        .try_into()
        .map_err(|_| KeyFileError::Form("a value has another length"))
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn from_hex(text: &str) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    const REFUSED: KeyFileError = KeyFileError::Form("a value is not hexadecimal");
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return Err(REFUSED);
    }
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.as_bytes().chunks_exact(2) {
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => out.push(high << 4 | low),
            _ => return Err(REFUSED),
        }
    }
    Ok(out)
}

/// A disk's identity as people and command lines write it: 32 hexadecimal digits.
impl std::fmt::Display for DiskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::with_capacity(32);
        push_hex(&mut text, &self.0);
        f.write_str(&text)
    }
}

impl std::str::FromStr for DiskId {
    type Err = KeyFileError;

    fn from_str(text: &str) -> Result<Self, KeyFileError> {
        Ok(Self(fixed(&from_hex(text)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_come_back_and_only_one_has_the_private_key() {
        let dir = tempfile::tempdir().unwrap();
        let made = KeyFile::generate().unwrap();
        let (whole, part) = (dir.path().join("disk.key"), dir.path().join("disk.add"));
        made.write(&whole).unwrap();
        made.write_part(&part).unwrap();
        for (path, has) in [(&whole, true), (&part, false)] {
            let read = KeyFile::read(path).unwrap();
            assert_eq!(read.id, made.id);
            assert!(read.key.same(&made.key));
            assert_eq!(read.certificate_hash, made.certificate_hash);
            assert_eq!(read.certificate.is_some(), has);
        }
        assert!(made.write(&whole).is_err(), "a key is never written over");
        let id: DiskId = made.id.to_string().parse().unwrap();
        assert_eq!(id, made.id);
    }

    #[test]
    fn renewed_keys_end_and_bring_the_ones_before_along() {
        let made = KeyFile::generate().unwrap();
        let (id, hash) = (made.id, made.certificate_hash);
        let now = since_epoch().as_secs();
        let end = made.certificate.as_ref().unwrap().end().unwrap();
        assert!((now + 720 * 86_400..now + 740 * 86_400).contains(&end));
        let key = made.key.clone();
        let renewed = made.renewed(Duration::from_secs(100)).unwrap();
        assert_ne!(renewed.certificate_hash, hash);
        assert!(!renewed.key.same(&key));
        let read = KeyFile::parse(&renewed.text(true)).unwrap();
        let previous = read.previous.as_ref().unwrap();
        assert!(previous.key.same(&key) && previous.certificate.hash() == hash);
        assert!((now + 100..now + 200).contains(&previous.until));
        assert_eq!(read.id, id);
        assert_eq!(*read.text(true), *renewed.text(true));
        // The metadata server's part has neither certificate, and cannot be renewed.
        let part = KeyFile::parse(&renewed.text(false)).unwrap();
        assert!(part.certificate.is_none() && part.previous.is_none());
        assert!(matches!(
            part.renewed(Duration::ZERO),
            Err(KeyFileError::Part)
        ));
        let half = renewed.text(true).replace("previous-until", "#");
        assert!(KeyFile::parse(&half).is_err());
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.key");
        KeyFile::generate().unwrap().write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            KeyFile::read(&path),
            Err(KeyFileError::NotPrivate)
        ));
    }

    #[test]
    fn files_of_another_form_are_refused() {
        let good = KeyFile::generate().unwrap().text(true);
        assert!(KeyFile::parse(&good).is_ok());
        for bad in [
            "",
            "strongroom-disk 2\n",
            "strongroom-disk 1\ndisk 00\n",
            &good.replace("key ", "kay "),
            &good.replace("certificate ", "certificate 00"),
            &good.replace("private-key", "#"),
            &format!("{}disk {}\n", *good, "00".repeat(16)),
            &good.replace("disk ", "disk zz"),
            &good.replace("disk ", "disk é"),
        ] {
            assert!(KeyFile::parse(bad).is_err(), "{bad}");
        }
    }
}
