//! TLS 1.3 around the protocol: the disk shows a certificate that the client knows by its hash.
//!
//! 1. The client goes on only with a server that has the private key of exactly that certificate, before its end: name and issuer do not
//!    count, the handshake's signature does.
//! 2. A disk whose certificate was renewed shows the one that the client names by the beginning of its hash, else the new one.
//! 3. Only TLS 1.3, no resumption, no tickets. The client shows no certificate: its capabilities say what it may do.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    version,
};
use subtle::ConstantTimeEq;

use crate::bytes::array_at;
use crate::certificate::{DiskCertificate, SERVER_NAME, certificate_end, certificate_hash};

/// The name by which a client asks for the certificate with this hash.
pub(crate) fn name_of(hash: &[u8; 32]) -> String {
    let beginning = u64::from_be_bytes(array_at(hash, 0));
    format!("{beginning:016x}.{SERVER_NAME}")
}

/// The disk's side, with the certificate before the present one where that is still to be shown.
pub(crate) fn server(
    certificate: &DiskCertificate,
    previous: Option<&DiskCertificate>,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let certified = |of: &DiskCertificate| {
        let (certificate, key) = of.for_rustls();
        CertifiedKey::from_der(vec![certificate], key, &provider).map(Arc::new)
    };
    let certificates = Certificates {
        present: certified(certificate)?,
        previous: previous
            .map(|it| Ok::<_, Error>((name_of(&certificate_hash(&it.certificate)), certified(it)?)))
            .transpose()?,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// A disk's certificates.
#[derive(Debug)]
struct Certificates {
    present: Arc<CertifiedKey>,
    /// With its name.
    previous: Option<(String, Arc<CertifiedKey>)>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name();
        let previous = self.previous.as_ref();
        let shown = previous.filter(|(name, _)| asked == Some(name.as_str()));
        Some(
            shown
                .map_or(&self.present, |(_, certified)| certified)
                .clone(),
        )
    }
}

/// What a client connects with.
#[derive(Debug, Clone)]
pub(crate) struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

/// The client's side, for the disk whose certificate has this hash.
pub(crate) fn client(hash: [u8; 32]) -> Result<ClientTls, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { hash, provider }))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(ClientTls {
        config: Arc::new(config),
        name: ServerName::try_from(name_of(&hash)).map_err(|e| Error::General(e.to_string()))?,
    })
}

/// Takes one certificate only.
#[derive(Debug)]
struct Pinned {
    hash: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !bool::from(certificate_hash(end_entity).ct_eq(&self.hash)) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        match certificate_end(end_entity)? {
            Some(end) if end < now.as_secs() => Err(CertificateError::Expired.into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::KeyFile;

    #[test]
    fn a_certificate_is_taken_until_its_end_and_no_other_is() {
        let keys = KeyFile::generate().unwrap();
        let end = keys.certificate.as_ref().unwrap().end().unwrap();
        let (certificate, _) = keys.certificate.as_ref().unwrap().for_rustls();
        let verify = |hash, at| {
            let provider = Arc::new(aws_lc_rs::default_provider());
            let name = ServerName::try_from(SERVER_NAME).unwrap();
            let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
            Pinned { hash, provider }.verify_server_cert(&certificate, &[], &name, &[], at)
        };
        verify(keys.certificate_hash, end).unwrap();
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(verify(keys.certificate_hash, end + 1).unwrap_err(), expired);
        verify([1; 32], end).unwrap_err();
        // One from before there were lifetimes.
        let key = rcgen::KeyPair::generate().unwrap();
        let endless = rcgen::CertificateParams::default()
            .self_signed(&key)
            .unwrap();
        assert_eq!(certificate_end(endless.der()), Ok(None));
        assert!(certificate_end(b"none").is_err());
    }
}
