//! TLS for a server: certificates or pre-shared keys, read from files in the forms that other NBD programs use.
//!
//! 1. TLS 1.3 only.
//! 2. Keys are wiped when dropped, and are not printed.
//!
//! The library is OpenSSL: rustls has no pre-shared keys (`docs/decisions/0013-nbd.md`).

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;
use openssl::ssl::{
    SslContext, SslFiletype, SslMethod, SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use zeroize::Zeroizing;

/// Whether connections go into TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsPolicy {
    /// Never.
    #[default]
    Off,
    /// Where the client asks for it.
    Allow,
    /// Always: before it nothing is answered.
    Require,
}

/// Most bytes of a file of pre-shared keys.
const PSK_FILE_MAX: u64 = 1 << 20;
/// Bytes of a pre-shared key: less is guessed, more OpenSSL does not take.
const PSK_LEN: std::ops::RangeInclusive<usize> = 16..=256;

/// What a server proves itself with, and asks of its clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// A directory with `server-cert.pem` (followed by what vouches for it), `server-key.pem`, and, for
    /// [`Self::verify_clients`], `ca-cert.pem`.
    pub certificates: Option<PathBuf>,
    /// Refuses clients without a certificate that `ca-cert.pem` vouches for.
    pub verify_clients: bool,
    /// A file of lines `NAME:KEY`, the key in hexadecimal, as `psktool` writes it.
    pub pre_shared_keys: Option<PathBuf>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Neither certificates nor pre-shared keys.
    #[error("TLS needs certificates or pre-shared keys")]
    Nothing,
    /// Only certificates can be verified.
    #[error("verifying clients needs certificates")]
    Verify,
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of the file of keys is none.
    #[error("{}: line {line}: write NAME:KEY, the key 16 to 256 bytes in hexadecimal, each name once", path.display())]
    Psk {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// A certificate or key that is none, or does not fit.
    #[error("{}: {source}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ErrorStack,
    },
    /// The library refused.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] ErrorStack),
}

/// TLS as a server speaks it.
#[derive(Clone)]
pub struct Tls {
    pub(crate) context: SslContext,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// Reads the files.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        if files.certificates.is_none() && files.pre_shared_keys.is_none() {
            return Err(TlsError::Nothing);
        }
        let mut builder = SslContext::builder(SslMethod::tls_server())?;
        builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        // Nothing to resume: a connection lives long.
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_num_tickets(0)?;
        if let Some(dir) = &files.certificates {
            let (chain, key) = (dir.join("server-cert.pem"), dir.join("server-key.pem"));
            let of = |path: &Path| {
                let path = path.to_owned();
                move |source| TlsError::Certificate { path, source }
            };
            builder
                .set_certificate_chain_file(&chain)
                .map_err(of(&chain))?;
            builder
                .set_private_key_file(&key, SslFiletype::PEM)
                .map_err(of(&key))?;
            builder.check_private_key().map_err(of(&key))?;
            if files.verify_clients {
                let authority = dir.join("ca-cert.pem");
                builder.set_ca_file(&authority).map_err(of(&authority))?;
                builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
            }
        } else if files.verify_clients {
            return Err(TlsError::Verify);
        }
        if let Some(path) = &files.pre_shared_keys {
            let keys = Keys::read(path)?;
            builder.set_psk_server_callback(move |_, identity, out| Ok(keys.find(identity, out)));
            // What a pre-shared key's hash is of where nobody says: RFC 8446, section 4.2.11.
            builder.set_ciphersuites(
                "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
            )?;
        }
        Ok(Self {
            context: builder.build(),
        })
    }
}

/// Keys by their names.
struct Keys(BTreeMap<Vec<u8>, Zeroizing<Vec<u8>>>);

impl Keys {
    fn read(path: &Path) -> Result<Self, TlsError> {
        let read = || {
            let file = std::fs::File::open(path)?;
            let mut text = Zeroizing::new(String::new());
            if file.take(PSK_FILE_MAX + 1).read_to_string(&mut text)? as u64 > PSK_FILE_MAX {
                return Err(std::io::Error::other("longer than 1 MiB"));
            }
            Ok(text)
        };
        let text = read().map_err(|source| TlsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let refused = |line| TlsError::Psk {
            path: path.to_owned(),
            line,
        };
        let mut keys = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, key) = line.rsplit_once(':').ok_or_else(|| refused(i + 1))?;
            let key = hex(key).ok_or_else(|| refused(i + 1))?;
            let fits = PSK_LEN.contains(&key.len()) && !name.is_empty();
            if !fits || keys.insert(name.as_bytes().to_vec(), key).is_some() {
                return Err(refused(i + 1));
            }
        }
        if keys.is_empty() {
            return Err(refused(1));
        }
        Ok(Self(keys))
    }

    /// Copies a key out; its length, 0 where there is none of that name.
    fn find(&self, identity: Option<&[u8]>, out: &mut [u8]) -> usize {
        let Some(key) = identity.and_then(|name| self.0.get(name)) else {
            return 0;
        };
        let Some(out) = out.get_mut(..key.len()) else {
            return 0;
        };
        out.copy_from_slice(key);
        key.len()
    }
}

fn hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16);
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.as_bytes().chunks_exact(2) {
        // Two digits of four bits each.
        bytes.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_by_name_and_nonsense_is_refused_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.psk");
        std::fs::write(
            &path,
            format!(
                "# ours\nalice:{}\nb:ob:{}\n",
                "aB".repeat(16),
                "01".repeat(32)
            ),
        )
        .unwrap();
        let keys = Keys::read(&path).unwrap();
        let mut out = [0; 256];
        assert_eq!(keys.find(Some(b"alice"), &mut out), 16);
        assert_eq!(out[..16], [0xab; 16]);
        assert_eq!(keys.find(Some(b"b:ob"), &mut out), 32);
        assert_eq!(keys.find(Some(b"eve"), &mut out), 0);
        assert_eq!(keys.find(None, &mut out), 0);
        assert_eq!(keys.find(Some(b"alice"), &mut out[..15]), 0);
        let good = format!("a:{}\n", "00".repeat(16));
        for bad in ["a", "a:00", "a:zz", ":0011", "a:0", &good, "a:\u{e4}\u{e4}"] {
            std::fs::write(&path, format!("{good}{bad}")).unwrap();
            let refused = Keys::read(&path).err().unwrap();
            assert!(
                matches!(refused, TlsError::Psk { line: 2, .. }),
                "{bad}: {refused}"
            );
        }
    }
}
