//! Identity files: what a user's client shows to the metadata server, and what it knows the server by.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

/// Largest identity file, bytes.
const IDENTITY_MAX: usize = 64 << 10;
/// A key that ends within this time is to be renewed.
pub const RENEW_BEFORE: Duration = Duration::from_secs(60 * 86_400);

/// Why an identity cannot be read or used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IdentityError(String);

fn failed(error: impl std::fmt::Display) -> IdentityError {
    IdentityError(format!("certificates: {error}"))
}

/// The implementation of TLS that both sides use.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The serial number of a certificate made here; `None` for any other.
pub fn serial_of(certificate: &[u8]) -> Option<[u8; 16]> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    certificate.raw_serial().try_into().ok()
}

/// What a client shows that it is a user's, and knows its server by. Secret.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    /// One; two while the room's authority is rotated.
    authorities: Vec<CertificateDer<'static>>,
    server_name: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// The identity of the user to whom the first of the room's `authorities` gave a certificate.
    pub fn new(
        certificate: CertificateDer<'static>,
        key: PrivatePkcs8KeyDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
        server_name: String,
    ) -> Self {
        Self {
            certificate,
            key,
            authorities,
            server_name,
        }
    }

    /// Reads an identity file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, IdentityError> {
        let bad = |what: &str| {
            IdentityError(format!(
                "not an identity file ({what}); make one with `strongroom user add`"
            ))
        };
        if text.len() > IDENTITY_MAX {
            return Err(bad("too long"));
        }
        let server_name = std::str::from_utf8(text)
            .map_err(|_| bad("not text"))?
            .lines()
            .find_map(|line| line.strip_prefix("server-name: "))
            .ok_or_else(|| bad("it has no line `server-name:`"))?
            .trim()
            .to_owned();
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let mut certificates = certificates
            .map_err(|_| bad("a certificate is damaged"))?
            .into_iter();
        let certificate = certificates.next();
        let authorities: Vec<_> = certificates.collect();
        if authorities.is_empty() {
            return Err(bad("it has no certificate of the room"));
        }
        Ok(Self {
            certificate: certificate.ok_or_else(|| bad("it has no certificate"))?,
            authorities,
            key: PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| bad("it has no key"))?,
            server_name,
        })
    }

    /// The file: certificates, the user's and those of the room's authorities, the key between them, and the server's name.
    pub fn to_text(&self, user: &str) -> Zeroizing<String> {
        let block = |label: &str, bytes: &[u8]| {
            let mut text = Zeroizing::new(format!("-----BEGIN {label}-----\n"));
            let encoded = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(bytes));
            for line in encoded.as_bytes().chunks(64) {
                text.push_str(&String::from_utf8_lossy(line));
                text.push('\n');
            }
            text.push_str(&format!("-----END {label}-----\n"));
            text
        };
        let mut text = Zeroizing::new(format!(
            "Identity of {user} for a Strongroom metadata server. Anyone with this file can act as {user}: keep it secret.\n\
             server-name: {}\n",
            self.server_name
        ));
        text.push_str(&block("CERTIFICATE", &self.certificate));
        text.push_str(&block("PRIVATE KEY", self.key.secret_pkcs8_der()));
        for authority in &self.authorities {
            text.push_str(&block("CERTIFICATE", authority));
        }
        text
    }

    /// The serial number of its certificate, where that was made here.
    pub fn serial(&self) -> Option<[u8; 16]> {
        serial_of(&self.certificate)
    }

    /// When it ends, seconds since 1970; `None` where it has no lifetime.
    pub fn end(&self) -> Option<u64> {
        netdisk::certificate_end(&self.certificate).ok().flatten()
    }

    /// The name the server's certificate must have.
    pub fn server_name(&self) -> Result<ServerName<'static>, IdentityError> {
        ServerName::try_from(self.server_name.clone()).map_err(failed)
    }

    /// The TLS of a client: version 1.3, only this room's server, as this user.
    pub fn client_config(&self) -> Result<ClientConfig, IdentityError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            roots.add(authority.clone()).map_err(failed)?;
        }
        ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![self.certificate.clone()],
                PrivateKeyDer::Pkcs8(self.key.clone_key()),
            )
            .map_err(failed)
    }
}
