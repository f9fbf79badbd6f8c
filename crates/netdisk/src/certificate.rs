//! A disk's self-signed certificate: made, read, and known by its hash.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::bytes::array_at;

/// The name every disk's certificate has; nobody checks it.
pub(crate) const SERVER_NAME: &str = "disk.strongroom.invalid";
/// For how long a certificate is valid.
const LIFETIME: Duration = Duration::from_secs(730 * 86_400);
/// It is valid from so long ago: clocks differ.
const BACKDATED: Duration = Duration::from_secs(86_400);
/// A certificate that ends later has no lifetime: 4000-01-01, in seconds since 1970.
const ENDLESS: i64 = 64_060_588_800;

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
    pub(crate) fn generate() -> Result<Self, rcgen::Error> {
        let pair = rcgen::KeyPair::generate()?;
        // Nobody checks the name: the certificate is known by its hash.
        let mut params = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
        let (epoch, now) = (rcgen::date_time_ymd(1970, 1, 1), since_epoch());
        params.not_before = epoch + now.saturating_sub(BACKDATED);
        params.not_after = epoch + now + LIFETIME;
        let certificate = params.self_signed(&pair)?;
        Ok(Self {
            certificate: certificate.der().to_vec(),
            private_key: Zeroizing::new(pair.serialize_der()),
        })
    }

    /// SHA-256 of the certificate, in DER.
    pub(crate) fn hash(&self) -> [u8; 32] {
        certificate_hash(&self.certificate)
    }

    /// When it ends, seconds since 1970; `None` where it has no lifetime.
    pub fn end(&self) -> Option<u64> {
        // One that is none was refused when the file was read.
        certificate_end(&self.certificate).ok().flatten()
    }

    pub(crate) fn for_rustls(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (
            CertificateDer::from(self.certificate.clone()),
            PrivatePkcs8KeyDer::from(self.private_key.to_vec()).into(),
        )
    }
}

/// When a certificate in DER ends, seconds since 1970; `None` where it has no lifetime.
///
/// # Errors
/// `BadEncoding` where it is no certificate.
pub fn certificate_end(certificate: &[u8]) -> Result<Option<u64>, CertificateError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| CertificateError::BadEncoding)?;
    let end = parsed.validity().not_after.timestamp();
    Ok(u64::try_from(end).ok().filter(|_| end < ENDLESS))
}

/// SHA-256 of a certificate in DER.
pub fn certificate_hash(certificate: &[u8]) -> [u8; 32] {
    array_at(digest(&SHA256, certificate).as_ref(), 0)
}

/// Now.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
