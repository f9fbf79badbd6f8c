//! Files that say which disk this is, with its key: `disk.key` for the disk itself, and `disk.add`, a part of the same, for its
//! metadata server.
//!
//! 1. Both are secret: who has the disk's key can make any capability.
//! 2. Only the disk's own file has the private key of its certificate.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use storage::write_new_private;
use zeroize::Zeroizing;

use crate::keys::random;
use crate::tls;
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
}

/// A self-signed certificate, with its private key.
pub struct DiskCertificate {
    pub(crate) certificate: Vec<u8>,
    pub(crate) private_key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for DiskCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskCertificate(..)")
    }
}

impl DiskCertificate {
    pub(crate) fn for_rustls(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (
            CertificateDer::from(self.certificate.clone()),
            PrivatePkcs8KeyDer::from(self.private_key.to_vec()).into(),
        )
    }
}

impl KeyFile {
    /// A new disk's: random identity and key, and a certificate of its own.
    pub fn generate() -> Result<Self, KeyFileError> {
        let id = DiskId(random());
        let words = |e: rcgen::Error| KeyFileError::Certificate(e.to_string());
        let pair = rcgen::KeyPair::generate().map_err(words)?;
        // Nobody checks the name: the certificate is known by its hash.
        let certificate = rcgen::CertificateParams::new(vec![tls::SERVER_NAME.to_owned()])
            .and_then(|params| params.self_signed(&pair))
            .map_err(words)?;
        let certificate = certificate.der().to_vec();
        Ok(Self {
            id,
            key: DiskKey::new(random()),
            certificate_hash: tls::certificate_hash(&certificate),
            certificate: Some(DiskCertificate {
                certificate,
                private_key: Zeroizing::new(pair.serialize_der()),
            }),
        })
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
        let file = Self {
            id: DiskId(id.ok_or(KeyFileError::Form("it names no disk"))?),
            key: key.ok_or(KeyFileError::Form("it has no key"))?,
            certificate_hash: hash.ok_or(KeyFileError::Form("it has no certificate-sha256"))?,
            certificate,
        };
        if let Some(certificate) = &file.certificate
            && tls::certificate_hash(&certificate.certificate) != file.certificate_hash
        {
            return Err(KeyFileError::Form(
                "its certificate is not the one it names",
            ));
        }
        Ok(file)
    }

    fn text(&self, whole: bool) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(4096));
        text.push_str(TITLE);
        text.push_str(if whole {
            "\n# Secret. For `strongroom disk serve`: who has this is the disk.\n"
        } else {
            "\n# Secret. For `strongroom disk add` at the metadata server: who has this can make capabilities for the disk.\n"
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
        text
    }
}

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
